//! What one connection waits for, and since when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The first byte.
    Fresh,
    /// The rest of a request's head.
    Head,
    /// Us: a request is being answered.
    Busy,
    /// The next request.
    Idle,
}

/// One connection's state, written by its task and read by the sweep. A phase is stamped with its time only when the
/// task goes to sleep in it: requests that come one after another cost no reading of a clock but one.
#[derive(Debug)]
pub(super) struct Connection {
    epoch: Instant,
    /// The phase in the two lowest bits, above them the milliseconds since `epoch` plus one; none if not stamped.
    word: AtomicU64,
    /// When a write first found no room, in milliseconds since `epoch` plus one; 0 if none waits.
    stalled: AtomicU64,
    closing: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Connection {
    pub(super) fn new(epoch: Instant) -> Self {
        let connection = Self {
            epoch,
            word: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            waker: Mutex::new(None),
        };
        connection.word.store(connection.now() << 2, Ordering::Relaxed);
        connection
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX >> 2) + 1
    }

    /// The phase, and since when in milliseconds since the epoch plus one; zero if not stamped.
    pub(super) fn phase(&self) -> (Phase, u64) {
        decode(self.word.load(Ordering::Relaxed))
    }

    /// Bytes have come.
    pub(super) fn received(&self) {
        let word = self.word.load(Ordering::Relaxed);
        match decode(word).0 {
            // From the first byte awaited on.
            Phase::Fresh => self.word.store(word | Phase::Head as u64, Ordering::Relaxed),
            Phase::Idle => self.word.store(Phase::Head as u64, Ordering::Relaxed),
            Phase::Head | Phase::Busy => {}
        }
    }

    /// A request's head is whole.
    pub(super) fn busy(&self) {
        self.word.store(Phase::Busy as u64, Ordering::Relaxed);
    }

    /// The answer is with the connection.
    pub(super) fn answered(&self) {
        self.word.store(Phase::Idle as u64, Ordering::Relaxed);
    }

    /// The task goes to sleep. Whether it entered a phase since it last did that has a time-out.
    pub(super) fn pause(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let stamp = word >> 2 == 0 && decode(word).0 != Phase::Busy;
        if stamp {
            self.word.store(word | (self.now() << 2), Ordering::Relaxed);
        }
        stamp && decode(word).0 == Phase::Head
    }

    pub(super) fn write_waits(&self) {
        if self.stalled.load(Ordering::Relaxed) == 0 {
            self.stalled.store(self.now(), Ordering::Relaxed);
        }
    }

    pub(super) fn write_went_on(&self) {
        if self.stalled.load(Ordering::Relaxed) != 0 {
            self.stalled.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the listener stops and this connection is to end after the request in flight.
    pub(super) fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn wake_with(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// When its time is over, in milliseconds since the epoch plus one; `None` while nothing runs out.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<u64> {
        let stalled = self.stalled.load(Ordering::Relaxed);
        let by_write = (stalled != 0).then(|| stalled.saturating_add(millis(limits.write_timeout)));
        let (phase, since) = self.phase();
        let limit = match phase {
            Phase::Fresh if limits.tls.is_some() => limits.header_timeout,
            Phase::Fresh => limits.first_byte_timeout,
            Phase::Head => limits.header_timeout,
            Phase::Idle => limits.idle_timeout,
            Phase::Busy => return by_write,
        };
        let by_phase = (since != 0).then(|| since.saturating_add(millis(limit)));
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
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_end() {
        let limits = Limits::default();
        let connection = Connection::new(Instant::now());
        let left = |connection: &Connection| connection.deadline(&limits).map(|end| end - connection.now());
        assert_eq!(left(&connection), Some(2000));
        tokio::time::advance(Duration::from_secs(1)).await;
        connection.received();
        assert_eq!(left(&connection), Some(4000), "a head's time counts from the start of a fresh connection");
        assert!(!connection.pause());
        connection.busy();
        assert!(!connection.pause());
        assert_eq!(left(&connection), None);
        connection.answered();
        assert_eq!(left(&connection), None, "not stamped before the task sleeps");
        assert!(!connection.pause());
        assert_eq!(left(&connection), Some(60_000));
        tokio::time::advance(Duration::from_secs(50)).await;
        connection.received();
        assert!(connection.pause(), "a head that comes in pieces asks for a sweep");
        assert_eq!(left(&connection), Some(5000));
        connection.busy();
        connection.write_waits();
        assert_eq!(left(&connection), Some(30_000));
        connection.write_went_on();
        assert_eq!(left(&connection), None);
    }
}
