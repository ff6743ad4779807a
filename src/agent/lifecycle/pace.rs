//! How fast a session may try: its backoff, and a bucket of logins, both of which outlive a restart.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::clock::Moment;

/// Decides when the next try may be. Knows failures in a row and the logins that nothing had planned.
///
/// A login is planned when it replaces a token that lived most of its time. All others (the first of a process, after a
/// failure, after a token that died early) come from the bucket, so that no loop of restarts or deaths is a fast one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    failures: u32,
    clock_failures: u32,
    not_before: Moment,
    logins: u32,
    refilled: Moment,
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
    pub const fn new(now: Moment) -> Self {
        Self { failures: 0, clock_failures: 0, not_before: now, logins: LOGINS, refilled: now }
    }

    /// Failures since the last success.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Notes a failure, with the wait that the other side asked for. `unit` is a random number in `0.0..1.0`.
    pub fn failed(&mut self, now: Moment, failure: Failure, retry_after: Option<Duration>, unit: f64) {
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
    }

    /// Notes a success: the next failure starts at the beginning again.
    pub const fn succeeded(&mut self, now: Moment) {
        self.failures = 0;
        self.clock_failures = 0;
        self.not_before = now;
    }

    /// Forgets the failures: they were of other settings. What was taken from the bucket stays taken.
    pub const fn forget_failures(&mut self, now: Moment) {
        self.succeeded(now);
    }

    /// Takes a login out of the bucket.
    pub fn take(&mut self, now: Moment) {
        self.refill(now);
        if self.logins == LOGINS {
            self.refilled = now;
        }
        self.logins = self.logins.saturating_sub(1);
    }

    /// Takes one out of the bucket for a call that can be done without, if enough is left for logins.
    pub fn spare(&mut self, now: Moment) -> bool {
        self.refill(now);
        let enough = self.logins > LOGINS / 2;
        if enough {
            self.take(now);
        }
        enough
    }

    /// When the next try may be, if it is no login from the bucket.
    pub const fn not_before(&self) -> Moment {
        self.not_before
    }

    /// When the next login from the bucket may be; a moment that has passed means now.
    pub fn earliest_login(&mut self, now: Moment) -> Moment {
        self.refill(now);
        let refilled = if self.logins == 0 { self.refilled + REFILL } else { now };
        if refilled.boot > self.not_before.boot { refilled } else { self.not_before }
    }

    fn refill(&mut self, now: Moment) {
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
        }
    }

    /// The pace as it was kept. A wall clock that was set meanwhile costs at most [`MOST`].
    pub fn resume(record: &Record, now: Moment) -> Self {
        let wall = seconds(now.wall);
        let wait = Duration::from_secs(record.not_before.saturating_sub(wall)).min(MOST);
        let passed = Duration::from_secs(wall.saturating_sub(record.refilled));
        let refilled = Moment {
            boot: now.boot.saturating_sub(passed),
            wall: now.wall.checked_sub(passed).unwrap_or(SystemTime::UNIX_EPOCH),
        };
        Self {
            failures: record.failures,
            clock_failures: 0,
            not_before: now + wait,
            logins: record.logins.min(LOGINS),
            refilled,
        }
    }
}

/// The longest wait that a server, a clock or a record can impose.
pub const MOST: Duration = Duration::from_mins(15);

/// Logins that nothing had planned: so many at once, then one each [`REFILL`].
const LOGINS: u32 = 8;
const REFILL: Duration = Duration::from_mins(2);

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
}

/// Whole seconds since 1970, rounded up so that a wait never shrinks by being kept.
fn seconds(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs() + u64::from(it.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn the_wait_fits_the_failure() {
        let check = |before: u32, failure, asked: Option<u64>, unit: f64, wanted: u64| {
            let mut pace = Pace::new(at(1000));
            pace.failures = before;
            pace.failed(at(1000), failure, asked.map(Duration::from_secs), unit);
            assert_eq!(pace.not_before(), at(1000 + wanted), "{before} {failure:?} {asked:?} {unit}");
            assert_eq!(pace.failures(), before + 1);
        };
        check(0, Failure::Passing, None, 1.0, 1);
        check(4, Failure::Passing, None, 0.5, 8);
        check(40, Failure::Passing, None, 1.0, 300);
        check(0, Failure::Passing, Some(7), 0.0, 7);
        check(0, Failure::Passing, Some(8), 1.0, 12);
        check(0, Failure::Passing, Some(999_999), 0.0, 900);
        check(40, Failure::Passing, Some(1), 1.0, 300);
        check(0, Failure::Identity, None, 0.0, 5);
        check(40, Failure::Identity, None, 0.0, 150);
        check(0, Failure::Refused, None, 0.0, 150);
        check(9, Failure::Refused, None, 1.0, 300);
        check(0, Failure::Refused, Some(600), 0.0, 600);
        check(0, Failure::Clock(Duration::from_secs(40)), None, 0.0, 40);
        check(0, Failure::Clock(Duration::ZERO), None, 0.0, 1);
        check(0, Failure::Clock(Duration::from_hours(9)), None, 0.0, 900);
    }

    #[test]
    fn a_clock_that_stays_wrong_is_tried_slowly_after_one_fetch() {
        let mut pace = Pace::new(at(0));
        pace.failed(at(0), Failure::Clock(Duration::ZERO), None, 0.0);
        assert_eq!(pace.not_before(), at(1));
        pace.failed(at(1), Failure::Clock(Duration::ZERO), None, 0.0);
        assert_eq!(pace.not_before(), at(151));
    }

    #[test]
    fn logins_that_nothing_planned_come_from_a_bucket() {
        let mut pace = Pace::new(at(0));
        for _ in 0..LOGINS {
            assert_eq!(pace.earliest_login(at(10)), at(10));
            pace.take(at(10));
        }
        assert_eq!(pace.earliest_login(at(10)), at(130));
        assert_eq!(pace.earliest_login(at(130)), at(130));
        pace.take(at(130));
        assert_eq!(pace.earliest_login(at(131)), at(250));
        let resumed = Pace::resume(&pace.record(), at(200)).earliest_login(at(200));
        assert_eq!(resumed, at(250), "a restart refills nothing");
    }

    #[test]
    fn a_restart_keeps_the_wait_and_a_clock_set_meanwhile_cannot_make_it_long() {
        let mut pace = Pace::new(at(1000));
        pace.failed(at(1000), Failure::Refused, None, 0.0);
        let record = pace.record();
        assert_eq!(Pace::resume(&record, at(1050)).not_before(), at(1150));
        assert_eq!(Pace::resume(&record, at(1050)).failures(), 1);
        assert_eq!(Pace::resume(&record, at(5000)).not_before(), at(5000));
        assert_eq!(Pace::resume(&record, at(10)).not_before(), at(910));
    }
}
