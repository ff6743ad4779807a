//! One rate limit for all callers of a platform: it counts requests by user, so callers that share a token share its
//! limit.
//!
//! Unless configured, the limit is the `X-RateLimit-Limit` of the platform's responses. Requests over it wait in a queue;
//! if the wait is too long, they are refused with that time. A slot is taken when its time has come, not in advance, so
//! that a pause delays those that wait too. Windows, not a token bucket: after a pause, a bucket would let twice the
//! limit pass within one of the platform's seconds.

use std::collections::VecDeque;
use std::time::Duration;

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
    schedule: Mutex<Schedule>,
    /// Each is held by the first request in the queue of its limit.
    queue_head_lock: tokio::sync::Mutex<()>,
    run_list_head_lock: tokio::sync::Mutex<()>,
}

/// A limit with a queue of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// All requests, per second.
    Requests,
    /// Lists of runs, per minute.
    RunLists,
}

#[derive(Debug)]
struct Schedule {
    /// Requests per second; `None` for unlimited.
    rate: Option<usize>,
    /// True once the platform has reported its limit.
    is_reported: bool,
    requests: SlidingWindow,
    run_lists: SlidingWindow,
    /// End of a pause of all requests that the platform requested.
    paused_until: Option<Instant>,
    /// End of such a pause of lists of runs.
    run_lists_paused_until: Option<Instant>,
}

/// Times of the last requests that passed, at most as many as one span allows, and the length of the queue.
#[derive(Debug, Default)]
struct SlidingWindow {
    sent_at: VecDeque<Instant>,
    waiting: usize,
}

impl SlidingWindow {
    /// Returns the slot of a request that `position` others precede, so that any `span` holds at most `max` requests.
    fn slot(&mut self, max: usize, span: Duration, position: usize, earliest: Instant) -> Instant {
        while self.sent_at.len() > max || self.sent_at.front().is_some_and(|sent_at| *sent_at + span <= earliest) {
            self.sent_at.pop_front();
        }
        // `max` requests later, every slot comes again after one span.
        let spans = position / max;
        let offset = position % max;
        let freed_by = (self.sent_at.len() + offset).checked_sub(max).and_then(|index| self.sent_at.get(index));
        let free = freed_by.map_or(earliest, |sent_at| *sent_at + span);
        free + span.saturating_mul(u32::try_from(spans).unwrap_or(u32::MAX))
    }
}

/// A request's place in a queue; released when dropped, as when the caller disconnects.
#[derive(Debug)]
struct QueuePlace<'a> {
    limiter: &'a RateLimiter,
    limit: Limit,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.limiter.schedule.lock().window(self.limit).waiting -= 1;
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
        let schedule = Schedule {
            rate,
            is_reported: false,
            requests: SlidingWindow::default(),
            run_lists: SlidingWindow::default(),
            paused_until: None,
            run_lists_paused_until: None,
        };
        let queue_head_lock = tokio::sync::Mutex::default();
        let run_list_head_lock = tokio::sync::Mutex::default();
        Self { configured, schedule: Mutex::new(schedule), queue_head_lock, run_list_head_lock }
    }

    /// Waits for the request's slot. Returns the length of the wait.
    ///
    /// # Errors
    /// The wait, if it is over the maximum.
    pub(super) async fn acquire(&self, class: RequestClass) -> Result<Duration, Duration> {
        let mut waited = Duration::ZERO;
        if class == RequestClass::RunList {
            waited += self.wait_for_slot(Limit::RunLists).await?;
        }
        Ok(waited + self.wait_for_slot(Limit::Requests).await?)
    }

    /// Waits for a slot of one limit. Returns the length of the wait.
    ///
    /// # Errors
    /// The rest of the wait, if all of it is over the maximum.
    async fn wait_for_slot(&self, limit: Limit) -> Result<Duration, Duration> {
        let start = Instant::now();
        let Some(_place) = self.enter(limit, start)? else { return Ok(Duration::ZERO) };
        let head_lock = match limit {
            Limit::Requests => &self.queue_head_lock,
            Limit::RunLists => &self.run_list_head_lock,
        };
        // This lock is fair: it keeps the order of the requests.
        let _guard = head_lock.lock().await;
        loop {
            let now = Instant::now();
            let slot = self.schedule.lock().take_slot(limit, now);
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
    fn enter(&self, limit: Limit, now: Instant) -> Result<Option<QueuePlace<'_>>, Duration> {
        let mut schedule = self.schedule.lock();
        let position = schedule.window(limit).waiting;
        let slot = if position == 0 { schedule.take_slot(limit, now) } else { schedule.slot(limit, position, now) };
        if slot > now + MAX_WAIT {
            return Err(slot - now);
        }
        if position == 0 && slot <= now {
            return Ok(None);
        }
        schedule.window(limit).waiting += 1;
        Ok(Some(QueuePlace { limiter: self, limit }))
    }

    /// Applies the `X-RateLimit-Limit` of a response: 0 means "unlimited" (a Terraform Enterprise whose administrator has
    /// turned the limit off). A response without it means that only while none has reported a limit: not all endpoints send
    /// the header.
    pub(super) fn update_limit(&self, limit: Option<u32>) {
        if self.configured == RateLimit::FromServer {
            let positive = limit.filter(|limit| *limit > 0);
            let rate = positive.map(|limit| usize::try_from(limit).unwrap_or(MAX_RATE).min(MAX_RATE));
            let mut schedule = self.schedule.lock();
            if limit.is_some() || !schedule.is_reported {
                schedule.rate = rate;
            }
            schedule.is_reported |= limit.is_some();
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
            let end = Instant::now() + time.min(MAX_WAIT);
            let mut schedule = self.schedule.lock();
            let pause = match class {
                RequestClass::RunList if time > SECOND => &mut schedule.run_lists_paused_until,
                RequestClass::RunList | RequestClass::Other => &mut schedule.paused_until,
            };
            *pause = Some(pause.map_or(end, |paused_until| paused_until.max(end)));
        }
    }
}

impl Schedule {
    fn window(&mut self, limit: Limit) -> &mut SlidingWindow {
        match limit {
            Limit::Requests => &mut self.requests,
            Limit::RunLists => &mut self.run_lists,
        }
    }

    /// Returns the slot of a request that `position` others precede.
    fn slot(&mut self, limit: Limit, position: usize, now: Instant) -> Instant {
        let pause = match limit {
            Limit::Requests => &mut self.paused_until,
            Limit::RunLists => &mut self.run_lists_paused_until,
        };
        *pause = pause.filter(|paused_until| *paused_until > now);
        let resumed = pause.unwrap_or(now);
        match (limit, self.rate) {
            (_, None) => resumed,
            (Limit::Requests, Some(rate)) => self.requests.slot(rate, SECOND, position, resumed),
            (Limit::RunLists, Some(_)) => self.run_lists.slot(RUN_LISTS_PER_MINUTE, MINUTE, position, resumed),
        }
    }

    /// Returns the slot of the first request in the queue, and counts the request if its slot has come.
    fn take_slot(&mut self, limit: Limit, now: Instant) -> Instant {
        let slot = self.slot(limit, 0, now);
        if slot <= now && self.rate.is_some() {
            self.window(limit).sent_at.push_back(now);
        }
        slot
    }
}

#[cfg(test)]
mod tests;
