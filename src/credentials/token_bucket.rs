//! Token bucket: allows some actions at once, and after them one per interval. Pure: time is passed in.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, SystemTime};

use keyward_machine::clock::ClockReading;

/// Actions that are still allowed: `size` at once, and one more in each `refill`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBucket {
    /// At least 1.
    size: u32,
    refill: Duration,
    remaining: u32,
    /// Time of the last refill, or of the first action since the bucket was full.
    refilled: ClockReading,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub const fn full(size: u32, refill: Duration) -> Self {
        // The first action sets the time, as it does of every full bucket.
        let refilled = ClockReading { boot: Duration::ZERO, wall: SystemTime::UNIX_EPOCH };
        Self { size, refill, remaining: size, refilled }
    }

    /// Restores a bucket of this rate from its saved state; more actions than its size are never left.
    #[must_use]
    pub fn restored(self, remaining: u32, refilled: ClockReading) -> Self {
        Self { remaining: remaining.min(self.size), refilled, ..self }
    }

    /// Returns the actions allowed at once.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the state to be saved: the actions left and the time of the last refill.
    pub const fn to_saved(&self) -> (u32, ClockReading) {
        (self.remaining, self.refilled)
    }

    /// Changes the time in which one more action becomes allowed. What is left stays.
    pub const fn set_refill(&mut self, refill: Duration) {
        self.refill = refill;
    }

    /// Returns true if both allow as much.
    pub fn has_rate_of(&self, other: &Self) -> bool {
        (self.size, self.refill) == (other.size, other.refill)
    }

    /// Returns the number of actions allowed now.
    pub fn available(&mut self, now: ClockReading) -> u32 {
        let interval = self.refill.max(Duration::from_nanos(1));
        let refills = now.since(self.refilled).as_nanos() / interval.as_nanos();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX).min(self.size.saturating_sub(self.remaining));
        self.remaining += refills;
        self.refilled = self.refilled + interval * refills;
        self.remaining
    }

    /// Returns the time at which `cost` actions are allowed; not after `now` if they are allowed now.
    pub fn available_at(&mut self, now: ClockReading, cost: u32) -> ClockReading {
        match cost.saturating_sub(self.available(now)) {
            0 => now,
            missing => self.refilled + self.refill * missing,
        }
    }

    /// Takes `cost` actions, or all that are left.
    pub fn take(&mut self, now: ClockReading, cost: u32) {
        if self.available(now) >= self.size {
            self.refilled = now;
        }
        self.remaining = self.remaining.saturating_sub(cost);
    }

    /// Takes an action.
    ///
    /// # Errors
    /// None is allowed now; the value is the time until the next one is.
    pub fn try_take(&mut self, now: ClockReading) -> Result<(), Duration> {
        if self.available(now) == 0 {
            return Err(now.until(self.refilled + self.refill));
        }
        self.take(now, 1);
        Ok(())
    }

    /// Allows at least one action.
    pub(crate) fn allow_one(&mut self) {
        self.remaining = self.remaining.max(1);
    }
}

/// A bucket for each key, all of one rate, in bounded memory: a full one is not stored.
#[derive(Debug)]
pub struct KeyedBuckets<K> {
    full: TokenBucket,
    max: usize,
    used: HashMap<K, TokenBucket>,
}

impl<K: Eq + Hash> KeyedBuckets<K> {
    /// Creates full buckets. If more than `max` keys are limited at once, all are reset.
    pub fn new(full: TokenBucket, max: usize) -> Self {
        Self { full, max, used: HashMap::new() }
    }

    /// Takes an action of one key.
    ///
    /// # Errors
    /// None is allowed now; the value is the time until the next one is.
    pub fn try_take(&mut self, key: K, now: ClockReading) -> Result<(), Duration> {
        if self.used.len() >= self.max && !self.used.contains_key(&key) {
            self.used.retain(|_, bucket| bucket.available(now) < bucket.size);
            if self.used.len() >= self.max {
                self.used.clear();
            }
        }
        self.used.entry(key).or_insert_with(|| self.full.clone()).try_take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: TokenBucket = TokenBucket::full(3, Duration::from_secs(10));

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn a_full_bucket_allows_its_size_at_once_and_then_one_per_interval() {
        let mut bucket = FULL;
        let mut check = |second: u64, expected: Result<(), u64>| {
            assert_eq!(bucket.try_take(at(second)), expected.map_err(Duration::from_secs), "{second}");
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
        let mut bucket = FULL;
        assert_eq!(bucket.available_at(at(5), 2), at(5));
        bucket.take(at(5), 2);
        assert_eq!(bucket.available_at(at(6), 1), at(6));
        assert_eq!(bucket.available_at(at(6), 3), at(25));
        bucket.take(at(6), 2);
        assert_eq!((bucket.available(at(6)), bucket.available_at(at(6), 1)), (0, at(15)));
        bucket.allow_one();
        assert_eq!(bucket.available(at(6)), 1);
    }

    #[test]
    fn a_saved_bucket_is_not_refilled_and_never_over_its_size() {
        let mut bucket = FULL;
        bucket.take(at(0), 3);
        let (remaining, refilled) = bucket.to_saved();
        let mut restored = FULL.restored(remaining, refilled);
        assert_eq!((restored.available(at(9)), restored.available(at(10))), (0, 1));
        assert_eq!(FULL.restored(99, at(0)).available(at(0)), 3);
    }

    #[test]
    fn a_rate_without_an_interval_allows_everything() {
        let mut bucket = TokenBucket::full(1, Duration::ZERO);
        bucket.take(at(1), 1);
        assert_eq!(bucket.available_at(at(2), 1), at(2));
    }

    #[test]
    fn memory_is_bounded_and_limited_keys_outlive_idle_ones() {
        let mut buckets = KeyedBuckets::new(TokenBucket::full(2, Duration::from_secs(1)), 1000);
        for key in 0..999 {
            assert!(buckets.try_take(key, at(0)).is_ok());
        }
        assert!(buckets.try_take(5000, at(2)).is_ok() && buckets.try_take(5000, at(2)).is_ok());
        assert!(buckets.try_take(5001, at(2)).is_ok());
        assert_eq!(buckets.used.len(), 2);
        assert!(buckets.try_take(5000, at(2)).is_err());
        for key in 0..9999 {
            let _ = buckets.try_take(key, at(2));
            assert!(buckets.used.len() <= 1000);
        }
    }
}
