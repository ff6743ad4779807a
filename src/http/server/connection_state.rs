//! Tracks the phase of one connection and its time limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ListenerLimits;

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
    waker: Mutex<Option<Waker>>,
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

    /// Records that a part of a head was received.
    pub(super) fn record_bytes(&self) {
        let word = self.word.load(Ordering::Relaxed);
        match decode(word).0 {
            // Keeps the stamp: the time for the head includes the wait for its first byte.
            Phase::Fresh => self.word.store(word | Phase::Head as u64, Ordering::Relaxed),
            Phase::Idle => self.word.store(Phase::Head as u64, Ordering::Relaxed),
            Phase::Head | Phase::Busy => {}
        }
    }

    /// Records a complete head.
    pub(super) fn begin_request(&self) {
        self.word.store(Phase::Busy as u64, Ordering::Relaxed);
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
