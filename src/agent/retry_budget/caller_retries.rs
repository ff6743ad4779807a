//! Limits the logins that a session makes for waiting callers, sooner than its own backoff and from a bucket of their own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use keyward_credentials::token_bucket::TokenBucket;
use keyward_machine::clock::ClockReading;

/// Token bucket of attempts for callers. Pure: time and randomness are passed in.
///
/// It allows [`BUCKET_SIZE`] attempts at once and one each 21 s: with a session's own attempts at most 120 in half an hour.
/// After 32 minutes it allows one each 45 s, so that an hour stays within the request budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallerRetries(TokenBucket);

/// The bucket in the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallerRetriesRecord {
    left: u32,
    refilled: u64,
}

const BUCKET_SIZE: u32 = 12;
const SOON: Duration = Duration::from_mins(2);
const LONG: Duration = Duration::from_mins(32);

/// Returns the wait between two attempts, `age` after the first failure.
///
/// It is 4 to 9 s, 5 to 30 s after two minutes, and 30 to 60 s after 32 minutes. `unit` is a random number in `0.0..1.0`.
pub(super) fn spacing(age: Duration, unit: f64) -> Duration {
    let (min, range) = if age < SOON {
        (4.0, 5.0)
    } else if age < LONG {
        (5.0, 25.0)
    } else {
        (30.0, 30.0)
    };
    Duration::from_secs_f64(unit.mul_add(range, min))
}

const FULL: TokenBucket = TokenBucket::full(BUCKET_SIZE, refill(Duration::ZERO));

const fn refill(age: Duration) -> Duration {
    Duration::from_secs(if age.as_secs() < LONG.as_secs() { 21 } else { 45 })
}

impl CallerRetries {
    /// Creates a full bucket.
    pub(super) const fn new() -> Self {
        Self(FULL)
    }

    /// Returns the time at which the bucket holds `cost` attempts.
    pub(super) fn earliest(&mut self, now: ClockReading, age: Duration, cost: u32) -> ClockReading {
        self.0.set_refill(refill(age));
        self.0.available_at(now, cost)
    }

    /// Takes `cost` attempts.
    pub(super) fn take(&mut self, now: ClockReading, age: Duration, cost: u32) {
        self.0.set_refill(refill(age));
        self.0.take(now, cost);
    }

    /// Returns the record for the state file.
    pub(super) fn to_record(&self, seconds: impl Fn(ClockReading) -> u64) -> CallerRetriesRecord {
        let (left, refilled) = self.0.to_saved();
        CallerRetriesRecord { left, refilled: seconds(refilled) }
    }

    /// Restores the bucket from its record.
    pub(super) fn restore(record: &CallerRetriesRecord, moment: impl Fn(u64) -> ClockReading) -> Self {
        Self(FULL.restored(record.left, moment(record.refilled)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn at_most_100_tries_are_made_in_half_an_hour_and_145_in_an_hour() {
        for cost in [1, 2] {
            let mut tries = CallerRetries::new();
            let mut made = Vec::new();
            let mut now = 0;
            while now < 3600 {
                made.push(now);
                let age = Duration::from_secs(now);
                tries.take(at(now), age, cost);
                now = tries.earliest(at(now), age, cost).boot.as_secs();
            }
            let cost = usize::try_from(cost).unwrap();
            let early = made.iter().filter(|second| **second < 1800).count() * cost;
            assert!((90..=100).contains(&early), "{early}");
            assert!((130..=145).contains(&(made.len() * cost)), "{}", made.len());
            let loaded = CallerRetries::restore(&tries.to_record(|moment| moment.boot.as_secs()), at);
            assert_eq!(loaded.0.to_saved(), tries.0.to_saved(), "a restart refills nothing");
        }
    }

    #[test]
    fn tries_are_further_apart_the_longer_the_outage_lasts() {
        let check = |minutes: u64, min: u64, max: u64| {
            let age = Duration::from_mins(minutes);
            assert_eq!((spacing(age, 0.0).as_secs(), spacing(age, 1.0).as_secs()), (min, max), "{minutes}");
        };
        check(0, 4, 9);
        check(1, 4, 9);
        check(2, 5, 30);
        check(29, 5, 30);
        check(31, 5, 30);
        check(32, 30, 60);
        let seconds = |age: Duration| refill(age).as_secs();
        assert_eq!((seconds(LONG.saturating_sub(Duration::from_secs(1))), seconds(LONG)), (21, 45));
    }
}
