//! How fast a session may try: its backoff, and a bucket of logins, both of which outlive a restart.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::caller_tries::{CallerTries, spacing};
use crate::backoff::Backoff;
use crate::clock::ClockReading;

pub use super::caller_tries::CallerTriesRecord;

/// Decides when the next try may be. Knows failures in a row and the logins that nothing had planned.
///
/// A login is planned when it replaces a token that lived most of its time. All others (the first of a process, after a
/// failure, after a token that died early) come from the bucket, so that no loop of restarts or deaths is a fast one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    failures: u32,
    clock_failures: u32,
    not_before: ClockReading,
    logins: u32,
    refilled: ClockReading,
    /// Failed renewals in a row: they keep no login waiting.
    renewal_failures: u32,
    renewal_not_before: ClockReading,
    /// The other side has asked for no login before this.
    asked_until: ClockReading,
    /// The last failed login, since when logins fail, and what a try for a caller costs; nothing where only someone who changes a
    /// setting mends it.
    failed: Option<ClockReading>,
    failing_since: Option<ClockReading>,
    cost: Option<u32>,
    callers: CallerTries,
}

/// What to expect of trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It may pass at any time.
    Passing,
    /// The identity source gave up after tries of its own, each of which was a call.
    Identity,
    /// Nothing changes until someone changes a setting.
    Refused,
    /// The proof was held back or refused for its times; it is good after this wait.
    Clock(Duration),
}

impl Pace {
    /// No failure yet, a full bucket.
    pub const fn new(now: ClockReading) -> Self {
        Self {
            failures: 0,
            clock_failures: 0,
            not_before: now,
            logins: LOGINS,
            refilled: now,
            renewal_failures: 0,
            renewal_not_before: now,
            asked_until: now,
            failed: None,
            failing_since: None,
            cost: None,
            callers: CallerTries::new(now),
        }
    }

    /// Failures since the last success, of renewals apart.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Failed renewals since the last success.
    pub const fn renewal_failures(&self) -> u32 {
        self.renewal_failures
    }

    /// Notes a failure, with the wait that the other side asked for. `unit` is a random number in `0.0..1.0`.
    pub fn failed(&mut self, now: ClockReading, failure: Failure, retry_after: Option<Duration>, unit: f64) {
        let mut backoff = Backoff::UPSTREAM.after(self.failures);
        let slow = Duration::from_secs(150).mul_f64(1.0 + unit);
        let own = match failure {
            Failure::Passing => backoff.next(unit),
            Failure::Identity => Backoff::new(Duration::from_secs(10), Duration::from_mins(5))
                .after(self.failures)
                .next(0.5 + unit / 2.0),
            Failure::Clock(wait) if self.clock_failures == 0 => wait.clamp(Duration::from_secs(1), MOST),
            Failure::Clock(wait) => wait.clamp(slow, MOST),
            Failure::Refused => slow,
        };
        let asked = retry_after.map(|asked| asked.clamp(Duration::from_secs(1), MOST).mul_f64(1.0 + unit / 2.0));
        self.clock_failures =
            if matches!(failure, Failure::Clock(_)) { self.clock_failures.saturating_add(1) } else { 0 };
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + asked.map_or(own, |asked| asked.max(own));
        self.asked_until = now + asked.unwrap_or_default();
        self.failed = Some(now);
        self.failing_since.get_or_insert(now);
        self.cost = match failure {
            Failure::Passing => Some(1),
            Failure::Identity => Some(IDENTITY_COST),
            Failure::Refused | Failure::Clock(_) => None,
        };
    }

    /// Notes a failed renewal, which says nothing about logins.
    pub fn renewal_failed(&mut self, now: ClockReading, retry_after: Option<Duration>, unit: f64) {
        let own = Backoff::UPSTREAM.after(self.renewal_failures).next(unit);
        let asked = retry_after.map(|asked| asked.clamp(Duration::from_secs(1), MOST).mul_f64(1.0 + unit / 2.0));
        self.renewal_failures = self.renewal_failures.saturating_add(1);
        self.renewal_not_before = now + asked.map_or(own, |asked| asked.max(own));
    }

    /// Notes a renewal that went well, which says nothing about logins.
    pub const fn renewal_succeeded(&mut self, now: ClockReading) {
        self.renewal_failures = 0;
        self.renewal_not_before = now;
    }

    /// When the next renewal may be.
    pub const fn renewal_not_before(&self) -> ClockReading {
        self.renewal_not_before
    }

    /// When a login may be tried because a caller waits; `None` where logins do not fail, or fail for a setting.
    pub fn next_for_caller(&mut self, now: ClockReading, unit: f64) -> Option<ClockReading> {
        let (failed, since, cost) = (self.failed?, self.failing_since?, self.cost?);
        let age = now.since(since);
        let spaced = failed + spacing(age, unit);
        Some(latest([now, spaced, self.asked_until, self.callers.earliest(now, age, cost)]))
    }

    /// When a login may be tried because somebody asks for it: whatever it failed for.
    pub fn next_on_demand(&mut self, now: ClockReading) -> ClockReading {
        let age = self.failing_since.map(|since| now.since(since)).unwrap_or_default();
        latest([now, self.asked_until, self.callers.earliest(now, age, self.cost.unwrap_or(1))])
    }

