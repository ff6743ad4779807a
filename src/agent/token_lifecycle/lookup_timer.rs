//! Decides when a session looks up its token: at intervals, and after clock changes. Time is passed in.

use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_credentials::token_bucket::TokenBucket;
use keyward_machine::clock::ClockReading;

use super::current_token::CurrentToken;

/// Time of the next look-up, and the clock changes that may cause calls.
#[derive(Debug)]
pub(super) struct LookupTimer {
    next: Option<ClockReading>,
    clock_changes: TokenBucket,
}

impl Default for LookupTimer {
    fn default() -> Self {
        Self { next: None, clock_changes: TokenBucket::full(1, Duration::from_mins(1)) }
    }
}

impl LookupTimer {
    /// Time of the next look-up; `None` if there is none.
    pub(super) const fn next(&self) -> Option<ClockReading> {
        self.next
    }

    /// Plans the first look-up of a token. It is soon and shows whether the policies allow look-ups at all; without that a
    /// later denial would mean nothing.
    pub(super) fn plan_first(&mut self, current: &CurrentToken, interval: Option<Duration>, now: ClockReading) {
        let first = Duration::from_secs(5).mul_f64(1.0 + 2.0 * random_unit());
        let interval = interval.filter(|_| current.supports_lookup());
        self.next = interval.map(|interval| now + first.min(interval));
    }

    /// Plans the look-up after one, or after a renewal.
    pub(super) fn plan_next(&mut self, current: &CurrentToken, interval: Option<Duration>, now: ClockReading) {
        let interval = interval.filter(|_| current.supports_lookup());
        self.next = interval.map(|interval| next_check(now, interval, random_unit()));
    }

    /// Plans a look-up now.
    pub(super) const fn plan_now(&mut self, now: ClockReading) {
        self.next = Some(now);
    }

    /// Plans a look-up at `at`, if none is planned before.
    pub(super) fn plan_before(&mut self, at: ClockReading) {
        if self.next.is_none_or(|next| at.boot < next.boot) {
            self.next = Some(at);
        }
    }

    /// Plans none, until another call does.
    pub(super) const fn clear(&mut self) {
        self.next = None;
    }

    /// Returns true, and counts it, if a clock change may cause a look-up or a login: a clock that is set all the time must not
    /// cause calls all the time.
    pub(super) fn allow_after_clock_change(&mut self, now: ClockReading) -> bool {
        self.clock_changes.try_take(now).is_ok()
    }
}

/// Returns the time of the next look-up: `interval` from now, a tenth more or less.
fn next_check(now: ClockReading, interval: Duration, unit: f64) -> ClockReading {
    now + interval.mul_f64(0.9 + 0.2 * unit)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn checks_are_spread_around_their_interval() {
        let interval = Duration::from_mins(5);
        assert_eq!(next_check(at(0), interval, 0.0), at(270));
        assert_eq!(next_check(at(0), interval, 1.0), at(330));
    }
}
