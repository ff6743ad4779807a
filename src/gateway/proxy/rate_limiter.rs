//! One rate limit for all callers of a platform: it counts requests by user, so callers that share a token share its
//! limit.
//!
//! Unless configured, the limit is the `X-RateLimit-Limit` of the platform's responses. Requests over it wait in a queue;
//! if the wait is too long, they are refused with that time. A slot is taken when its time has come, not in advance, so
//! that a pause delays those that wait too.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keyward_credentials::sliding_window::SlidingWindow;
use parking_lot::Mutex;
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

/// Lets requests pass in the order in which they came, each in its time.
#[derive(Debug)]
pub(super) struct RateLimiter {
    configured: RateLimit,
    /// True once the platform has reported its limit.
    is_reported: AtomicBool,
    /// All requests, per second.
    requests: Queue,
    /// Lists of runs, per minute.
    run_lists: Queue,
}

/// A limit, and the requests that wait for their slots.
#[derive(Debug)]
struct Queue {
    window: Mutex<SlidingWindow>,
    waiting: AtomicUsize,
    /// Held by the first request.
    head: tokio::sync::Mutex<()>,
}

/// A request's place in a queue; released when dropped, as when the caller disconnects.
#[derive(Debug)]
struct QueuePlace<'a>(&'a Queue);

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The platform counts arrivals: 10 % longer than a second, as latency may bunch requests together.
const SECOND: Duration = Duration::from_millis(1_100);
/// Half a second longer, for the same reason.
const MINUTE: Duration = Duration::from_millis(60_500);
/// The platform counts both lists of runs by the minute.
const RUN_LISTS_PER_MINUTE: usize = 30;
/// The platform's limit for each user, until `X-RateLimit-Limit` says another.
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
        let requests = Queue::new(rate, SECOND);
        let run_lists = Queue::new(rate.map(|_| RUN_LISTS_PER_MINUTE), MINUTE);
        Self { configured, is_reported: AtomicBool::new(false), requests, run_lists }
    }

    /// Waits for the request's slot. Returns the length of the wait.
    ///
    /// # Errors
    /// The wait, if it is over the maximum.
    pub(super) async fn acquire(&self, class: RequestClass) -> Result<Duration, Duration> {
        let mut waited = Duration::ZERO;
        if class == RequestClass::RunList {
            waited += self.run_lists.wait_for_slot().await?;
        }
        Ok(waited + self.requests.wait_for_slot().await?)
    }

    /// Applies the `X-RateLimit-Limit` of a response: 0 means "unlimited" (a Terraform Enterprise whose administrator has
    /// turned the limit off). A response without it means that only while none has reported a limit: not all endpoints send
    /// the header.
    pub(super) fn update_limit(&self, limit: Option<u32>) {
        if self.configured == RateLimit::FromServer {
            let positive = limit.filter(|limit| *limit > 0);
            let rate = positive.map(|limit| usize::try_from(limit).unwrap_or(MAX_RATE).min(MAX_RATE));
            // Locked before the check, so that a response without a limit does not undo a concurrent one with it.
            let mut requests = self.requests.window.lock();
            if limit.is_some() || !self.is_reported.load(Ordering::Relaxed) {
                requests.set_max(rate);
                self.run_lists.window.lock().set_max(rate.map(|_| RUN_LISTS_PER_MINUTE));
            }
            self.is_reported.fetch_or(limit.is_some(), Ordering::Relaxed);
        }
    }

    /// Returns true if requests wait during a pause.
    pub(super) fn is_enabled(&self) -> bool {
        self.configured != RateLimit::None
    }

    /// Sends nothing more for `time`, after a 429 to a request of this class. If a list of runs has to wait longer than the
    /// limit per second could ask for, the limit per minute is meant, and only lists of runs wait.
    pub(super) fn pause(&self, class: RequestClass, time: Duration) {
        if self.is_enabled() {
            let queue = match class {
                RequestClass::RunList if time > SECOND => &self.run_lists,
                RequestClass::RunList | RequestClass::Other => &self.requests,
            };
            queue.window.lock().pause_until(Instant::now() + time.min(MAX_WAIT));
        }
    }
}

impl Queue {
    fn new(max: Option<usize>, span: Duration) -> Self {
        let window = Mutex::new(SlidingWindow::new(max, span));
        Self { window, waiting: AtomicUsize::new(0), head: tokio::sync::Mutex::default() }
    }

    /// Waits for a slot. Returns the length of the wait.
    ///
    /// # Errors
    /// The rest of the wait, if all of it is over the maximum.
    async fn wait_for_slot(&self) -> Result<Duration, Duration> {
        let start = Instant::now();
        let Some(_place) = self.enter(start)? else { return Ok(Duration::ZERO) };
        // This lock is fair: it keeps the order of the requests.
        let _guard = self.head.lock().await;
        loop {
            let now = Instant::now();
            let slot = self.window.lock().take_slot(now);
            if slot <= now {
                return Ok(now - start);
            }
            if slot > start + MAX_WAIT {
                return Err(slot - now);
            }
            // A pause may begin meanwhile, so the slot is computed again.
            tokio::time::sleep_until(slot).await;
        }
    }

    /// Adds a request to the queue; returns `None` if it passes at once. The error is a wait over the maximum.
    fn enter(&self, now: Instant) -> Result<Option<QueuePlace<'_>>, Duration> {
        let mut window = self.window.lock();
        let position = self.waiting.load(Ordering::Relaxed);
        let slot = if position == 0 { window.take_slot(now) } else { window.slot(position, now) };
        if slot > now + MAX_WAIT {
            return Err(slot - now);
        }
        if position == 0 && slot <= now {
            return Ok(None);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(window);
        Ok(Some(QueuePlace(self)))
    }
}

#[cfg(test)]
mod tests;
