//! Limits the attempts of a session, a derived token or a cache: by a backoff and a token bucket, which a session keeps over a
//! restart.

mod caller_retries;

use std::time::{Duration, SystemTime};

use keyward_credentials::backoff::Backoff;
use keyward_credentials::token_bucket::TokenBucket;
use keyward_machine::clock::ClockReading;
use serde::{Deserialize, Serialize};

use self::caller_retries::{CallerRetries, spacing};

pub(crate) use self::caller_retries::CallerRetriesRecord;

/// Decides when the next attempt is allowed, by consecutive failures and by a token bucket of unplanned logins.
///
/// A login is planned when it replaces a token that lived most of its time. All others (the first of a process, after a
/// failure, after a token that died early) take from the bucket, so that restarts or dead tokens cannot make a fast loop.
/// Logins for waiting callers take from other buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryBudget {
    failures: u32,
    clock_failures: u32,
    not_before: ClockReading,
    logins: TokenBucket,
    /// Consecutive failed renewals; they do not delay logins.
    renewal_failures: u32,
    renewal_not_before: ClockReading,
    /// No login before this, by the `Retry-After` of the server or the identity source.
    retry_after_until: ClockReading,
    /// Time of the last failed login.
    failed: Option<ClockReading>,
    failing_since: Option<ClockReading>,
    /// Time of the last login or renewal that succeeded.
    succeeded: Option<ClockReading>,
    caller_cost: Option<u32>,
    callers: CallerRetries,
    after_success: TokenBucket,
    /// Quick retries after refusals that are left; `None` for a budget without any.
    quick_retries: Option<usize>,
}

/// Cause of a failed login, which decides how soon the next one is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// The server cannot be reached or is in trouble: retry with backoff.
    Transient,
    /// The identity source failed after its own retries, each of which was a call.
    Identity,
    /// The server refused the login: it fails until someone changes a setting.
    Refused,
    /// The proof is not valid yet, or was refused for its times; it is valid after this wait.
    Clock(Duration),
}

impl RetryBudget {
    /// Creates a budget without failures and with a full bucket.
    pub const fn new(now: ClockReading) -> Self {
        Self {
            failures: 0,
            clock_failures: 0,
            not_before: now,
            logins: LOGINS,
            renewal_failures: 0,
            renewal_not_before: now,
            retry_after_until: now,
            failed: None,
            failing_since: None,
            succeeded: None,
            caller_cost: None,
            callers: CallerRetries::new(),
            after_success: AFTER_SUCCESS,
            quick_retries: None,
        }
    }

    /// Retries soon after the first refusals that follow the start, a success or a change of the login's files: what the server
    /// lacks may be about to be there. Failures of the previous process count.
    pub(crate) fn with_quick_retries(self) -> Self {
        let failures = usize::try_from(self.failures).unwrap_or(usize::MAX);
        Self { quick_retries: Some(QUICK_RETRIES.len().saturating_sub(failures)), ..self }
    }

    /// Returns the failed logins since the last success.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the failed renewals since the last success.
    pub(crate) const fn renewal_failures(&self) -> u32 {
        self.renewal_failures
    }

    /// Records a failed login and the `Retry-After` of the other side. `unit` is a random number in `0.0..1.0`.
    pub fn record_failure(
        &mut self,
        now: ClockReading,
        failure: FailureCause,
        retry_after: Option<Duration>,
        unit: f64,
    ) {
        let mut backoff = Backoff::UPSTREAM.with_failures(self.failures);
        let slow = Duration::from_secs(150).mul_f64(1.0 + unit);
        let wait = match failure {
            FailureCause::Transient => backoff.next(unit),
            // The source has retried by itself for up to 90 s, each time with a call.
            FailureCause::Identity => Backoff::new(Duration::from_secs(10), Duration::from_mins(5))
                .with_failures(self.failures)
                .next_half_jitter(unit),
            // The first time, the proof says when it is valid. If it is refused again, a clock is wrong.
            FailureCause::Clock(wait) if self.clock_failures == 0 => wait.clamp(Duration::from_secs(1), MAX_WAIT),
            FailureCause::Clock(wait) => wait.clamp(slow, MAX_WAIT),
            FailureCause::Refused => self.take_quick_retry(unit).unwrap_or(slow),
        };
        let retry_after = spread_retry_after(retry_after, unit);
        self.clock_failures =
            if matches!(failure, FailureCause::Clock(_)) { self.clock_failures.saturating_add(1) } else { 0 };
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + retry_after.max(wait);
        self.retry_after_until = now + retry_after;
        self.failed = Some(now);
        self.failing_since.get_or_insert(now);
        self.caller_cost = match failure {
            FailureCause::Transient => Some(1),
            FailureCause::Identity => Some(IDENTITY_COST),
            FailureCause::Refused | FailureCause::Clock(_) => None,
        };
    }

    /// Takes one of the quick retries, and returns the wait before it.
    fn take_quick_retry(&mut self, unit: f64) -> Option<Duration> {
        let left = self.quick_retries.as_mut().filter(|left| **left > 0)?;
        let wait = QUICK_RETRIES[QUICK_RETRIES.len() - *left];
        *left -= 1;
        Some(wait.mul_f64(0.4f64.mul_add(unit, 0.8)))
    }

