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
    unsuccessful: u32,
    last: Option<ClockReading>,
}

impl ReplacementLimiter {
    /// Records that the server knows the token.
    pub(super) const fn confirm(&mut self) {
        self.unsuccessful = 0;
    }

    /// Returns true, and counts a login, if one may replace the token now.
    pub(super) fn allow(&mut self, now: ClockReading) -> bool {
        let wait = match self.unsuccessful {
            0 => Duration::ZERO,
            times => (MIN_DELAY * 4_u32.saturating_pow(times - 1)).min(MAX_DELAY),
        };
        let allowed = self.last.is_none_or(|last| now.since(last) >= wait);
        if allowed {
            self.last = Some(now);
            self.unsuccessful = self.unsuccessful.saturating_add(1).min(MAX_COUNTED);
        }
        allowed
    }
}

const MIN_DELAY: Duration = Duration::from_mins(1);
const MAX_DELAY: Duration = Duration::from_mins(15);
/// Beyond this the wait is [`MAX_DELAY`] anyway.
const MAX_COUNTED: u32 = 8;

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
        assert_eq!(allowed, [0, 60, 300, 1200, 2100, 3000]);
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
