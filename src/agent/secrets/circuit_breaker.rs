//! A circuit breaker that many renewers share: a few calls at once while the server responds, one at a time with backoff
//! while it does not (the half-open state). During an outage, any number of secrets makes as many calls as one.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_machine::clock::{Clock, ClockReading};

/// Limits the calls to one server. Clones share the state.
#[derive(Debug, Clone)]
pub struct CircuitBreaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    slots: Semaphore,
    /// Held by the one caller that tries while the breaker is half-open.
    half_open_permit: tokio::sync::Mutex<()>,
    /// `Some` while the breaker is open.
    outage: Mutex<Option<OpenState>>,
}

/// State since the server stopped responding.
#[derive(Debug, Clone, Copy)]
struct OpenState {
    backoff: Backoff,
    retry_at: ClockReading,
}

/// Permission for one call; report its outcome with [`Permit::record`].
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    breaker: &'a CircuitBreaker,
    _slot: Option<SemaphorePermit<'a>>,
    /// Held while the breaker is half-open, so that no other task calls.
    _half_open: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl CircuitBreaker {
    /// Creates a closed breaker.
    pub(crate) fn new(clock: Clock) -> Self {
        let slots = Semaphore::new(MAX_CALLS);
        let half_open_permit = tokio::sync::Mutex::new(());
        Self(Arc::new(Inner { clock, slots, half_open_permit, outage: Mutex::new(None) }))
    }

    /// Waits for a slot and, while the breaker is open, for the time of the next attempt.
    pub(crate) async fn acquire(&self) -> Permit<'_> {
        // The semaphore is never closed.
        let slot = self.0.slots.acquire().await.ok();
        let mut half_open = None;
        if self.0.outage.lock().is_some() {
            let guard = self.0.half_open_permit.lock().await;
            // The previous attempt may have ended the outage.
            let retry_at = self.0.outage.lock().map(|outage| outage.retry_at);
            if let Some(retry_at) = retry_at {
                self.0.clock.sleep_until(retry_at).await;
                half_open = Some(guard);
            }
        }
        Permit { breaker: self, _slot: slot, _half_open: half_open }
    }
}

impl Permit<'_> {
    /// Records whether the server responded, and ends the permission.
    pub(crate) fn record(self, responded: bool) {
        let now = self.breaker.0.clock.now();
        let mut outage = self.breaker.0.outage.lock();
        if responded {
            *outage = None;
            return;
        }
        // Calls under way at once fail at once, which is one failure.
        if outage.is_some_and(|outage| !now.until(outage.retry_at).is_zero()) {
            return;
        }
        let mut backoff = outage.map_or(Backoff::UPSTREAM, |outage| outage.backoff);
        *outage = Some(OpenState { retry_at: now + backoff.next(random_unit()), backoff });
    }
}

/// Bounds the calls at once.
const MAX_CALLS: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, SystemTime};

    use keyward_machine::clock::TestClock;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hundred_callers_make_as_many_calls_to_a_dead_server_as_one() {
        let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH));
        let breaker = CircuitBreaker::new(clock.clone());
        let calls = Arc::new(AtomicU64::new(0));
        let mut callers = JoinSet::new();
        for _ in 0..100 {
            let breaker = breaker.clone();
            let calls = Arc::clone(&calls);
            callers.spawn(async move {
                loop {
                    let permit = breaker.acquire().await;
                    calls.fetch_add(1, Ordering::Relaxed);
                    permit.record(false);
                }
            });
        }
        clock.sleep(Duration::from_hours(1)).await;
        let call_count = calls.load(Ordering::Relaxed);
        assert!((12..=100).contains(&call_count), "{call_count} calls in an hour");
        callers.shutdown().await;
        breaker.acquire().await.record(true);
        let start = clock.now();
        for _ in 0..100 {
            breaker.acquire().await.record(true);
        }
        assert_eq!(clock.now().since(start), Duration::ZERO, "a closed breaker delays no call");
    }
}
