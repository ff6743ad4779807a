//! Limits how often a login replaces a token that is only suspect.

use std::time::Duration;

use keyward_machine::clock::ClockReading;

/// Limits logins that replace suspect tokens. Pure: time is passed in.
///
/// The server rejects a token from an address outside its `bound_cidrs` with the error of a dead token, and also rejects
/// the next token of the role. Each login that changed nothing therefore delays the next one, until a look-up succeeds.
#[derive(Debug, Default)]
pub(super) struct ReplacementLimiter {
    /// Logins since a token was last seen alive.
    unsuccessful: usize,
    last: Option<ClockReading>,
}

impl ReplacementLimiter {
    /// Records that the server knows the token.
    pub(super) const fn confirm(&mut self) {
        self.unsuccessful = 0;
    }

    /// Returns true, and counts a login, if one may replace the token now.
    pub(super) fn allow(&mut self, now: ClockReading) -> bool {
        let allowed = now.until(self.next(now)).is_zero();
        if allowed {
            self.last = Some(now);
            self.unsuccessful = self.unsuccessful.saturating_add(1);
        }
        allowed
    }

    /// Returns the time from which a login may replace the token.
    pub(super) fn next(&self, now: ClockReading) -> ClockReading {
        let wait = match self.unsuccessful {
            0 => Duration::ZERO,
            times => DELAYS[times.min(DELAYS.len()) - 1],
        };
        self.last.map_or(now, |last| last + wait)
    }
}

/// Waits after the logins; the last one is repeated. The first one is short: a token that dies before the server has confirmed it is
/// no longer refused to callers than a login may take.
const DELAYS: [Duration; 4] =
    [Duration::from_secs(10), Duration::from_mins(1), Duration::from_mins(4), Duration::from_mins(15)];

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    #[test]
    fn logins_that_change_nothing_are_delayed_more_and_more() {
        let mut limit = ReplacementLimiter::default();
        let allowed: Vec<_> = (0..3600).filter(|second| limit.allow(at(*second))).collect();
        assert_eq!(allowed, [0, 10, 70, 310, 1210, 2110, 3010]);
    }

    #[test]
    fn a_token_that_was_seen_alive_may_be_replaced_at_once() {
        let mut limit = ReplacementLimiter::default();
        for second in 0..100 {
            assert!(limit.allow(at(second)));
            assert!(!limit.allow(at(second)));
            limit.confirm();
        }
    }
}
