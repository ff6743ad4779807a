//! Length of a failure, for the event that reports its end: each `*.recovered` event tells it as `lasted`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, ClockReading};

/// A failure from its first occurrence to the next success.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<ClockReading>,
}

impl Outage {
    /// Records a failure. Returns true if the outage begins with it.
    pub(crate) fn begin(&mut self, now: ClockReading) -> bool {
        let begins = self.since.is_none();
        self.since.get_or_insert(now);
        begins
    }

    /// Records a success. Returns the length of the outage that ends with it, formatted; `None` if nothing had failed.
    pub(crate) fn end(&mut self, now: ClockReading) -> Option<String> {
        self.since.take().map(|since| format_length(now.since(since)))
    }
}

/// An outage that concurrent requests record. Without one, a success costs one atomic read.
#[derive(Debug, Default)]
pub(crate) struct SharedOutage {
    is_ongoing: AtomicBool,
    outage: Mutex<Outage>,
}

impl SharedOutage {
    /// Records a failure. Returns true if the outage begins with it.
    pub(crate) fn begin(&self, clock: &Clock) -> bool {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_ongoing.store(true, Ordering::Relaxed);
        outage.begin(clock.now())
    }

    /// Records a success. Returns the length of the outage that ends with it, formatted; `None` if nothing had failed.
    pub(crate) fn end(&self, clock: &Clock) -> Option<String> {
        if !self.is_ongoing() {
            return None;
        }
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_ongoing.store(false, Ordering::Relaxed);
        outage.end(clock.now())
    }

    /// Returns true after a failure until the next success.
    pub(crate) fn is_ongoing(&self) -> bool {
        self.is_ongoing.load(Ordering::Relaxed)
    }
}

/// Formats the length of an outage in whole seconds, such as `4m 32s`.
pub(crate) fn format_length(length: Duration) -> String {
    humantime::format_duration(Duration::from_secs(length.as_secs())).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn an_outage_lasts_from_its_first_failure_to_the_next_success() {
        let driven = TestClock::starting_at(SystemTime::UNIX_EPOCH);
        let clock = Clock::Test(driven.clone());
        let outage = SharedOutage::default();
        assert_eq!(outage.end(&clock), None);
        assert!(outage.begin(&clock) && outage.is_ongoing());
        driven.suspend(Duration::from_millis(272_900));
        assert!(!outage.begin(&clock), "one outage has one beginning");
        assert_eq!(outage.end(&clock).as_deref(), Some("4m 32s"));
        assert!(!outage.is_ongoing() && outage.end(&clock).is_none());
        assert!(outage.begin(&clock));
        assert_eq!(outage.end(&clock).as_deref(), Some("0s"));
    }
}