    /// Records a failed renewal, which does not delay logins.
    pub fn record_renewal_failure(&mut self, now: ClockReading, retry_after: Option<Duration>, unit: f64) {
        let wait = Backoff::UPSTREAM.with_failures(self.renewal_failures).next(unit);
        self.renewal_failures = self.renewal_failures.saturating_add(1);
        self.renewal_not_before = now + spread_retry_after(retry_after, unit).max(wait);
    }

    /// Records a renewal that succeeded, which changes nothing for logins.
    pub(crate) const fn record_renewal_success(&mut self, now: ClockReading) {
        self.renewal_failures = 0;
        self.renewal_not_before = now;
    }

    /// Returns the earliest time of the next renewal.
    pub const fn renewal_not_before(&self) -> ClockReading {
        self.renewal_not_before
    }

    /// Returns the earliest login for a waiting caller; `None` before the first login, and if logins fail for a setting.
    pub fn next_for_caller(&mut self, now: ClockReading, unit: f64) -> Option<ClockReading> {
        let Some((failed, since)) = self.failed.zip(self.failing_since) else {
            return self.next_after_success(now, unit);
        };
        let age = now.since(since);
        let caller_cost = self.caller_cost?;
        let spaced = failed + spacing(age, unit);
        Some(latest([now, spaced, self.retry_after_until, self.callers.earliest(now, age, caller_cost)]))
    }

    /// Returns the earliest login for a waiting caller whose token died early; `None` before the first success.
    ///
    /// No login has failed, so only the session's own bucket delays the next one, after many lost tokens.
    fn next_after_success(&mut self, now: ClockReading, unit: f64) -> Option<ClockReading> {
        let spaced = self.succeeded? + spacing(Duration::ZERO, unit);
        let for_callers = self.callers.earliest(now, Duration::ZERO, 1);
        Some(latest([now, spaced, for_callers, self.after_success.available_at(now, 1)]))
    }

    /// Returns the earliest login on an operator's request, whatever the last login failed for.
    pub(crate) fn next_on_demand(&mut self, now: ClockReading) -> ClockReading {
        let age = self.failing_since.map(|since| now.since(since)).unwrap_or_default();
        latest([now, self.retry_after_until, self.callers.earliest(now, age, self.caller_cost.unwrap_or(1))])
    }

    /// Takes a login for a caller or an operator out of their bucket.
    pub fn take_for_caller(&mut self, now: ClockReading) {
        let age = self.failing_since.map(|since| now.since(since)).unwrap_or_default();
        self.callers.take(now, age, self.caller_cost.unwrap_or(1));
        if self.failed.is_none() {
            self.after_success.take(now, 1);
        }
    }

    /// Records a success, which resets all backoff.
    pub const fn record_success(&mut self, now: ClockReading) {
        self.failures = 0;
        self.clock_failures = 0;
        self.not_before = now;
        self.record_renewal_success(now);
        self.retry_after_until = now;
        self.failed = None;
        self.failing_since = None;
        self.succeeded = Some(now);
        self.caller_cost = None;
        self.refill_quick_retries();
    }

    const fn refill_quick_retries(&mut self) {
        if let Some(left) = &mut self.quick_retries {
            *left = QUICK_RETRIES.len();
        }
    }

    /// Forgets failures that belong to other settings. The buckets are not refilled.
    pub(crate) const fn reset_failures(&mut self, now: ClockReading) {
        let succeeded = self.succeeded;
        self.record_success(now);
        self.succeeded = succeeded;
    }

    /// Returns true if the last login of this process failed because its proof did not fit the clock.
    pub(crate) const fn failed_for_clock(&self) -> bool {
        self.clock_failures > 0
    }

    /// Ends the wait after a failed login: its cause may be gone.
    pub(crate) const fn end_wait(&mut self, now: ClockReading) {
        self.not_before = now;
    }

    /// Ends the wait after a failed login, as a file that the login reads has changed. A `Retry-After` still counts.
    pub(crate) fn end_wait_for_change(&mut self, now: ClockReading) {
        self.not_before = now.later(self.retry_after_until);
        self.refill_quick_retries();
    }

    /// Takes an unplanned login out of the bucket.
    pub fn take_login(&mut self, now: ClockReading) {
        self.logins.take(now, 1);
    }

    /// Takes an optional call out of the bucket; returns false if too little is left for logins.
    pub(crate) fn try_take_optional(&mut self, now: ClockReading) -> bool {
        let enough = self.logins.available(now) > LOGINS.size() / 2;
        if enough {
            self.take_login(now);
        }
        enough
    }

    /// Returns the earliest time of a login that does not take from the bucket.
    pub const fn not_before(&self) -> ClockReading {
        self.not_before
    }

    /// Returns the earliest time of a login from the bucket; a time in the past means now.
    pub fn earliest_login(&mut self, now: ClockReading) -> ClockReading {
        self.logins.available_at(now, 1).later(self.not_before)
    }

