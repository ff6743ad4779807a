//! Length of a failure, for the event that reports its end: each `*.recovered` event has it as `lasted_seconds`.

use std::sync::atomic::{AtomicBool, Ordering};

use keyward_machine::clock::{Clock, ClockReading};
use parking_lot::Mutex;

use crate::time_format::seconds;

/// A failure from its first occurrence to the next success.
#[derive(Debug, Default)]
pub struct Outage {
    since: Option<ClockReading>,
}

impl Outage {
    /// Records a failure. Returns true if the outage begins with it.
    pub fn record_failure(&mut self, now: ClockReading) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert(now);
        begins
    }

    /// Records a success. Returns the length of the outage that ends with it, in seconds; `None` if nothing had failed.
    pub fn record_success(&mut self, now: ClockReading) -> Option<f64> {
        self.since.take().map(|since| seconds(now.since(since)))
    }
}

/// An outage that concurrent requests record. Without one, a success costs one atomic read.
#[derive(Debug, Default)]
pub struct SharedOutage {
    is_ongoing: AtomicBool,
    outage: Mutex<Outage>,
}

impl SharedOutage {
    /// Records a failure. Returns true if the outage begins with it.
    pub fn record_failure(&self, clock: &Clock) -> bool {
        let mut outage = self.outage.lock();
        self.is_ongoing.store(true, Ordering::Relaxed);
        outage.record_failure(clock.now())
    }

    /// Records a success. Returns the length of the outage that ends with it, in seconds; `None` if nothing had failed.
    pub fn record_success(&self, clock: &Clock) -> Option<f64> {
        if !self.is_ongoing() {
            return None;
        }
        let mut outage = self.outage.lock();
        self.is_ongoing.store(false, Ordering::Relaxed);
        outage.record_success(clock.now())
    }

    /// Returns true after a failure until the next success.
    pub fn is_ongoing(&self) -> bool {
        self.is_ongoing.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use keyward_machine::clock::TestClock;

    use super::*;

    #[test]
    fn an_outage_lasts_from_its_first_failure_to_the_next_success() {
        let test_clock = TestClock::starting_at(SystemTime::UNIX_EPOCH);
        let clock = Clock::Test(test_clock.clone());
        let outage = SharedOutage::default();
        let record_success = || outage.record_success(&clock).map(|seconds| seconds.to_string());
        assert_eq!(record_success(), None);
        assert!(outage.record_failure(&clock) && outage.is_ongoing());
        test_clock.suspend(Duration::from_millis(272_900));
        assert!(!outage.record_failure(&clock), "one outage has one beginning");
        assert_eq!(record_success().as_deref(), Some("272.9"));
        assert!(!outage.is_ongoing() && record_success().is_none());
        assert!(outage.record_failure(&clock));
        assert_eq!(record_success().as_deref(), Some("0"));
    }
}
