//! Computes waits: between retries, by exponential backoff with full jitter, and before renewals. Never sleeps itself.

use std::time::Duration;

/// Exponential backoff: each wait is a uniform share of a limit that doubles from `base` to `max`. Full jitter spreads
/// a fleet that failed together better than a share of the wait does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Backoff for calls to a server: 1 s to 5 min.
    pub(crate) const UPSTREAM: Self = Self::new(Duration::from_secs(1), Duration::from_mins(5));

    /// Creates a backoff whose limit starts at `base` and grows to `max`.
    pub(crate) const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: 0 }
    }

    /// Returns the backoff in the state after this many failures in a row.
    #[must_use]
    pub(crate) const fn after(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// Returns the number of failures since the last success.
    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// Resets the count of failures.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Records a failure and returns the wait after it. `unit` is a random number in `0.0..1.0`.
    pub(crate) fn next(&mut self, unit: f64) -> Duration {
        let limit = self.base.saturating_mul(1_u32 << self.failures.min(20)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        limit.mul_f64(unit.clamp(0.0, 1.0))
    }
}

/// Returns the time after which a credential is renewed or replaced: 63 to 70 % of its lifetime, so that its successor is there
/// before it ends, and a fleet that started together spreads out. `unit` is a random number in `0.0..1.0`.
pub(crate) fn time_to_renewal(lifetime: Duration, unit: f64) -> Duration {
    lifetime.mul_f64(0.07f64.mul_add(unit, 0.63))
}

/// Returns a random number in `0.0..1.0` from the system's generator; 0.5 if that fails, which spreads nothing but is
/// safe.
pub(crate) fn random_unit() -> f64 {
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
        assert_eq!(Backoff::UPSTREAM.after(u32::MAX).next(1.0), Duration::from_mins(5));
    }

    #[test]
    fn random_units_stay_in_range() {
        assert!((0..1000).map(|_| random_unit()).all(|unit| (0.0..1.0).contains(&unit)));
    }
}
