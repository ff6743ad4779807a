//! Holds bodies in memory. Bytes are copied into one buffer, and the buffer's capacity is counted against a budget.
//!
//! A frame of a body is a view into its connection's read buffer. Keeping frames keeps those buffers: a single byte
//! would keep 8 KiB or more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;

/// Memory budget shared by the buffers of many requests, in bytes. Clones share it.
#[derive(Debug, Clone)]
pub struct BufferBudget(Arc<AtomicUsize>);

impl BufferBudget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Creates an empty buffer for at most `limit` bytes that draws on this budget.
    pub fn buffer(&self, limit: usize) -> BodyBuffer {
        BodyBuffer { reservation: Some(Reservation { budget: self.clone(), bytes: 0 }), ..BodyBuffer::new(limit) }
    }

    /// Returns the unreserved bytes.
    #[cfg(test)]
    pub(crate) fn available(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reserved bytes of a budget, returned when dropped.
#[derive(Debug)]
struct Reservation {
    budget: BufferBudget,
    bytes: usize,
}

impl Reservation {
    /// Grows the reservation to at least this many bytes; returns false if the budget lacks them.
    fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let budget = &self.budget.0;
        let reserved = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(more));
        self.bytes += if reserved.is_ok() { more } else { 0 };
        reserved.is_ok()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// A body, or its beginning, in one allocation.
#[derive(Default)]
pub struct BodyBuffer {
    bytes: Vec<u8>,
    limit: usize,
    /// Length of the whole body, if known: the buffer never grows beyond it.
    expected: Option<usize>,
    reservation: Option<Reservation>,
}

impl std::fmt::Debug for BodyBuffer {
    /// Omits the bytes, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyBuffer")
            .field("bytes", &self.bytes.len())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Reason why a buffer does not accept more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BufferFull {
    /// The body is larger than the buffer's limit.
    #[error("the body is too large to buffer")]
    Limit,
    /// The budget is used up by other bodies.
    #[error("no memory is left to buffer the body")]
    Budget,
}

/// Reason why a body was not read into a buffer.
#[derive(Debug, thiserror::Error)]
pub enum FillError<E> {
    /// The buffer is full. This chunk was taken from the body and is not in the buffer.
    #[error("{0}")]
    Full(BufferFull, Bytes),
    /// The body ended early.
    #[error("the body ended early")]
    Broken(E),
}

impl BodyBuffer {
    /// Creates an empty buffer for at most `limit` bytes without a budget.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, expected: None, reservation: None }
    }

    /// Appends a chunk.
    ///
    /// # Errors
    /// The limit or the budget is exceeded; nothing was appended.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), BufferFull> {
        let needed = self.bytes.len().saturating_add(piece.len());
        if needed > self.limit {
            return Err(BufferFull::Limit);
        }
        if needed > self.bytes.capacity() {
            self.grow(needed)?;
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// Appends the last pieces of a body. The capacity grows to what they need, and no further.
    ///
    /// # Errors
    /// The limit or the budget is exceeded.
    pub fn push_last(&mut self, pieces: &[Vec<u8>]) -> Result<(), BufferFull> {
        self.expected = Some(pieces.iter().map(Vec::len).fold(self.bytes.len(), usize::saturating_add));
        pieces.iter().try_for_each(|piece| self.push(piece))
    }

    /// Doubles the capacity, up to what the whole body can need.
    fn grow(&mut self, needed: usize) -> Result<(), BufferFull> {
        let max = self.expected.unwrap_or(self.limit).min(self.limit);
        let doubled = self.bytes.capacity().saturating_mul(2).max(SMALLEST).min(max).max(needed);
        let mut granted = |bytes| self.reservation.as_mut().is_none_or(|reservation| reservation.grow_to(bytes));
        let capacity = match granted(doubled) {
            true => doubled,
            false if granted(needed) => needed,
            false => return Err(BufferFull::Budget),
        };
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    /// Reads a body to its end into the buffer. Trailers are dropped.
    ///
    /// # Errors
    /// The limit or the budget is exceeded, or the body ended early. Earlier bytes stay in the buffer.
    pub async fn fill<B>(&mut self, body: &mut B) -> Result<(), FillError<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        self.expect(&*body);
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(FillError::Broken)?.into_data() else { continue };
            if let Err(full) = self.push(&piece) {
                return Err(FillError::Full(full, piece));
            }
        }
        Ok(())
    }

    /// Limits the capacity to the length of this body, if known.
    pub(crate) fn expect(&mut self, body: &impl Body) {
        self.expected = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    }

    /// Borrows the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the bytes. Their reservation is returned when the last clone is dropped.
    pub fn into_bytes(self) -> Bytes {
        match self.reservation {
            _ if self.bytes.is_empty() => Bytes::new(),
            None => self.bytes.into(),
            Some(reservation) => Bytes::from_owner(ReservedBytes { bytes: self.bytes, _reservation: reservation }),
        }
    }
}

/// Bytes with their reservation.
struct ReservedBytes {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body of at most `limit` bytes to its end. The caller limits the time.
pub async fn collect<B>(mut body: B, limit: usize) -> Result<BodyBuffer, FillError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(FillError::Full(BufferFull::Limit, Bytes::new()));
    }
    let mut buffer = BodyBuffer::new(limit);
    buffer.fill(&mut body).await?;
    Ok(buffer)
}

/// Initial capacity for a body of unknown length, in bytes.
const SMALLEST: usize = 1024;

#[cfg(test)]
mod tests;
