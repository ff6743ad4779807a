//! What one connection waits for, and since when.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::ListenerLimits;
use super::framing::Framing;

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
pub(super) struct ConnectionState {
    epoch: Instant,
    /// Connections accepted and answers given by the listener so far, which puts connections in order.
    turns: Arc<AtomicU64>,
    /// Its own place in that order: when it was accepted or answered last.
    turn: AtomicU64,
    /// The phase in the two lowest bits, above them a stamp: of an idle connection its turn, of one whose head is
    /// awaited the milliseconds since `epoch` plus one, zero before its task has gone to sleep.
    word: AtomicU64,
    /// When a write first found no room, in milliseconds since `epoch` plus one; 0 if none waits.
    stalled: AtomicU64,
    closing: AtomicBool,
    /// Whether one more request is awaited before it closes.
    lingers: AtomicBool,
    /// Framing by the last head that was scanned, as a number; 0 once that was taken.
    framing: AtomicU8,
    /// The last request had a body: its caller may still be sending.
    sends: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// The part of a request that received bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// A head begins with them.
    Begin,
    /// They belong to the head that has begun.
    Head,
    /// A body's, or what the caller says ahead of its turn.
    Body,
}

impl ConnectionState {
    pub(super) fn new(epoch: Instant, turns: Arc<AtomicU64>) -> Self {
        let connection = Self {
            epoch,
            turn: AtomicU64::new(turns.fetch_add(1, Ordering::Relaxed) + 1),
            turns,
            word: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            framing: AtomicU8::new(0),
            sends: AtomicBool::new(false),
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

    /// Bytes have come. Says what they are.
    pub(super) fn record_bytes(&self) -> Received {
        let word = self.word.load(Ordering::Relaxed);
        match decode(word).0 {
            // From the first byte awaited on.
            Phase::Fresh => self.word.store(word | Phase::Head as u64, Ordering::Relaxed),
            Phase::Idle => self.word.store(Phase::Head as u64, Ordering::Relaxed),
            Phase::Head => return Received::Head,
            Phase::Busy => return Received::Body,
        }
        Received::Begin
    }

    /// A head was looked at.
    pub(super) fn record_framing(&self, framing: Framing) {
        let word = match framing {
            Framing::Plain => 1,
            Framing::Both => 2,
        };
        self.framing.store(word, Ordering::Relaxed);
    }

    /// Framing of the request that has come; `None` where its head came behind another request in one read and was not
    /// scanned.
    pub(super) fn take_framing(&self) -> Option<Framing> {
        match self.framing.swap(0, Ordering::Relaxed) {
            0 => None,
            1 => Some(Framing::Plain),
            _ => Some(Framing::Both),
        }
    }

    /// A request's head is whole.
    pub(super) fn begin_request(&self, has_body: bool) {
        self.sends.store(has_body, Ordering::Relaxed);
        self.word.store(Phase::Busy as u64, Ordering::Relaxed);
    }

    /// True if its caller may still be sending when all was said to it.
    pub(super) fn may_still_send(&self) -> bool {
        self.sends.load(Ordering::Relaxed) || self.phase().0 == Phase::Head
    }

    /// Its place in the listener's order of accepts and answers.
    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// True while no request is being received or answered on it.
    pub(super) fn is_evictable(&self) -> bool {
        let (phase, stamp) = self.phase();
        phase != Phase::Busy && stamp != 0
    }

    /// The answer is with the connection.
    pub(super) fn finish_response(&self) {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        self.turn.store(turn, Ordering::Relaxed);
        self.word.store((turn << 2) | Phase::Idle as u64, Ordering::Relaxed);
    }

    /// The task goes to sleep. Whether it has begun to wait for the rest of a head, which a sweep must know soon.
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

    /// Whether the listener stops and this connection is to end after the request in flight.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn set_waker(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }

    /// Whether it is to end at once where no request is in flight.
    pub(super) fn should_close_now(&self) -> bool {
        let awaits_one = match self.phase().0 {
            Phase::Fresh => true,
            Phase::Idle => self.lingers.load(Ordering::Acquire),
            Phase::Head | Phase::Busy => false,
        };
        self.is_closing() && !awaits_one
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
    pub(super) fn deadline(&self, limits: &ListenerLimits, seen: u64) -> Option<u64> {
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
mod tests;
