//! Decides the next renewal or login of a token. Pure: time and randomness are passed in.

use std::time::Duration;

use keyward_credentials::backoff::time_to_renewal;
use keyward_machine::clock::ClockReading;

/// Lease of the current token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLifetime {
    /// Start of the lease: the login, or the last renewal.
    pub obtained: ClockReading,
    /// End of the lease; `None` for a token without expiry.
    pub ends: Option<ClockReading>,
    /// Full duration of the lease, as granted at `obtained`.
    pub ttl: Duration,
    /// True if the server may renew the token.
    pub renewable: bool,
}

/// Outcome of the last login or renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastOutcome {
    /// A login or a renewal succeeded.
    Succeeded,
    /// The server refused the renewal; the token is valid until its end.
    RenewalRefused,
    /// A renewal or a login failed; the caller passes in when the next one is allowed.
    Failed,
}

/// Earliest times of the next attempts, after failures or a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotBefore {
    /// No renewal is sent before this.
    pub renewal: ClockReading,
    /// No login is sent before this.
    pub login: ClockReading,
}

/// The next action of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Renew the token.
    RenewAt(ClockReading),
    /// Log in; the old token, if there is one, is served to its end meanwhile.
    LoginAt(ClockReading),
    /// Do nothing: the token has no expiry.
    Idle,
}

impl NextStep {
    /// Names of all steps, for status and metrics.
    pub(crate) const NAMES: [&str; 3] = ["renew", "login", "wait"];

    /// Returns the name of the step.
    pub(crate) const fn name(&self) -> &'static str {
        let [renew, login, wait] = Self::NAMES;
        match self {
            Self::RenewAt(_) => renew,
            Self::LoginAt(_) => login,
            Self::Idle => wait,
        }
    }

    /// Returns the time of the action; `None` for [`NextStep::Idle`].
    pub const fn at(&self) -> Option<ClockReading> {
        match self {
            Self::RenewAt(at) | Self::LoginAt(at) => Some(*at),
            Self::Idle => None,
        }
    }
}

/// Returns the next step for the current token, or for a session without one.
///
/// `unit` is a random number in `0.0..1.0`.
pub fn next_step(
    current: Option<&TokenLifetime>,
    last: LastOutcome,
    earliest: NotBefore,
    now: ClockReading,
    unit: f64,
) -> NextStep {
    let Some(lifetime) = current else { return NextStep::LoginAt(earliest.login.later(now)) };
    let Some(ends) = lifetime.ends else { return NextStep::Idle };
    match last {
        LastOutcome::Succeeded => {
            let due = (lifetime.obtained + time_to_renewal(lifetime.ttl, unit)).later(now);
            // A look-up may have shortened the lease since it was granted: one attempt must still fit into it.
            let due = if due.until(ends).is_zero() { now + time_to_renewal(now.until(ends), 0.0) } else { due };
            if lifetime.renewable { NextStep::RenewAt(due) } else { NextStep::LoginAt(due) }
        }
        LastOutcome::RenewalRefused => NextStep::LoginAt(now + now.until(ends).mul_f64(unit * SPREAD)),
        LastOutcome::Failed => {
            let due = earliest.renewal.later(now);
            // While renewals fail, a login may still succeed: the last tenth of the lease is reserved for logins.
            let time_to_renew = due.until(ends) > lifetime.ttl / 10;
            if lifetime.renewable && time_to_renew {
                NextStep::RenewAt(due)
            } else {
                NextStep::LoginAt(earliest.login.later(now))
            }
        }
    }
}

/// Returns true if a renewal granted the full lease again: `ttl` is at least nine tenths of `granted`.
///
/// A shorter lease means that the token nears its maximum TTL, so that each further renewal grants less.
pub(crate) fn still_grows(granted: Duration, ttl: Duration) -> bool {
    ttl.saturating_mul(10) >= granted.saturating_mul(9)
}

