//! When a secret is read again, and when its lease is renewed: a function of what is held.

use std::time::Duration;

use crate::agent::token::Lease;
use crate::clock::Moment;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Read it (again).
    ReadAt(Moment),
    /// Renew its lease.
    RenewAt(Moment),
}

impl Step {
    /// When.
    pub(super) const fn at(self) -> Moment {
        let (Self::ReadAt(at) | Self::RenewAt(at)) = self;
        at
    }
}

/// What is held of a secret's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term {
    /// When the answer came that the lease is from.
    pub(super) since: Moment,
    /// The lease, as that answer has it.
    pub(super) lease: Lease,
    /// How long it was given when the secret was read.
    pub(super) first: Duration,
    /// Whether the server has refused to renew it.
    pub(super) refused: bool,
}

impl Term {
    /// When it ends.
    pub(super) fn ends(&self) -> Moment {
        self.since + self.lease.ttl
    }

    /// Whether renewing it makes sense: what was given last is cut short where the lease nears the end that no renewal
    /// passes.
    fn grows(&self) -> bool {
        self.lease.renewable && !self.refused && self.lease.ttl >= self.first / 2
    }
}

/// The next step after a success. A secret without a lease is looked at every `interval`, a tenth more or less; a leased one
/// is renewed, or read anew where it cannot be, at 63 to 70 % of its life, so that a new one is there before it ends.
/// `unit` is a random number in `0.0..1.0`.
pub(super) fn next_step(read: Moment, term: Option<Term>, interval: Duration, unit: f64) -> Step {
    match term {
        None => Step::ReadAt(read + interval.mul_f64(0.2f64.mul_add(unit, 0.9))),
        Some(term) => {
            let at = term.since + term.lease.ttl.mul_f64(0.07f64.mul_add(unit, 0.63));
            if term.grows() { Step::RenewAt(at) } else { Step::ReadAt(at) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::clock::{Clock, Driven};

    #[test]
    fn a_lease_is_renewed_while_it_grows_and_read_anew_before_it_ends() {
        let start = Clock::Driven(Driven::starting_at(SystemTime::UNIX_EPOCH)).now();
        let check = |ttl: u64, renewable, refused, unit, wanted: fn(Moment) -> Step, after: f64| {
            let lease = Lease { ttl: Duration::from_secs(ttl), renewable };
            let term = Term { since: start, lease, first: Duration::from_secs(100), refused };
            let step = next_step(start, Some(term), Duration::from_mins(5), unit);
            assert_eq!(step, wanted(step.at()));
            assert!((start.until(step.at()).as_secs_f64() - after).abs() < 0.01, "{step:?}");
            assert!(start.until(step.at()) < start.until(term.ends()));
        };
        check(100, true, false, 0.0, Step::RenewAt, 63.0);
        check(100, true, false, 1.0, Step::RenewAt, 70.0);
        check(50, true, false, 0.0, Step::RenewAt, 31.5);
        check(49, true, false, 0.0, Step::ReadAt, 30.87);
        check(100, false, false, 0.0, Step::ReadAt, 63.0);
        check(100, true, true, 0.0, Step::ReadAt, 63.0);
        let none = next_step(start, None, Duration::from_secs(100), 0.5);
        assert_eq!((none, start.until(none.at())), (Step::ReadAt(none.at()), Duration::from_secs(100)));
    }
}
