//! One limit for all callers of one upstream: the platform counts requests by user, not by connection or token, so
//! callers that share a token share its limit.
//!
//! Unless it is configured, the limit is what the platform says in `X-RateLimit-RateLimit`. Requests over it wait for their
//! turn; where that is too far away they are refused with the time to wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many requests a second an upstream takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RateLimit {
    /// As its answers say; 30 before the first of them (the hosted platform's documented limit), none where they do not.
    #[default]
    FromServer,
    /// So many.
    PerSecond(u32),
    /// As many as come.
    None,
}

/// What a request counts toward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestClass {
    /// The limit a second.
    Other,
    /// A list of runs: 30 a minute besides (the platform's documentation).
    RunList,
}

/// Gives requests their turn.
#[derive(Debug)]
pub(super) struct RateLimiter {
    configured: RateLimit,
    schedule: Mutex<Schedule>,
}

#[derive(Debug)]
struct Schedule {
    /// So many a second; `None` for no limit.
    rate: Option<usize>,
    /// Whether the platform has told it.
    is_reported: bool,
    requests: SlidingWindow,
    run_lists: SlidingWindow,
    /// Nothing is sent before: the platform said so.
    paused_until: Option<Instant>,
}

/// When the last requests were, or will be, sent: as many as may be within one span.
#[derive(Debug, Default)]
struct SlidingWindow(VecDeque<Instant>);

impl SlidingWindow {
    /// Takes the next turn at which there are at most `max` within `span`.
    fn reserve(&mut self, max: usize, span: Duration, now: Instant, earliest: Instant) -> Result<Instant, Duration> {
        while self.0.len() > max || self.0.front().is_some_and(|sent| *sent + span <= now) {
            self.0.pop_front();
        }
        let full = self.0.len() >= max;
        let free = self.0.front().filter(|_| full).map_or(now, |sent| *sent + span);
        let at = free.max(earliest);
        if at > now + MAX_WAIT {
            return Err(at - now);
        }
        if full {
            self.0.pop_front();
        }
        self.0.push_back(at);
        Ok(at)
    }
}

/// Requests are counted where they arrive: the way there may draw a second's requests together by so much.
const SECOND: Duration = Duration::from_millis(1_100);
const MINUTE: Duration = Duration::from_millis(60_500);
const RUN_LISTS_PER_MINUTE: usize = 30;
const DEFAULT_RATE: usize = 30;

/// The longest wait for a turn.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The largest limit that is kept count of.
const MAX_RATE: usize = 10_000;

impl RateLimiter {
    pub(super) fn new(configured: RateLimit) -> Self {
        let rate = match configured {
            RateLimit::FromServer => Some(DEFAULT_RATE),
            RateLimit::PerSecond(rate) => Some(usize::try_from(rate).unwrap_or(MAX_RATE).clamp(1, MAX_RATE)),
            RateLimit::None => None,
        };
        let schedule = Schedule {
            rate,
            is_reported: false,
            requests: SlidingWindow::default(),
            run_lists: SlidingWindow::default(),
            paused_until: None,
        };
        Self { configured, schedule: Mutex::new(schedule) }
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a request's turn.
    ///
    /// # Errors
    /// It is too far away: how far.
    pub(super) async fn acquire(&self, class: RequestClass) -> Result<(), Duration> {
        if class == RequestClass::RunList {
            let now = Instant::now();
            let at = self.schedule().reserve_run_list(now)?;
            sleep(now, at).await;
        }
        let now = Instant::now();
        let at = self.schedule().reserve(now)?;
        sleep(now, at).await;
        Ok(())
    }

    /// What an answer says of the limit: `X-RateLimit-RateLimit`, where it has it. One without it says that there is none
    /// only while nothing else was told: not every part of a platform tells.
    pub(super) fn update_limit(&self, limit: Option<u32>) {
        if self.configured == RateLimit::FromServer {
            let rate = limit.map(|limit| usize::try_from(limit).unwrap_or(MAX_RATE).clamp(1, MAX_RATE));
            let mut schedule = self.schedule();
            if rate.is_some() || !schedule.is_reported {
                schedule.rate = rate;
            }
            schedule.is_reported |= rate.is_some();
        }
    }

    /// Whether requests wait while the platform takes none.
    pub(super) fn is_enabled(&self) -> bool {
        self.configured != RateLimit::None
    }

    /// The platform has refused a request because of too many: nothing more is sent for so long.
    pub(super) fn pause(&self, time: Duration) {
        if self.is_enabled() {
            let end = Instant::now() + time.min(MAX_WAIT);
            let mut schedule = self.schedule();
            schedule.paused_until = Some(schedule.paused_until.map_or(end, |paused_until| paused_until.max(end)));
        }
    }
}

async fn sleep(now: Instant, until: Instant) {
    if until > now {
        tokio::time::sleep_until(until).await;
    }
}

impl Schedule {
    fn reserve_run_list(&mut self, now: Instant) -> Result<Instant, Duration> {
        if self.rate.is_none() { Ok(now) } else { self.run_lists.reserve(RUN_LISTS_PER_MINUTE, MINUTE, now, now) }
    }