    /// Takes such a try out of its bucket.
    pub fn take_for_caller(&mut self, now: ClockReading) {
        let age = self.failing_since.map(|since| now.since(since)).unwrap_or_default();
        self.callers.take(now, age, self.cost.unwrap_or(1));
    }

    /// Notes a success: the next failure starts at the beginning again.
    pub const fn succeeded(&mut self, now: ClockReading) {
        self.failures = 0;
        self.clock_failures = 0;
        self.not_before = now;
        self.renewal_succeeded(now);
        self.asked_until = now;
        self.failed = None;
        self.failing_since = None;
        self.cost = None;
    }

    /// Forgets the failures: they were of other settings. What was taken from the bucket stays taken.
    pub const fn forget_failures(&mut self, now: ClockReading) {
        self.succeeded(now);
    }

    /// Takes a login out of the bucket.
    pub fn take(&mut self, now: ClockReading) {
        self.refill(now);
        if self.logins == LOGINS {
            self.refilled = now;
        }
        self.logins = self.logins.saturating_sub(1);
    }

    /// Takes one out of the bucket for a call that can be done without, if enough is left for logins.
    pub fn spare(&mut self, now: ClockReading) -> bool {
        self.refill(now);
        let enough = self.logins > LOGINS / 2;
        if enough {
            self.take(now);
        }
        enough
    }

    /// When the next try may be, if it is no login from the bucket.
    pub const fn not_before(&self) -> ClockReading {
        self.not_before
    }

    /// When the next login from the bucket may be; a moment that has passed means now.
    pub fn earliest_login(&mut self, now: ClockReading) -> ClockReading {
        self.refill(now);
        let refilled = if self.logins == 0 { self.refilled + REFILL } else { now };
        if refilled.boot > self.not_before.boot { refilled } else { self.not_before }
    }

    fn refill(&mut self, now: ClockReading) {
        while self.logins < LOGINS && now.since(self.refilled) >= REFILL {
            self.logins += 1;
            self.refilled = self.refilled + REFILL;
        }
    }

    /// What to keep across a restart.
    pub fn record(&self) -> Record {
        Record {
            failures: self.failures,
            not_before: seconds(self.not_before.wall),
            logins: self.logins,
            refilled: seconds(self.refilled.wall),
            renewal_failures: self.renewal_failures,
            renewal_not_before: Some(seconds(self.renewal_not_before.wall)).filter(|_| self.renewal_failures > 0),
            asked_until: Some(seconds(self.asked_until.wall)).filter(|_| self.failures > 0),
            failing_since: self.failing_since.map(|since| seconds(since.wall)),
            cost: self.cost,
            callers: self.failing_since.map(|_| self.callers.record(|moment| seconds(moment.wall))),
        }
    }

    /// The pace as it was kept. A wall clock that was set meanwhile costs at most [`MOST`].
    pub fn resume(record: &Record, now: ClockReading) -> Self {
        let wall = seconds(now.wall);
        let ahead = |at: u64| now + Duration::from_secs(at.saturating_sub(wall)).min(MOST);
        let ago = |at: u64| {
            let passed = Duration::from_secs(wall.saturating_sub(at));
            ClockReading {
                boot: now.boot.saturating_sub(passed),
                wall: now.wall.checked_sub(passed).unwrap_or(SystemTime::UNIX_EPOCH),
            }
        };
        Self {
            failures: record.failures,
            clock_failures: 0,
            not_before: ahead(record.not_before),
            logins: record.logins.min(LOGINS),
            refilled: ago(record.refilled),
            renewal_failures: record.renewal_failures,
            renewal_not_before: record.renewal_not_before.map_or(now, ahead),
            asked_until: record.asked_until.map_or(now, ahead),
            failed: record.failing_since.map(|_| now),
            failing_since: record.failing_since.map(ago),
            cost: record.cost.map(|cost| cost.clamp(1, IDENTITY_COST)),
            callers: match &record.callers {
                Some(callers) => CallerTries::resume(callers, ago),
                None => CallerTries::new(now),
            },
        }
    }
}

/// The longest wait that a server, a clock or a record can impose.
pub const MOST: Duration = Duration::from_mins(15);

/// Logins that nothing had planned: so many at once, then one each [`REFILL`].
const LOGINS: u32 = 8;
const REFILL: Duration = Duration::from_mins(2);

/// The cost of a try for a caller where the identity fails: that makes more calls than a login.
const IDENTITY_COST: u32 = 2;

fn latest<const N: usize>(moments: [ClockReading; N]) -> ClockReading {
    moments.into_iter().reduce(|one, other| if other.boot > one.boot { other } else { one }).unwrap_or(moments[0])
}

/// A pace as a state file keeps it. Times are seconds since 1970 by the wall clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Failures in a row.
    pub failures: u32,
    /// No try before this.
    pub not_before: u64,
    /// Logins left in the bucket.
    pub logins: u32,
    /// When the bucket was last filled up.
    pub refilled: u64,
    /// Failed renewals in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub renewal_failures: u32,
    /// No renewal before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal_not_before: Option<u64>,
    /// The server, or the identity's source, has asked for no login before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_until: Option<u64>,
    /// Since when logins fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<u64>,
    /// The cost of a try for a caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    /// Tries for callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<CallerTriesRecord>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Whole seconds since 1970, rounded up so that a wait never shrinks by being kept.
fn seconds(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs() + u64::from(it.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests;
