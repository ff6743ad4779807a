//! One limit for all callers of one upstream: the platform counts requests by user, not by connection or token, so
//! callers that share a token share its limit.
//!
//! Unless it is configured, the limit is what the platform says in `X-RateLimit-Limit`. Requests over it wait for their
//! turn; where that is too far away they are refused with the time to wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many requests a second an upstream takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Limit {
    /// As its answers say; 30 before the first of them (the hosted platform's documented limit), none where they do not.
    #[default]
    AsTold,
    /// So many.
    PerSecond(u32),
    /// As many as come.
    None,
}

/// What a request counts toward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The limit a second.
    Usual,
    /// A list of runs: 30 a minute besides (the platform's documentation).
    RunList,
}

/// Gives requests their turn.
#[derive(Debug)]
pub(super) struct Limiter {
    configured: Limit,
    turns: Mutex<Turns>,
}

#[derive(Debug)]
struct Turns {
    /// So many a second; `None` for no limit.
    rate: Option<usize>,
    /// Whether the platform has told it.
    told: bool,
    usual: Window,
    run_lists: Window,
    /// Nothing is sent before: the platform said so.
    paused: Option<Instant>,
}

/// When the last requests were, or will be, sent: as many as may be within one span.
#[derive(Debug, Default)]
struct Window(VecDeque<Instant>);

impl Window {
    /// Takes the next turn at which there are at most `most` within `span`.
    fn reserve(&mut self, most: usize, span: Duration, now: Instant, earliest: Instant) -> Result<Instant, Duration> {
        while self.0.len() > most || self.0.front().is_some_and(|sent| *sent + span <= now) {
            self.0.pop_front();
        }
        let full = self.0.len() >= most;
        let free = self.0.front().filter(|_| full).map_or(now, |sent| *sent + span);
        let at = free.max(earliest);
        if at > now + PATIENCE {
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
const RUN_LISTS: usize = 30;
const UNTOLD: usize = 30;

/// The longest wait for a turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest limit that is kept count of.
const MOST: usize = 10_000;

impl Limiter {
    pub(super) fn new(configured: Limit) -> Self {
        let rate = match configured {
            Limit::AsTold => Some(UNTOLD),
            Limit::PerSecond(rate) => Some(usize::try_from(rate).unwrap_or(MOST).clamp(1, MOST)),
            Limit::None => None,
        };
        let turns = Turns { rate, told: false, usual: Window::default(), run_lists: Window::default(), paused: None };
        Self { configured, turns: Mutex::new(turns) }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a request's turn.
    ///
    /// # Errors
    /// It is too far away: how far.
    pub(super) async fn turn(&self, kind: Kind) -> Result<(), Duration> {
        if kind == Kind::RunList {
            let now = Instant::now();
            let at = self.turns().reserve_run_list(now)?;
            sleep(now, at).await;
        }
        let now = Instant::now();
        let at = self.turns().reserve(now)?;
        sleep(now, at).await;
        Ok(())
    }

    /// What an answer says of the limit: `X-RateLimit-Limit`, where it has it. One without it says that there is none
    /// only while nothing else was told: not every part of a platform tells.
    pub(super) fn told(&self, limit: Option<u32>) {
        if self.configured == Limit::AsTold {
            let rate = limit.map(|limit| usize::try_from(limit).unwrap_or(MOST).clamp(1, MOST));
            let mut turns = self.turns();
            if rate.is_some() || !turns.told {
                turns.rate = rate;
            }
            turns.told |= rate.is_some();
        }
    }

    /// Whether requests wait while the platform takes none.
    pub(super) fn pauses(&self) -> bool {
        self.configured != Limit::None
    }

    /// The platform has refused a request because of too many: nothing more is sent for so long.
    pub(super) fn pause(&self, time: Duration) {
        if self.pauses() {
            let end = Instant::now() + time.min(PATIENCE);
            let mut turns = self.turns();
            turns.paused = Some(turns.paused.map_or(end, |paused| paused.max(end)));
        }
    }
}

async fn sleep(now: Instant, until: Instant) {
    if until > now {
        tokio::time::sleep_until(until).await;
    }
}

impl Turns {
    fn reserve_run_list(&mut self, now: Instant) -> Result<Instant, Duration> {
        if self.rate.is_none() { Ok(now) } else { self.run_lists.reserve(RUN_LISTS, MINUTE, now, now) }
    }

    fn reserve(&mut self, now: Instant) -> Result<Instant, Duration> {
        self.paused = self.paused.filter(|paused| *paused > now);
        let earliest = self.paused.unwrap_or(now);
        match self.rate {
            None => Ok(earliest),
            Some(rate) => self.usual.reserve(rate, SECOND, now, earliest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(limiter: &Limiter, kind: Kind, count: usize) -> Vec<u128> {
        let now = Instant::now();
        let reserve = |mut turns: MutexGuard<'_, Turns>| match kind {
            Kind::Usual => turns.reserve(now),
            Kind::RunList => turns.reserve_run_list(now),
        };
        let wait = |_| match reserve(limiter.turns()) {
            Ok(at) => (at - now).as_millis(),
            Err(_) => u128::MAX,
        };
        (0..count).map(wait).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_over_the_limit_wait_for_the_next_second_and_too_many_are_refused() {
        let limiter = Limiter::new(Limit::PerSecond(2));
        assert_eq!(waits(&limiter, Kind::Usual, 5), [0, 0, 1100, 1100, 2200]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(waits(&limiter, Kind::Usual, 3), [0, 0, 1100]);
        let many = waits(&limiter, Kind::Usual, 100);
        assert_eq!(many.iter().filter(|wait| **wait == u128::MAX).count(), 100 - 53);
        assert_eq!(many[99], u128::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_is_what_the_answers_say() {
        let limiter = Limiter::new(Limit::AsTold);
        assert_eq!(waits(&limiter, Kind::Usual, 31)[29..], [0, 1100]);
        limiter.told(None);
        assert_eq!(waits(&limiter, Kind::Usual, 100), [0; 100]);
        limiter.told(Some(1));
        assert_eq!(waits(&limiter, Kind::Usual, 1), [2200], "a second after the last that has its turn");
        limiter.told(None);
        assert_eq!(waits(&limiter, Kind::Usual, 1), [3300], "an answer that tells none takes none away");
        let fixed = Limiter::new(Limit::PerSecond(2));
        fixed.told(None);
        assert_eq!(waits(&fixed, Kind::Usual, 3), [0, 0, 1100]);
    }

    #[tokio::test(start_paused = true)]
    async fn run_lists_have_a_limit_of_their_own_and_a_pause_holds_all() {
        let limiter = Limiter::new(Limit::PerSecond(100));
        let lists = waits(&limiter, Kind::RunList, 31);
        assert_eq!((lists[29], lists[30]), (0, u128::MAX));
        assert_eq!(waits(&limiter, Kind::Usual, 1), [0]);
        limiter.pause(Duration::from_secs(3));
        limiter.pause(Duration::from_secs(1));
        assert_eq!(waits(&limiter, Kind::Usual, 1), [3000]);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(waits(&limiter, Kind::Usual, 1), [0]);
    }
}
