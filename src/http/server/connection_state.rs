//! Tracks the phase of one connection and its time limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ListenerLimits;
use super::framing::Framing;

/// Phase of a connection: the event that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the first byte.
    Fresh,
    /// Waits for the rest of a request's head.
    Head,
    /// A request is being served.
    Busy,
    /// Waits for the next request.
    Idle,
}

/// State of one connection, written by its task and read by the sweep. A request costs no clock read: the sweep finds
/// out that a connection is idle, and since when.
#[derive(Debug)]
pub(super) struct ConnectionState {
    epoch: Instant,
    /// Counter of the listener's accepts and responses, which orders connections by their last use.
    use_counter: Arc<AtomicU64>,
    /// Position of this connection in that order.
    last_use: AtomicU64,
    /// The phase in the two lowest bits, above them a stamp: for an idle connection its turn; for one that waits for a
    /// head the milliseconds since `epoch` plus one, zero until its task first sleeps.
    word: AtomicU64,
    /// Time when a write first blocked, in milliseconds since `epoch` plus one; 0 if none is blocked.
    stalled: AtomicU64,
    closing: AtomicBool,
    /// One more request is served before the connection closes.
    lingers: AtomicBool,
    /// Framing of the last scanned head, as a number; 0 once it was taken.
    framing: AtomicU8,
    /// Length of the last request's body by its head; [`CHUNKED`] if the head does not announce it.
    body_length: AtomicU64,
    /// Number of bytes that were received after that head, and the last four of them.
    body_received: AtomicU64,
    body_tail: AtomicU32,
    /// The head was scanned, so that the bytes after it are counted.
    body_counted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Part of a request that received bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceivedPart {
    /// The beginning of a head.
    Begin,
    /// A head that may have begun in one read with the request before it.
    BegunHead,
    /// The rest of a head.
    Head,
    /// A body, or a pipelined request.
    Body,
}

impl ConnectionState {
    pub(super) fn new(epoch: Instant, use_counter: Arc<AtomicU64>) -> Self {
        let connection = Self {
            epoch,
            last_use: AtomicU64::new(use_counter.fetch_add(1, Ordering::Relaxed) + 1),
            use_counter,
            word: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            framing: AtomicU8::new(0),
            body_length: AtomicU64::new(0),
            body_received: AtomicU64::new(0),
            body_tail: AtomicU32::new(0),
            body_counted: AtomicBool::new(false),
            waker: Mutex::new(None),
        };
        connection.word.store(connection.now() << 2, Ordering::Relaxed);
        connection
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX >> 2) + 1
    }

    /// Returns the phase and its stamp.
    pub(super) fn phase(&self) -> (Phase, u64) {
        decode(self.word.load(Ordering::Relaxed))
    }

    /// Records received bytes and returns the part of a request that they belong to.
    pub(super) fn record_bytes(&self) -> ReceivedPart {
        let word = self.word.load(Ordering::Relaxed);
        match decode(word).0 {
            // Keeps the stamp: the time for the head includes the wait for its first byte.
            Phase::Fresh => {
                self.word.store(word | Phase::Head as u64, Ordering::Relaxed);
                ReceivedPart::Begin
            }
            Phase::Idle => {
                self.word.store(Phase::Head as u64, Ordering::Relaxed);
                if self.ends_with_body() { ReceivedPart::Begin } else { ReceivedPart::BegunHead }
            }
            Phase::Head => ReceivedPart::Head,
            Phase::Busy => ReceivedPart::Body,
        }
    }

    /// Returns true if the received bytes end with the body of the last request.
    fn ends_with_body(&self) -> bool {
        let ends = match self.body_length.load(Ordering::Relaxed) {
            CHUNKED => self.body_tail.load(Ordering::Relaxed) == END_OF_CHUNKS,
            length => self.body_received.load(Ordering::Relaxed) == length,
        };
        ends && self.body_counted.load(Ordering::Relaxed)
    }

    /// Records the framing of a scanned head, and the bytes that were received with its end.
    pub(super) fn record_framing(&self, framing: Framing, body: &[u8]) {
        self.body_received.store(0, Ordering::Relaxed);
        self.body_tail.store(0, Ordering::Relaxed);
        self.record_body(body);
        let word = match framing {
            Framing::Plain => 1,
            Framing::Both => 2,
        };
        self.framing.store(word, Ordering::Relaxed);
    }

    /// Records received bytes of a body.
    pub(super) fn record_body(&self, bytes: &[u8]) {
        let received = self.body_received.load(Ordering::Relaxed).saturating_add(bytes.len() as u64);
        self.body_received.store(received, Ordering::Relaxed);
        let last = bytes.len().saturating_sub(size_of::<u32>());
        let tail = bytes.iter().skip(last).copied().fold(self.body_tail.load(Ordering::Relaxed), push_byte);
        self.body_tail.store(tail, Ordering::Relaxed);
    }

    /// Takes the framing of the received request; `None` if its head arrived in one read with an earlier request and
    /// was not scanned.
    pub(super) fn take_framing(&self) -> Option<Framing> {
        match self.framing.swap(0, Ordering::Relaxed) {
            0 => None,
            1 => Some(Framing::Plain),
            _ => Some(Framing::Both),
        }
    }