/// Share of the remaining lease that logins are spread over; the rest is left for retries.
const SPREAD: f64 = 2.0 / 3.0;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    fn lifetime(obtained: u64, ttl: u64, renewable: bool) -> TokenLifetime {
        let ends = (ttl > 0).then(|| at(obtained + ttl));
        TokenLifetime { obtained: at(obtained), ends, ttl: Duration::from_secs(ttl), renewable }
    }

    fn check(token: Option<TokenLifetime>, last: LastOutcome, earliest: u64, now: u64, unit: f64, expected: NextStep) {
        let earliest = NotBefore { renewal: at(earliest), login: at(earliest) };
        let found = next_step(token.as_ref(), last, earliest, at(now), unit);
        assert_eq!(found, expected, "{token:?} {last:?} {earliest:?} now {now} unit {unit}");
    }

    #[test]
    fn each_step_has_its_name() {
        let steps = [NextStep::RenewAt(at(1)), NextStep::LoginAt(at(1)), NextStep::Idle];
        assert_eq!(steps.map(|step| step.name()), ["renew", "login", "wait"]);
        assert_eq!(NextStep::NAMES, ["renew", "login", "wait"]);
    }

    #[test]
    fn a_good_token_is_renewed_or_replaced_near_two_thirds_of_its_lease() {
        let renewable = Some(lifetime(1000, 3600, true));
        check(renewable, LastOutcome::Succeeded, 0, 1000, 0.0, NextStep::RenewAt(at(1000 + 2268)));
        check(renewable, LastOutcome::Succeeded, 0, 1000, 1.0, NextStep::RenewAt(at(1000 + 2520)));
        check(renewable, LastOutcome::Succeeded, 0, 4000, 0.0, NextStep::RenewAt(at(4000)));
        check(
            Some(lifetime(1000, 3600, false)),
            LastOutcome::Succeeded,
            0,
            1000,
            0.0,
            NextStep::LoginAt(at(1000 + 2268)),
        );
    }

    #[test]
    fn a_shortened_lease_still_gets_an_attempt() {
        let mut cut = lifetime(1000, 3600, true);
        cut.ends = Some(at(1100));
        check(Some(cut), LastOutcome::Succeeded, 0, 1000, 0.5, NextStep::RenewAt(at(1063)));
    }

    #[test]
    fn a_refused_renewal_leads_to_a_login_spread_over_the_rest_of_the_lease() {
        let current = Some(lifetime(0, 3600, false));
        check(current, LastOutcome::RenewalRefused, 0, 2400, 0.0, NextStep::LoginAt(at(2400)));
        check(current, LastOutcome::RenewalRefused, 0, 2400, 0.75, NextStep::LoginAt(at(3000)));
        check(current, LastOutcome::RenewalRefused, 0, 2400, 1.0, NextStep::LoginAt(at(3200)));
        check(current, LastOutcome::RenewalRefused, 0, 3600, 1.0, NextStep::LoginAt(at(3600)));
    }

    #[test]
    fn after_a_failure_the_last_tenth_of_the_lease_is_for_logins() {
        let current = Some(lifetime(0, 3600, true));
        check(current, LastOutcome::Failed, 2500, 2400, 0.5, NextStep::RenewAt(at(2500)));
        check(current, LastOutcome::Failed, 2300, 2400, 0.5, NextStep::RenewAt(at(2400)));
        check(current, LastOutcome::Failed, 3239, 2400, 0.5, NextStep::RenewAt(at(3239)));
        check(current, LastOutcome::Failed, 3240, 2400, 0.5, NextStep::LoginAt(at(3240)));
        check(current, LastOutcome::Failed, 4000, 3500, 0.5, NextStep::LoginAt(at(4000)));
        check(Some(lifetime(0, 3600, false)), LastOutcome::Failed, 2500, 2400, 0.5, NextStep::LoginAt(at(2500)));
    }

    #[test]
    fn failed_renewals_do_not_delay_logins() {
        let current = lifetime(0, 3600, true);
        let earliest = NotBefore { renewal: at(3300), login: at(0) };
        assert_eq!(
            next_step(Some(&current), LastOutcome::Failed, earliest, at(3200), 0.5),
            NextStep::LoginAt(at(3200))
        );
    }

    #[test]
    fn without_a_token_the_login_is_due_as_soon_as_allowed() {
        for last in [LastOutcome::Succeeded, LastOutcome::RenewalRefused, LastOutcome::Failed] {
            check(None, last, 50, 100, 0.5, NextStep::LoginAt(at(100)));
            check(None, last, 150, 100, 0.5, NextStep::LoginAt(at(150)));
        }
    }

    #[test]
    fn a_step_has_its_time_unless_nothing_is_to_be_done() {
        let times = [NextStep::RenewAt(at(7)), NextStep::LoginAt(at(8)), NextStep::Idle].map(|step| step.at());
        assert_eq!(times, [Some(at(7)), Some(at(8)), None]);
    }

    #[test]
    fn a_token_without_expiry_has_no_next_step() {
        for last in [LastOutcome::Succeeded, LastOutcome::RenewalRefused, LastOutcome::Failed] {
            check(Some(lifetime(0, 0, true)), last, 0, 100, 0.5, NextStep::Idle);
        }
    }

    #[test]
    fn a_shorter_lease_after_a_renewal_means_the_maximum_ttl_is_near() {
        let check = |granted, ttl, expected| {
            let grows = still_grows(Duration::from_secs(granted), Duration::from_secs(ttl));
            assert_eq!(grows, expected, "{granted} {ttl}");
        };
        check(3600, 3600, true);
        check(3600, 3599, true);
        check(3600, 7200, true);
        check(3600, 3240, true);
        check(3600, 3239, false);
        check(3600, 0, false);
    }
}
