//! One rate limit for all callers of a platform: it counts requests by user, so callers that share a token share its
//! limit.
//!
//! Unless configured, the limit is the `X-RateLimit-Limit` of the platform's responses. Requests over it wait for a
//! slot; if the wait is too long, they are refused with that time. Windows, not a token bucket: after a pause, a bucket
//! would let twice the limit pass within one of the platform's seconds.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Requests per second that are sent to an upstream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RateLimit {
    /// Limit from response headers; 30 before the first response (documented for HCP Terraform), unlimited if responses
    /// report none.
    #[default]
    FromServer,
    /// Fixed limit.
    PerSecond(u32),
    /// Unlimited.
    None,
}

/// Limit that a request counts toward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestClass {
    /// Limit per second only.
    Other,
    /// List of runs: also 30 per minute (documentation of the platform's API).
    RunList,
}

/// Assigns each request a time slot.
#[derive(Debug)]
pub(super) struct RateLimiter {
    configured: RateLimit,
    schedule: Mutex<Schedule>,
}

#[derive(Debug)]
struct Schedule {
    /// Requests per second; `None` for unlimited.
    rate: Option<usize>,
    /// True once the platform has reported its limit.
    is_reported: bool,
    requests: SlidingWindow,
    run_lists: SlidingWindow,
    /// End of a pause that the platform requested.
    paused_until: Option<Instant>,
}

/// Times of the last requests, sent or scheduled: at most as many as one span allows.
#[derive(Debug, Default)]
struct SlidingWindow(VecDeque<Instant>);

impl SlidingWindow {
    /// Reserves the next slot so that any `span` holds at most `max` requests.
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

/// The platform counts arrivals: 10 % longer than a second, as latency may bunch requests together.
const SECOND: Duration = Duration::from_millis(1_100);
const MINUTE: Duration = Duration::from_millis(60_500);
const RUN_LISTS_PER_MINUTE: usize = 30;
const DEFAULT_RATE: usize = 30;

/// Longest wait for a slot.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Largest limit that is tracked; bounds the window's memory.
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

    /// Waits for the request's slot. Returns the length of the wait.
    ///
    /// # Errors
    /// The wait, if it is over the maximum.
    pub(super) async fn acquire(&self, class: RequestClass) -> Result<Duration, Duration> {
        let mut waited = Duration::ZERO;
        if class == RequestClass::RunList {
            let now = Instant::now();
            let at = self.schedule().reserve_run_list(now)?;
            waited += sleep(now, at).await;
        }
        let now = Instant::now();
        let at = self.schedule().reserve(now)?;
        Ok(waited + sleep(now, at).await)
    }

    /// Applies the `X-RateLimit-Limit` of a response. A response without it means "unlimited" only while none has
    /// reported a limit: not all endpoints send the header.
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

    /// Returns true if requests wait during a pause.
    pub(super) fn is_enabled(&self) -> bool {
        self.configured != RateLimit::None
    }

    /// Sends nothing more for `time`, after a 429 from the platform.
    pub(super) fn pause(&self, time: Duration) {
        if self.is_enabled() {
            let end = Instant::now() + time.min(MAX_WAIT);
            let mut schedule = self.schedule();
            schedule.paused_until = Some(schedule.paused_until.map_or(end, |paused_until| paused_until.max(end)));
        }
    }
}

/// Sleeps until a time; returns how long that is from `now`.
async fn sleep(now: Instant, until: Instant) -> Duration {
    if until > now {
        tokio::time::sleep_until(until).await;
    }
    until.saturating_duration_since(now)
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
    async fn requests_over_the_limit_wait_and_too_many_are_refused() {
        let limiter = RateLimiter::new(RateLimit::PerSecond(2));
        assert_eq!(waits(&limiter, RequestClass::Other, 5), [0, 0, 1100, 1100, 2200]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(waits(&limiter, RequestClass::Other, 3), [0, 0, 1100]);
        let many = waits(&limiter, RequestClass::Other, 100);
        assert_eq!(many.iter().filter(|wait| **wait == u128::MAX).count(), 100 - 53);
        assert_eq!(many[99], u128::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_follows_response_headers() {
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
    async fn run_lists_have_their_own_limit_and_a_pause_delays_all() {
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
