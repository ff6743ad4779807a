//! The one way to hold a body in memory: its bytes are copied together, and what is counted against a bound is the memory that is
//! taken for them.
//!
//! A frame of a body is a view into the buffer that its connection read into. Who keeps frames keeps those buffers: one byte, sent
//! by itself, would keep 8 KiB or more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;

/// Memory that buffers of many requests may take together, in bytes. Clones share it.
#[derive(Debug, Clone)]
pub struct BufferBudget(Arc<AtomicUsize>);

impl BufferBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// An empty buffer for at most `limit` bytes, which takes its memory from this budget.
    pub fn buffer(&self, limit: usize) -> BodyBuffer {
        BodyBuffer { reservation: Some(Reservation { budget: self.clone(), bytes: 0 }), ..BodyBuffer::new(limit) }
    }

    /// The rest of it, in bytes.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A part of a budget, given back when it is dropped.
#[derive(Debug)]
struct Reservation {
    budget: BufferBudget,
    bytes: usize,
}

impl Reservation {
    /// Has at least so many bytes of the budget; false if they are not left.
    fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let left = &self.budget.0;
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(more));
        self.bytes += if taken.is_ok() { more } else { 0 };
        taken.is_ok()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// A body, or its beginning, in one block of memory.
#[derive(Default)]
pub struct BodyBuffer {
    bytes: Vec<u8>,
    limit: usize,
    /// The length of the whole body, where it is known: no more memory than that is taken.
    expected: Option<usize>,
    reservation: Option<Reservation>,
}

impl std::fmt::Debug for BodyBuffer {
    /// Without the bytes, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyBuffer")
            .field("bytes", &self.bytes.len())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// The reason that a buffer does not take more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BufferFull {
    /// The body is larger than the buffer's limit.
    #[error("the body is too large to be held")]
    Limit,
    /// Other bodies have taken the memory that there is for all.
    #[error("there is no memory left to hold the body")]
    Budget,
}

/// The reason that a body is not held as a whole.
#[derive(Debug, thiserror::Error)]
pub enum FillError<E> {
    /// The buffer is full. This piece is no longer in the body and not in the buffer.
    #[error("{0}")]
    Full(BufferFull, Bytes),
    /// The body broke off.
    #[error("the body broke off")]
    Broken(E),
}

impl BodyBuffer {
    /// An empty buffer for at most `limit` bytes, which is counted against no budget.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, expected: None, reservation: None }
    }

    /// Copies a piece into it.
    ///
    /// # Errors
    /// It would take more memory than it may; nothing of the piece was taken.
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

    /// Doubles the memory, but takes no more than the whole body can need.
    fn grow(&mut self, needed: usize) -> Result<(), BufferFull> {
        let most = self.expected.unwrap_or(self.limit).min(self.limit);
        let wanted = self.bytes.capacity().saturating_mul(2).max(SMALLEST).min(most).max(needed);
        let mut granted = |bytes| self.reservation.as_mut().is_none_or(|reservation| reservation.grow_to(bytes));
        let wanted = match granted(wanted) {
            true => wanted,
            false if granted(needed) => needed,
            false => return Err(BufferFull::Budget),
        };
        self.bytes.reserve_exact(wanted - self.bytes.len());
        Ok(())
    }

    /// Copies a body into it, to the body's end. Trailers are left out.
    ///
    /// # Errors
    /// The body is larger than what may be held, or broke off. What came before stays in the buffer.
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

    /// Takes no more memory than this body needs, where its length is known.
    pub fn expect(&mut self, body: &impl Body) {
        self.expected = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    }

    /// The bytes that came.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes that came. Their part of a budget is given back once the last clone is dropped.
    pub fn into_bytes(self) -> Bytes {
        match self.reservation {
            _ if self.bytes.is_empty() => Bytes::new(),
            None => self.bytes.into(),
            Some(reservation) => Bytes::from_owner(Counted { bytes: self.bytes, _reservation: reservation }),
        }
    }
}

/// The bytes of a buffer, and what they take of its budget.
struct Counted {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body of at most `limit` bytes to its end. The time that it takes is for the caller to bound.
///
/// # Errors
/// It is larger, or broke off.
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

/// The memory that a buffer begins with where its body's length is not known, in bytes.
const SMALLEST: usize = 1024;

#[cfg(test)]
mod tests;
