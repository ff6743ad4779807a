//! What to do next about a token, and when. Pure: time and chance are passed in.

use std::time::Duration;

use crate::clock::ClockReading;

/// What is known of the token that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// When the lease began: the login, or the last renewal.
    pub obtained: ClockReading,
    /// When it ends; `None` for a token that never does.
    pub ends: Option<ClockReading>,
    /// The whole of the lease, as it was given at `obtained`.
    pub ttl: Duration,
    /// Whether asking for a renewal makes sense.
    pub renewable: bool,
}

/// How the last thing went that was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// A login or a renewal went well.
    Well,
    /// The server will not renew the token, which is good until its end.
    NotRenewed,
    /// A renewal or a login failed; the next try may be at the earliest moment that is passed in.
    Failed,
}

/// When tries may follow failures, or a new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earliest {
    /// For a renewal.
    pub renewal: ClockReading,
    /// For a login.
    pub login: ClockReading,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask for a renewal.
    RenewAt(ClockReading),
    /// Log in, while the old token (if there is one) is served to its end.
    LoginAt(ClockReading),
    /// Nothing is due: the token never ends.
    Rest,
}

impl Step {
    /// When it is due, if ever.
    pub const fn at(&self) -> Option<ClockReading> {
        match self {
            Self::RenewAt(at) | Self::LoginAt(at) => Some(*at),
            Self::Rest => None,
        }
    }
}

/// The next step for the token that is held, or for none.
///
/// `unit` is a random number in `0.0..1.0`.
pub fn next_step(held: Option<&Life>, last: Last, earliest: Earliest, now: ClockReading, unit: f64) -> Step {
    let Some(life) = held else { return Step::LoginAt(later(earliest.login, now)) };
    let Some(ends) = life.ends else { return Step::Rest };
    match last {
        Last::Well => {
            let due = later(life.obtained + share_of(life.ttl, unit), now);
            // A lease that was cut short after it was given still leaves room for a try.
            let due = if due.until(ends).is_zero() { now + now.until(ends).mul_f64(RENEW_FROM) } else { due };
            if life.renewable { Step::RenewAt(due) } else { Step::LoginAt(due) }
        }
        Last::NotRenewed => Step::LoginAt(now + now.until(ends).mul_f64(unit * SPREAD)),
        Last::Failed => {
            let due = later(earliest.renewal, now);
            // While renewals fail, a login may still go well: the last tenth of the lease is for that.
            let time_to_renew = due.until(ends) > life.ttl / 10;
            if life.renewable && time_to_renew { Step::RenewAt(due) } else { Step::LoginAt(later(earliest.login, now)) }
        }
    }
}

/// Whether a renewal that gave `ttl`, on a token that was once given `granted`, moved its end as far as it can move.
///
/// A shorter lease means that the token's maximum lies ahead: asking again gives ever less.
pub fn still_grows(granted: Duration, ttl: Duration) -> bool {
    ttl.saturating_mul(10) >= granted.saturating_mul(9)
}

/// When a light check is due: an interval later, a tenth more or less.
pub fn next_check(now: ClockReading, interval: Duration, unit: f64) -> ClockReading {
    now + interval.mul_f64(0.9 + 0.2 * unit)
}

const RENEW_FROM: f64 = 0.63;
const RENEW_WITHIN: f64 = 0.07;
/// The part of the remaining life that logins are spread over; the rest is for trying again.
const SPREAD: f64 = 2.0 / 3.0;

/// Near two thirds of the lease.
fn share_of(ttl: Duration, unit: f64) -> Duration {
    ttl.mul_f64(RENEW_FROM + RENEW_WITHIN * unit)
}

