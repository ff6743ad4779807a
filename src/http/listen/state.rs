//! What one connection waits for, and since when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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

/// One connection's state, written by its task and read by the sweep. A request costs no reading of a clock: that a
/// connection is idle, and since when, is for the sweep to see.
#[derive(Debug)]
pub(super) struct Connection {
    epoch: Instant,
    /// Answers given by the listener so far, which puts idle connections in order.
    turns: Arc<AtomicU64>,
    /// The phase in the two lowest bits, above them a stamp: of an idle connection its turn, of one whose head is
    /// awaited the milliseconds since `epoch` plus one, zero before its task has gone to sleep.
    word: AtomicU64,
    /// When a write first found no room, in milliseconds since `epoch` plus one; 0 if none waits.
    stalled: AtomicU64,
    closing: AtomicBool,
    /// Whether one more request is awaited before it closes.
    lingers: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Connection {
    pub(super) fn new(epoch: Instant, turns: Arc<AtomicU64>) -> Self {
        let connection = Self {
            epoch,
            turns,
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

    /// The phase and its stamp.
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
        let turn = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        self.word.store((turn << 2) | Phase::Idle as u64, Ordering::Relaxed);
    }

    /// The task goes to sleep. Whether it has begun to wait for the rest of a head, which a sweep must know soon.
    pub(super) fn pause(&self) -> bool {
        let begun = self.phase() == (Phase::Head, 0);
        if begun {
            self.word.store((self.now() << 2) | Phase::Head as u64, Ordering::Relaxed);
        }
        begun
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

    /// Whether it is to end at once where no request is in flight.
    pub(super) fn closes_now(&self) -> bool {
        let awaits_one = match self.phase().0 {
            Phase::Fresh => true,
            Phase::Idle => self.lingers.load(Ordering::Acquire),
            Phase::Head | Phase::Busy => false,
        };
        self.closing() && !awaits_one
    }

    /// It is to end after the request in flight, or after the next one.
    pub(super) fn linger(&self) {
        self.lingers.store(true, Ordering::Release);
        self.closing.store(true, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.lingers.store(false, Ordering::Release);
        self.closing.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// When its time is over, in milliseconds since the epoch plus one; `None` while nothing runs out. `seen` is when
    /// the sweep saw this phase and stamp first.
    pub(super) fn deadline(&self, limits: &Limits, seen: u64) -> Option<u64> {
        let stalled = self.stalled.load(Ordering::Relaxed);
        let by_write = (stalled != 0).then(|| stalled.saturating_add(millis(limits.write_timeout)));
        let by_phase = match self.phase() {
            (Phase::Fresh, since) if limits.tls.is_some() => Some((since, limits.header_timeout)),
            (Phase::Fresh, since) => Some((since, limits.first_byte_timeout)),
            (Phase::Head, since) => (since != 0).then_some((since, limits.header_timeout)),
            (Phase::Idle, _) => Some((seen, limits.idle_timeout)),
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
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_end() {
        let limits = Limits::default();
        let connection = Connection::new(Instant::now(), Arc::default());
        let left =
            |connection: &Connection| connection.deadline(&limits, connection.now()).map(|end| end - connection.now());
        assert_eq!(left(&connection), Some(2000));
        tokio::time::advance(Duration::from_secs(1)).await;
        connection.received();
        assert_eq!(left(&connection), Some(4000), "a head's time counts from the start of a fresh connection");
        assert!(!connection.pause());
        connection.busy();
        assert!(!connection.pause());
        assert_eq!(left(&connection), None);
        connection.answered();
        assert_eq!(connection.phase(), (Phase::Idle, 1), "the listener's first answer");
        assert!(!connection.pause());
        assert_eq!(left(&connection), Some(60_000), "from when the sweep sees it");
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
