//! Token bucket: allows some actions at once, and after them one per interval. Pure: time is passed in.

use std::time::Duration;

use keyward_machine::clock::ClockReading;

/// Bounds of a [`TokenBucket`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketRate {
    /// Actions allowed at once; at least 1.
    pub size: u32,
    /// Time in which one more action becomes allowed.
    pub refill: Duration,
}

/// Actions that are still allowed. The rate is passed to each call, as that of some buckets changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBucket {
    remaining: u32,
    /// Time of the last refill, or of the first action since the bucket was full.
    refilled: ClockReading,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub const fn full(rate: BucketRate, now: ClockReading) -> Self {
        Self { remaining: rate.size, refilled: now }
    }

    /// Restores a bucket from its saved state; more actions than its size are never left.
    pub fn restore(rate: BucketRate, remaining: u32, refilled: ClockReading) -> Self {
        Self { remaining: remaining.min(rate.size), refilled }
    }

    /// Returns the state to be saved: the actions left and the time of the last refill.
    pub const fn to_saved(&self) -> (u32, ClockReading) {
        (self.remaining, self.refilled)
    }

    /// Returns the number of actions allowed now.
    pub fn available(&mut self, rate: BucketRate, now: ClockReading) -> u32 {
        let interval = rate.refill.max(Duration::from_nanos(1));
        let refills = now.since(self.refilled).as_nanos() / interval.as_nanos();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX).min(rate.size.saturating_sub(self.remaining));
        self.remaining += refills;
        self.refilled = self.refilled + interval * refills;
        self.remaining
    }

    /// Returns the time at which `cost` actions are allowed; not after `now` if they are allowed now.
    pub fn available_at(&mut self, rate: BucketRate, now: ClockReading, cost: u32) -> ClockReading {
        match cost.saturating_sub(self.available(rate, now)) {
            0 => now,
            missing => self.refilled + rate.refill * missing,
        }
    }

    /// Takes `cost` actions, or all that are left.
    pub fn take(&mut self, rate: BucketRate, now: ClockReading, cost: u32) {
        if self.available(rate, now) >= rate.size {
            self.refilled = now;
        }
        self.remaining = self.remaining.saturating_sub(cost);
    }

    /// Takes an action.
    ///
    /// # Errors
    /// None is allowed now; the value is the time until the next one is.
    pub fn try_take(&mut self, rate: BucketRate, now: ClockReading) -> Result<(), Duration> {
        if self.available(rate, now) == 0 {
            return Err(now.until(self.refilled + rate.refill));
        }
        self.take(rate, now, 1);
        Ok(())
    }

    /// Allows at least one action.
    pub(crate) fn allow_one(&mut self) {
        self.remaining = self.remaining.max(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const RATE: BucketRate = BucketRate { size: 3, refill: Duration::from_secs(10) };

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn a_full_bucket_allows_its_size_at_once_and_then_one_per_interval() {
        let mut bucket = TokenBucket::full(RATE, at(0));
        let mut check = |second: u64, expected: Result<(), u64>| {
            assert_eq!(bucket.try_take(RATE, at(second)), expected.map_err(Duration::from_secs), "{second}");
        };
        // The refill counts from the first action, not from the creation.
        for _ in 0..3 {
            check(100, Ok(()));
        }
        check(100, Err(10));
        check(109, Err(1));
        check(110, Ok(()));
        check(115, Err(5));
        check(125, Ok(()));
        check(125, Err(5));
        check(130, Ok(()));
        for _ in 0..3 {
            check(1000, Ok(()));
        }
        check(1000, Err(10));
    }

    #[test]
    fn costs_over_what_is_left_wait_for_several_refills() {
        let mut bucket = TokenBucket::full(RATE, at(0));
        assert_eq!(bucket.available_at(RATE, at(5), 2), at(5));
        bucket.take(RATE, at(5), 2);
        assert_eq!(bucket.available_at(RATE, at(6), 1), at(6));
        assert_eq!(bucket.available_at(RATE, at(6), 3), at(25));
        bucket.take(RATE, at(6), 2);
        assert_eq!((bucket.available(RATE, at(6)), bucket.available_at(RATE, at(6), 1)), (0, at(15)));
        bucket.allow_one();
        assert_eq!(bucket.available(RATE, at(6)), 1);
    }

    #[test]
    fn a_saved_bucket_is_not_refilled_and_never_over_its_size() {
        let mut bucket = TokenBucket::full(RATE, at(0));
        bucket.take(RATE, at(0), 3);
        let (remaining, refilled) = bucket.to_saved();
        let mut restored = TokenBucket::restore(RATE, remaining, refilled);
        assert_eq!((restored.available(RATE, at(9)), restored.available(RATE, at(10))), (0, 1));
        assert_eq!(TokenBucket::restore(RATE, 99, at(0)).available(RATE, at(0)), 3);
    }

    #[test]
    fn a_rate_without_an_interval_allows_everything() {
        let rate = BucketRate { size: 1, refill: Duration::ZERO };
        let mut bucket = TokenBucket::full(rate, at(0));
        bucket.take(rate, at(1), 1);
        assert_eq!(bucket.available_at(rate, at(2), 1), at(2));
    }
}