    fn reserve(&mut self, now: Instant) -> Result<Instant, Duration> {
        self.paused_until = self.paused_until.filter(|paused_until| *paused_until > now);
        let earliest = self.paused_until.unwrap_or(now);
        match self.rate {
            None => Ok(earliest),
            Some(rate) => self.requests.reserve(rate, SECOND, now, earliest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(limiter: &RateLimiter, class: RequestClass, count: usize) -> Vec<u128> {
        let now = Instant::now();
        let reserve = |mut schedule: MutexGuard<'_, Schedule>| match class {
            RequestClass::Other => schedule.reserve(now),
            RequestClass::RunList => schedule.reserve_run_list(now),
        };
        let wait = |_| match reserve(limiter.schedule()) {
            Ok(at) => (at - now).as_millis(),
            Err(_) => u128::MAX,
        };
        (0..count).map(wait).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_over_the_limit_wait_for_the_next_second_and_too_many_are_refused() {
        let limiter = RateLimiter::new(RateLimit::PerSecond(2));
        assert_eq!(waits(&limiter, RequestClass::Other, 5), [0, 0, 1100, 1100, 2200]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(waits(&limiter, RequestClass::Other, 3), [0, 0, 1100]);
        let many = waits(&limiter, RequestClass::Other, 100);
        assert_eq!(many.iter().filter(|wait| **wait == u128::MAX).count(), 100 - 53);
        assert_eq!(many[99], u128::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_is_what_the_answers_say() {
        let limiter = RateLimiter::new(RateLimit::FromServer);
        assert_eq!(waits(&limiter, RequestClass::Other, 31)[29..], [0, 1100]);
        limiter.update_limit(None);
        assert_eq!(waits(&limiter, RequestClass::Other, 100), [0; 100]);
        limiter.update_limit(Some(1));
        assert_eq!(waits(&limiter, RequestClass::Other, 1), [2200], "a second after the last that has its turn");
        limiter.update_limit(None);
        assert_eq!(waits(&limiter, RequestClass::Other, 1), [3300], "an answer that tells none takes none away");
        let fixed = RateLimiter::new(RateLimit::PerSecond(2));
        fixed.update_limit(None);
        assert_eq!(waits(&fixed, RequestClass::Other, 3), [0, 0, 1100]);
    }

    #[tokio::test(start_paused = true)]
    async fn run_lists_have_a_limit_of_their_own_and_a_pause_holds_all() {
        let limiter = RateLimiter::new(RateLimit::PerSecond(100));
        let lists = waits(&limiter, RequestClass::RunList, 31);
        assert_eq!((lists[29], lists[30]), (0, u128::MAX));
        assert_eq!(waits(&limiter, RequestClass::Other, 1), [0]);
        limiter.pause(Duration::from_secs(3));
        limiter.pause(Duration::from_secs(1));
        assert_eq!(waits(&limiter, RequestClass::Other, 1), [3000]);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(waits(&limiter, RequestClass::Other, 1), [0]);
    }
}