    /// Records a complete head with the length of its body, `None` for a chunked one. `counted` says if the head was
    /// scanned.
    pub(super) fn begin_request(&self, body_length: Option<u64>, counted: bool) {
        self.body_length.store(body_length.unwrap_or(CHUNKED), Ordering::Relaxed);
        self.body_counted.store(counted, Ordering::Relaxed);
        self.word.store(Phase::Busy as u64, Ordering::Relaxed);
    }

    /// Returns true if the client may still be sending after the response.
    pub(super) fn may_still_send(&self) -> bool {
        self.body_length.load(Ordering::Relaxed) != 0 || self.phase().0 == Phase::Head
    }

    /// Returns false if a part of the request's body is known to be still on its way. A chunked body has come if the last
    /// bytes are those that end one.
    pub(super) fn has_body(&self) -> bool {
        let is_complete = match self.body_length.load(Ordering::Relaxed) {
            CHUNKED => self.body_tail.load(Ordering::Relaxed) == END_OF_CHUNKS,
            length => self.body_received.load(Ordering::Relaxed) >= length,
        };
        is_complete || !self.body_counted.load(Ordering::Relaxed)
    }

    /// Returns the position in the listener's order of accepts and responses.
    pub(super) fn last_use_order(&self) -> u64 {
        self.last_use.load(Ordering::Relaxed)
    }

    /// Returns true while no request is being received or served: the connection may be closed for another.
    pub(super) fn is_evictable(&self) -> bool {
        let (phase, stamp) = self.phase();
        phase != Phase::Busy && stamp != 0
    }

    /// Records the end of a response.
    pub(super) fn finish_response(&self) {
        let last_use = self.use_counter.fetch_add(1, Ordering::Relaxed) + 1;
        self.last_use.store(last_use, Ordering::Relaxed);
        self.word.store((last_use << 2) | Phase::Idle as u64, Ordering::Relaxed);
    }

    /// Records that the task goes to sleep. Returns true if it now waits for the rest of a head, for which the next
    /// sweep may be due sooner.
    pub(super) fn begin_wait(&self) -> bool {
        let begun = self.phase() == (Phase::Head, 0);
        if begun {
            self.word.store((self.now() << 2) | Phase::Head as u64, Ordering::Relaxed);
        }
        begun
    }

    pub(super) fn record_blocked_write(&self) {
        if self.stalled.load(Ordering::Relaxed) == 0 {
            self.stalled.store(self.now(), Ordering::Relaxed);
        }
    }

    pub(super) fn record_write(&self) {
        if self.stalled.load(Ordering::Relaxed) != 0 {
            self.stalled.store(0, Ordering::Relaxed);
        }
    }

    /// Returns true if the connection closes after the request in flight.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Returns true if the connection closes now, since it has no request in flight.
    pub(super) fn should_close_now(&self) -> bool {
        let awaits_one = match self.phase().0 {
            Phase::Fresh => true,
            Phase::Idle => self.lingers.load(Ordering::Acquire),
            Phase::Head | Phase::Busy => false,
        };
        self.is_closing() && !awaits_one
    }

    /// Closes the connection after the request in flight, or after the next one.
    pub(super) fn linger(&self) {
        self.lingers.store(true, Ordering::Release);
        self.closing.store(true, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.lingers.store(false, Ordering::Release);
        self.closing.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    /// Returns the deadline in milliseconds since the epoch plus one; `None` without one. `first_seen` is the time when
    /// the sweep first saw this phase and stamp.
    pub(super) fn deadline(&self, limits: &ListenerLimits, first_seen: u64) -> Option<u64> {
        let stalled = self.stalled.load(Ordering::Relaxed);
        let by_write = (stalled != 0).then(|| stalled.saturating_add(millis(limits.write_timeout)));
        let by_phase = match self.phase() {
            (Phase::Fresh, since) if limits.tls.is_some() => Some((since, limits.header_timeout)),
            (Phase::Fresh, since) => Some((since, limits.first_byte_timeout)),
            (Phase::Head, since) => (since != 0).then_some((since, limits.header_timeout)),
            (Phase::Idle, _) => Some((first_seen, limits.idle_timeout)),
            (Phase::Busy, _) => None,
        };
        let by_phase = by_phase.map(|(since, limit)| since.saturating_add(millis(limit)));
        by_write.into_iter().chain(by_phase).min()
    }
}

/// Length of a chunked body.
const CHUNKED: u64 = u64::MAX;

/// Last bytes of a chunked body, with or without trailers.
const END_OF_CHUNKS: u32 = u32::from_be_bytes(*b"\r\n\r\n");

const fn push_byte(tail: u32, byte: u8) -> u32 {
    (tail << u8::BITS) | byte as u32
}

const fn decode(word: u64) -> (Phase, u64) {
    let phase = match word & 3 {
        0 => Phase::Fresh,
        1 => Phase::Head,
        2 => Phase::Busy,
        _ => Phase::Idle,
    };
    (phase, word >> 2)
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