fn later(one: ClockReading, other: ClockReading) -> ClockReading {
    if one.boot > other.boot { one } else { other }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(seconds: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    fn life(obtained: u64, ttl: u64, renewable: bool) -> Life {
        let ends = (ttl > 0).then(|| at(obtained + ttl));
        Life { obtained: at(obtained), ends, ttl: Duration::from_secs(ttl), renewable }
    }

    fn check(held: Option<Life>, last: Last, earliest: u64, now: u64, unit: f64, wanted: Step) {
        let earliest = Earliest { renewal: at(earliest), login: at(earliest) };
        let found = next_step(held.as_ref(), last, earliest, at(now), unit);
        assert_eq!(found, wanted, "{held:?} {last:?} {earliest:?} now {now} unit {unit}");
    }

    #[test]
    fn a_good_token_is_renewed_or_replaced_near_two_thirds_of_its_lease() {
        let renewable = Some(life(1000, 3600, true));
        check(renewable, Last::Well, 0, 1000, 0.0, Step::RenewAt(at(1000 + 2268)));
        check(renewable, Last::Well, 0, 1000, 1.0, Step::RenewAt(at(1000 + 2520)));
        check(renewable, Last::Well, 0, 4000, 0.0, Step::RenewAt(at(4000)));
        check(Some(life(1000, 3600, false)), Last::Well, 0, 1000, 0.0, Step::LoginAt(at(1000 + 2268)));
    }

    #[test]
    fn a_lease_that_was_cut_short_still_gets_its_try() {
        let mut cut = life(1000, 3600, true);
        cut.ends = Some(at(1100));
        check(Some(cut), Last::Well, 0, 1000, 0.5, Step::RenewAt(at(1063)));
    }

    #[test]
    fn a_refused_renewal_leads_to_a_login_spread_over_what_is_left() {
        let held = Some(life(0, 3600, false));
        check(held, Last::NotRenewed, 0, 2400, 0.0, Step::LoginAt(at(2400)));
        check(held, Last::NotRenewed, 0, 2400, 0.75, Step::LoginAt(at(3000)));
        check(held, Last::NotRenewed, 0, 2400, 1.0, Step::LoginAt(at(3200)));
        check(held, Last::NotRenewed, 0, 3600, 1.0, Step::LoginAt(at(3600)));
    }

    #[test]
    fn a_failure_waits_and_the_last_tenth_of_the_lease_is_for_logins() {
        let held = Some(life(0, 3600, true));
        check(held, Last::Failed, 2500, 2400, 0.5, Step::RenewAt(at(2500)));
        check(held, Last::Failed, 2300, 2400, 0.5, Step::RenewAt(at(2400)));
        check(held, Last::Failed, 3239, 2400, 0.5, Step::RenewAt(at(3239)));
        check(held, Last::Failed, 3240, 2400, 0.5, Step::LoginAt(at(3240)));
        check(held, Last::Failed, 4000, 3500, 0.5, Step::LoginAt(at(4000)));
        check(Some(life(0, 3600, false)), Last::Failed, 2500, 2400, 0.5, Step::LoginAt(at(2500)));
    }

    #[test]
    fn failed_renewals_keep_no_login_waiting() {
        let held = life(0, 3600, true);
        let earliest = Earliest { renewal: at(3300), login: at(0) };
        assert_eq!(next_step(Some(&held), Last::Failed, earliest, at(3200), 0.5), Step::LoginAt(at(3200)));
    }

    #[test]
    fn without_a_token_the_login_is_due_as_soon_as_allowed() {
        for last in [Last::Well, Last::NotRenewed, Last::Failed] {
            check(None, last, 50, 100, 0.5, Step::LoginAt(at(100)));
            check(None, last, 150, 100, 0.5, Step::LoginAt(at(150)));
        }
    }

    #[test]
    fn a_token_that_never_ends_is_left_alone() {
        for last in [Last::Well, Last::NotRenewed, Last::Failed] {
            check(Some(life(0, 0, true)), last, 0, 100, 0.5, Step::Rest);
        }
    }

    #[test]
    fn a_shorter_lease_after_a_renewal_tells_the_end_of_growth() {
        let check = |granted, ttl, wanted| {
            assert_eq!(still_grows(Duration::from_secs(granted), Duration::from_secs(ttl)), wanted, "{granted} {ttl}");
        };
        check(3600, 3600, true);
        check(3600, 3599, true);
        check(3600, 7200, true);
        check(3600, 3240, true);
        check(3600, 3239, false);
        check(3600, 0, false);
    }

    #[test]
    fn checks_are_spread_around_their_interval() {
        let interval = Duration::from_mins(5);
        assert_eq!(next_check(at(0), interval, 0.0), at(270));
        assert_eq!(next_check(at(0), interval, 1.0), at(330));
    }
}
