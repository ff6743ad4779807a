//! The way to one server for many keepers: a few calls at once while it answers, and one at a time, with back-off, while it does
//! not. However many secrets are kept, an outage is no more than one caller who tries again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::backoff::{Backoff, random_unit};
use crate::clock::{Clock, ClockReading};

/// Lets calls through. Clones share it.
#[derive(Debug, Clone)]
pub struct CircuitBreaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    room: Semaphore,
    probe: tokio::sync::Mutex<()>,
    closed: Mutex<Option<Closed>>,
}

/// Since the server did not answer.
#[derive(Debug, Clone, Copy)]
struct Closed {
    backoff: Backoff,
    until: ClockReading,
}

/// The right to make one call.
#[derive(Debug)]
pub struct Permit<'a> {
    circuit_breaker: &'a CircuitBreaker,
    _room: Option<SemaphorePermit<'a>>,
    /// Held while the gate is closed: nobody else calls.
    _alone: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl CircuitBreaker {
    /// An open gate.
    pub fn new(clock: Clock) -> Self {
        let (room, probe) = (Semaphore::new(AT_ONCE), tokio::sync::Mutex::new(()));
        Self(Arc::new(Inner { clock, room, probe, closed: Mutex::new(None) }))
    }

    /// Waits for a turn, and while the server does not answer, for the time to try again.
    pub async fn enter(&self) -> Permit<'_> {
        // It is never closed.
        let room = self.0.room.acquire().await.ok();
        let mut alone = None;
        if self.closed().is_some() {
            let turn = self.0.probe.lock().await;
            // Who was before may have found it open.
            let until = self.closed().map(|closed| closed.until);
            if let Some(until) = until {
                self.0.clock.sleep_until(until).await;
                alone = Some(turn);
            }
        }
        Permit { circuit_breaker: self, _room: room, _alone: alone }
    }

    fn closed(&self) -> MutexGuard<'_, Option<Closed>> {
        self.0.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Gives the turn on, and says whether the server answered.
    pub fn leave(self, answered: bool) {
        let now = self.circuit_breaker.0.clock.now();
        let mut closed = self.circuit_breaker.closed();
        if answered {
            *closed = None;
            return;
        }
        // Calls that were under way together fail together, which is one failure.
        if closed.is_some_and(|closed| !now.until(closed.until).is_zero()) {
            return;
        }
        let mut backoff = closed.map_or(Backoff::UPSTREAM, |closed| closed.backoff);
        *closed = Some(Closed { until: now + backoff.next(random_unit()), backoff });
    }
}

/// Calls at once.
const AT_ONCE: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, SystemTime};

    use tokio::task::JoinSet;

    use super::*;
    use crate::clock::TestClock;

    #[tokio::test(start_paused = true)]
    async fn a_hundred_callers_of_a_dead_server_are_one_who_tries_again() {
        let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH));
        let (circuit_breaker, calls) = (CircuitBreaker::new(clock.clone()), Arc::new(AtomicU64::new(0)));
        let mut callers = JoinSet::new();
        for _ in 0..100 {
            let (circuit_breaker, calls) = (circuit_breaker.clone(), Arc::clone(&calls));
            callers.spawn(async move {
                loop {
                    let pass = circuit_breaker.enter().await;
                    calls.fetch_add(1, Ordering::Relaxed);
                    pass.leave(false);
                }
            });
        }
        clock.sleep(Duration::from_hours(1)).await;
        let made = calls.load(Ordering::Relaxed);
        assert!((12..=100).contains(&made), "{made} calls in an hour");
        callers.shutdown().await;
        circuit_breaker.enter().await.leave(true);
        let start = clock.now();
        for _ in 0..100 {
            circuit_breaker.enter().await.leave(true);
        }
        assert_eq!(clock.now().since(start), Duration::ZERO, "an open gate holds nobody up");
    }
}