    /// Returns the record for the state file.
    pub(crate) fn to_record(&self) -> RetryBudgetRecord {
        let (logins, refilled) = self.logins.to_saved();
        RetryBudgetRecord {
            failures: self.failures,
            not_before: seconds(self.not_before.wall),
            logins,
            refilled: seconds(refilled.wall),
            renewal_failures: self.renewal_failures,
            renewal_not_before: Some(seconds(self.renewal_not_before.wall)).filter(|_| self.renewal_failures > 0),
            retry_after_until: Some(seconds(self.retry_after_until.wall)).filter(|_| self.failures > 0),
            failing_since: self.failing_since.map(|since| seconds(since.wall)),
            caller_cost: self.caller_cost,
            callers: Some(self.callers.to_record(|moment| seconds(moment.wall))),
        }
    }

    /// Restores the budget from its record. A wall clock that was set meanwhile adds at most [`MAX_WAIT`].
    pub(crate) fn restore(record: &RetryBudgetRecord, now: ClockReading) -> Self {
        let wall = seconds(now.wall);
        let in_future = |at: u64| now + Duration::from_secs(at.saturating_sub(wall)).min(MAX_WAIT);
        let in_past = |at: u64| {
            let elapsed = Duration::from_secs(wall.saturating_sub(at));
            ClockReading {
                boot: now.boot.saturating_sub(elapsed),
                wall: now.wall.checked_sub(elapsed).unwrap_or(SystemTime::UNIX_EPOCH),
            }
        };
        Self {
            failures: record.failures,
            clock_failures: 0,
            not_before: in_future(record.not_before),
            logins: LOGINS.restored(record.logins, in_past(record.refilled)),
            renewal_failures: record.renewal_failures,
            renewal_not_before: record.renewal_not_before.map_or(now, in_future),
            retry_after_until: record.retry_after_until.map_or(now, in_future),
            // As if the last login had failed just now: a restart brings no login for callers forward.
            failed: record.failing_since.map(|_| now),
            failing_since: record.failing_since.map(in_past),
            succeeded: None,
            // Bounded, since the file may hold any number, and a cost above the bucket's size would never be met.
            caller_cost: record.caller_cost.map(|caller_cost| caller_cost.clamp(1, IDENTITY_COST)),
            callers: match &record.callers {
                Some(callers) => CallerRetries::restore(callers, in_past),
                None => CallerRetries::new(),
            },
            // The record has no place for it. While tokens die early, none of the session's own logins are left either.
            after_success: AFTER_SUCCESS.restored(record.logins, now),
            quick_retries: None,
        }
    }
}

/// Returns the wait that a `Retry-After` asks for, bounded, and longer by a random part so that clients do not come back together;
/// zero without one. `unit` is a random number in `0.0..1.0`.
pub(super) fn spread_retry_after(retry_after: Option<Duration>, unit: f64) -> Duration {
    retry_after.map_or(Duration::ZERO, |wait| wait.clamp(Duration::from_secs(1), MAX_WAIT).mul_f64(1.0 + unit / 2.0))
}

/// Longest wait that a server, a clock or a record can impose.
const MAX_WAIT: Duration = Duration::from_mins(15);

/// Waits before the quick retries, a fifth more or less. They take from [`LOGINS`] as all unplanned logins do.
const QUICK_RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];

/// Unplanned logins.
const LOGINS: TokenBucket = TokenBucket::full(8, Duration::from_mins(2));

/// Logins for callers whose token died early, beside the unplanned ones and out of the callers' bucket too.
///
/// With [`LOGINS`] they are at most 49 in the first hour: a token that is revoked at once costs four calls (two for the proof, the
/// login, a look-up), and a session makes at most 200.
const AFTER_SUCCESS: TokenBucket = TokenBucket::full(8, Duration::from_mins(20));

/// Cost of an attempt for a caller while the identity source fails, which makes more calls than a login.
const IDENTITY_COST: u32 = 2;

fn latest<const N: usize>(moments: [ClockReading; N]) -> ClockReading {
    moments.into_iter().reduce(ClockReading::later).unwrap_or(moments[0])
}

/// A retry budget in the state file. Times are seconds since 1970 by the wall clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBudgetRecord {
    /// Consecutive failed logins.
    pub failures: u32,
    /// No login before this.
    pub not_before: u64,
    /// Logins left in the bucket.
    pub logins: u32,
    /// Time of the last refill.
    pub refilled: u64,
    /// Consecutive failed renewals.
    pub renewal_failures: u32,
    /// No renewal before this.
    pub renewal_not_before: Option<u64>,
    /// No login before this, by `Retry-After`.
    pub retry_after_until: Option<u64>,
    /// Time of the first of the consecutive failures.
    pub failing_since: Option<u64>,
    /// Cost of an attempt for a caller.
    pub caller_cost: Option<u32>,
    /// Bucket of attempts for callers.
    pub callers: Option<CallerRetriesRecord>,
}

/// Returns whole seconds since 1970, rounded up so that a saved wait never shrinks.
fn seconds(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() + u64::from(since.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests;
