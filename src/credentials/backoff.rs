//! Computes waits: between retries, by exponential backoff with full jitter, and before renewals. Never sleeps itself.

use std::time::Duration;

/// Exponential backoff with full jitter: each wait is a uniform random share of a limit that doubles from `base` to `max`.
/// Full jitter spreads a fleet that failed together best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Backoff for calls to a server: 1 s to 5 min.
    pub const UPSTREAM: Self = Self::new(Duration::from_secs(1), Duration::from_mins(5));

    /// Creates a backoff whose limit starts at `base` and grows to `max`.
    pub const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: 0 }
    }

    /// Returns the backoff in the state after this many failures in a row.
    #[must_use]
    pub const fn with_failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// Returns the number of failures since the last success.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Resets the count of failures.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Records a failure and returns the wait after it. `unit` is a random number in `0.0..1.0`.
    pub fn next(&mut self, unit: f64) -> Duration {
        let limit = self.base.saturating_mul(1_u32 << self.failures.min(20)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        limit.mul_f64(unit.clamp(0.0, 1.0))
    }

    /// Like [`Backoff::next`], with at least half of the limit: the wait is at most twice the time since the first failure, and `base`
    /// more. For files and programs of this machine, where no fleet fails together and short waits in a row would bring a long one.
    pub fn next_half_jitter(&mut self, unit: f64) -> Duration {
        self.next(0.5 + unit.clamp(0.0, 1.0) / 2.0)
    }
}

/// Returns the time after which a credential is renewed or replaced: 63 to 70 % of its lifetime, so that its successor is there
/// before it ends, and a fleet that started together spreads out. `unit` is a random number in `0.0..1.0`.
pub fn time_to_renewal(lifetime: Duration, unit: f64) -> Duration {
    lifetime.mul_f64(0.07f64.mul_add(unit, 0.63))
}

/// Returns a random number in `0.0..1.0` from the system's generator; 0.5 if that fails, which spreads nothing but is
/// safe.
pub fn random_unit() -> f64 {
    let mut bytes = [0_u8; 4];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_doubles_up_to_the_maximum_and_restarts_after_a_reset() {
        let mut backoff = Backoff::UPSTREAM;
        let waits: Vec<u64> = (0..11).map(|_| backoff.next(1.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff.failures(), 11);
        backoff.reset();
        assert_eq!(backoff.next(0.5), Duration::from_millis(500));
        assert_eq!(Backoff::UPSTREAM.with_failures(u32::MAX).next(1.0), Duration::from_mins(5));
    }

    #[test]
    fn with_half_of_the_jitter_the_next_try_is_at_most_twice_as_far_away_as_the_first_failure() {
        let base = Duration::from_secs(1);
        let mut units = [0.0, 1.0, 0.0, 0.3, 0.9, 0.0, 0.0, 1.0].into_iter().cycle();
        let mut backoff = Backoff::new(base, Duration::from_mins(1));
        let mut elapsed = Duration::ZERO;
        for _ in 0..24 {
            let wait = backoff.next_half_jitter(units.next().unwrap());
            assert!(wait <= elapsed * 2 + base && wait >= base / 2, "{wait:?} after {elapsed:?}");
            elapsed += wait;
        }
    }

    #[test]
    fn random_units_stay_in_range() {
        assert!((0..1000).map(|_| random_unit()).all(|unit| (0.0..1.0).contains(&unit)));
    }
}
