//! A circuit breaker that many renewers share: a few calls at once while the server responds, one at a time with backoff
//! while it does not (the half-open state). During an outage, any number of secrets makes as many calls as one.
//!
//! A failure says nothing about another mount, and one secret's failure nothing about the others of its mount: each part of
//! the server has a state of its own, and its first failure holds up only the secret that failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_credentials::token_bucket::TokenBucket;
use keyward_machine::clock::{Clock, ClockReading};

/// Limits the calls to one server. Clones share the state.
#[derive(Debug, Clone)]
pub struct CircuitBreaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    slots: Semaphore,
    /// Parts of the server, by the first two segments of their paths.
    parts: Mutex<BTreeMap<String, Part>>,
    /// Bounds the calls to failing parts, however many there are.
    attempts: Mutex<TokenBucket>,
}

/// Part of a server, such as a mount.
#[derive(Debug, Clone)]
struct Part {
    slots: Arc<Semaphore>,
    /// Held by the one caller that tries while the part fails.
    half_open_permit: Arc<tokio::sync::Mutex<()>>,
    /// `Some` while it fails.
    outage: Option<OpenState>,
}

/// State since a part stopped responding.
#[derive(Debug, Clone)]
struct OpenState {
    backoff: Backoff,
    retry_at: ClockReading,
    /// The only path that has failed. The first failure of another one shows that it is not that secret's own.
    only: Option<String>,
}

impl Part {
    fn new() -> Self {
        let slots = Arc::new(Semaphore::new(MAX_CALLS_OF_PART));
        Self { slots, half_open_permit: Arc::default(), outage: None }
    }

    /// Returns the time of the next attempt of a path that the outage holds up.
    fn retry_at(&self, path: &str) -> Option<ClockReading> {
        let outage = self.outage.as_ref()?;
        outage.only.as_ref().is_none_or(|only| only == path).then_some(outage.retry_at)
    }
}

/// Permission for one call; report its outcome with [`Permit::record`].
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    breaker: &'a CircuitBreaker,
    path: String,
    _slots: (Option<OwnedSemaphorePermit>, Option<SemaphorePermit<'a>>),
    /// Held while the breaker is half-open, so that no other task calls this part.
    _half_open: Option<OwnedMutexGuard<()>>,
}

impl CircuitBreaker {
    /// Creates a closed breaker.
    pub(crate) fn new(clock: Clock) -> Self {
        let slots = Semaphore::new(MAX_CALLS);
        let attempts = Mutex::new(ATTEMPTS);
        Self(Arc::new(Inner { clock, slots, parts: Mutex::default(), attempts }))
    }

    /// Waits for a slot and, while the part of the server at `path` fails, for the time of the next attempt.
    pub(crate) async fn acquire(&self, path: &str) -> Permit<'_> {
        let part = self.0.parts.lock().entry(part_of(path)).or_insert_with(Part::new).clone();
        let mut half_open = None;
        if part.retry_at(path).is_some() {
            let guard = part.half_open_permit.lock_owned().await;
            // The previous attempt may have ended the outage.
            let retry_at = self.0.parts.lock().get(&part_of(path)).and_then(|part| part.retry_at(path));
            if let Some(retry_at) = retry_at {
                self.0.clock.sleep_until(retry_at).await;
                self.take_attempt().await;
                half_open = Some(guard);
            }
        }
        // After the wait for the attempt: whoever waits must not hold what the others need. Semaphores are never closed.
        let part_slot = part.slots.acquire_owned().await.ok();
        let slots = (part_slot, self.0.slots.acquire().await.ok());
        Permit { breaker: self, path: path.to_owned(), _slots: slots, _half_open: half_open }
    }

    async fn take_attempt(&self) {
        let try_take = || self.0.attempts.lock().try_take(self.0.clock.now());
        while let Err(wait) = try_take() {
            self.0.clock.sleep(wait).await;
        }
    }
}

impl Permit<'_> {
    /// Records whether the server responded, and ends the permission.
    pub(crate) fn record(self, responded: bool) {
        let now = self.breaker.0.clock.now();
        let mut parts = self.breaker.0.parts.lock();
        let outage = &mut parts.entry(part_of(&self.path)).or_insert_with(Part::new).outage;
        if responded {
            *outage = None;
            return;
        }
        let only = match outage {
            None => Some(self.path.clone()),
            Some(outage) => outage.only.take().filter(|only| *only == self.path),
        };
        match outage {
            // Calls under way at once fail at once, which is one failure.
            Some(outage) if !now.until(outage.retry_at).is_zero() => outage.only = only,
            _ => {
                let mut backoff = outage.as_ref().map_or(Backoff::UPSTREAM, |outage| outage.backoff);
                *outage = Some(OpenState { retry_at: now + backoff.next(random_unit()), backoff, only });
            }
        }
    }
}

/// Returns the part of the server that a path belongs to: mostly a mount, and its kind of request.
fn part_of(path: &str) -> String {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    path.split('/').take(2).collect::<Vec<_>>().join("/")
}

/// Bounds the calls at once.
const MAX_CALLS: usize = 8;

/// Bounds the calls at once to one part: if it hangs, the others still have slots.
const MAX_CALLS_OF_PART: usize = 4;

/// Calls to failing parts: at most 124 in the first hour.
const ATTEMPTS: TokenBucket = TokenBucket::full(64, Duration::from_mins(1));

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::SystemTime;

    use keyward_machine::clock::TestClock;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hundred_callers_make_as_many_calls_to_a_dead_server_as_one() {
        let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH));
        let breaker = CircuitBreaker::new(clock.clone());
        let calls = Arc::new(AtomicU64::new(0));
        let mut callers = JoinSet::new();
        for number in 0..100 {
            let breaker = breaker.clone();
            let calls = Arc::clone(&calls);
            callers.spawn(async move {
                loop {
                    let permit = breaker.acquire(&format!("secret/data/{number}")).await;
                    calls.fetch_add(1, Ordering::Relaxed);
                    permit.record(false);
                }
            });
        }
        clock.sleep(Duration::from_hours(1)).await;
        let call_count = calls.load(Ordering::Relaxed);
        assert!((12..=100).contains(&call_count), "{call_count} calls in an hour");
        callers.shutdown().await;
        breaker.acquire("secret/data/app").await.record(true);
        let start = clock.now();
        for _ in 0..100 {
            breaker.acquire("secret/data/app").await.record(true);
        }
        assert_eq!(clock.now().since(start), Duration::ZERO, "a closed breaker delays no call");
    }

    fn breaker() -> (CircuitBreaker, Clock) {
        let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH));
        (CircuitBreaker::new(clock.clone()), clock)
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_mount_or_secret_holds_up_no_other() {
        let (breaker, clock) = breaker();
        let fail = |path: &'static str| {
            let breaker = breaker.clone();
            async move { breaker.acquire(path).await.record(false) }
        };
        for _ in 0..8 {
            fail("database/creds/app").await;
        }
        let start = clock.now();
        breaker.acquire("secret/data/app").await.record(true);
        breaker.acquire("database/creds/other").await.record(true);
        assert_eq!(clock.now().since(start), Duration::ZERO, "one failing secret");
        for _ in 0..8 {
            fail("database/creds/app").await;
            fail("database/creds/other").await;
        }
        let start = clock.now();
        breaker.acquire("secret/data/app").await.record(true);
        assert_eq!(clock.now().since(start), Duration::ZERO, "one failing mount");
        breaker.acquire("database/creds/third").await.record(true);
        assert!(clock.now().since(start) > Duration::ZERO, "the others of that mount wait");
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_wait_or_hang_leave_slots_to_the_others() {
        let (breaker, clock) = breaker();
        let mut hanging = JoinSet::new();
        for number in 0..20 {
            let breaker = breaker.clone();
            hanging.spawn(async move {
                let permit = breaker.acquire(&format!("database/creds/{number}")).await;
                std::future::pending::<()>().await;
                permit.record(false);
            });
        }
        clock.sleep(Duration::from_secs(1)).await;
        let start = clock.now();
        breaker.acquire("secret/data/app").await.record(true);
        assert_eq!(clock.now().since(start), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn many_failing_mounts_share_the_attempts() {
        let (breaker, clock) = breaker();
        let calls = Arc::new(AtomicU64::new(0));
        let mut callers = JoinSet::new();
        for number in 0..40 {
            let breaker = breaker.clone();
            let calls = Arc::clone(&calls);
            callers.spawn(async move {
                loop {
                    breaker.acquire(&format!("mount{number}/creds/app")).await.record(false);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        clock.sleep(Duration::from_hours(1)).await;
        let call_count = calls.load(Ordering::Relaxed);
        assert!(call_count <= 40 + 64 + 60, "{call_count} calls in an hour");
    }
}
