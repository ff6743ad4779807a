//! State of a lease, and the schedule of its renewals and of its replacement: pure functions of the server's responses.

use std::time::Duration;

use crate::agent::token::Lease;
use crate::clock::ClockReading;

/// Next step for a lease, or for a secret without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum Step {
    /// Request another.
    ReadAt(ClockReading),
    /// Renew it.
    RenewAt(ClockReading),
}

impl Step {
    /// Time of the step.
    pub(in crate::agent) const fn at(self) -> ClockReading {
        let (Self::ReadAt(at) | Self::RenewAt(at)) = self;
        at
    }
}

/// State of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) struct LeaseState {
    /// Time of the response that issued or renewed the lease.
    pub(in crate::agent) since: ClockReading,
    /// The lease in that response.
    pub(in crate::agent) lease: Lease,
    /// Duration when the lease was issued.
    pub(in crate::agent) initial_ttl: Duration,
    /// The server has refused a renewal, or nothing may renew the lease.
    pub(in crate::agent) renewal_refused: bool,
}

impl LeaseState {
    /// A lease that the server has just issued.
    pub(in crate::agent) const fn issued(lease: Lease, now: ClockReading) -> Self {
        Self { since: now, lease, initial_ttl: lease.ttl, renewal_refused: false }
    }

    /// End of the lease.
    pub(in crate::agent) fn ends(&self) -> ClockReading {
        self.since + self.lease.ttl
    }

    /// Records a renewal. Servers truncate the duration to whole seconds; that alone must not move the end forward.
    pub(in crate::agent) fn record_renewal(&mut self, now: ClockReading, lease: Lease) {
        let remaining = now.until(self.ends());
        let ttl = lease.ttl.max(remaining.min(lease.ttl + Duration::from_secs(1)));
        (self.since, self.lease) = (now, Lease { ttl, ..lease });
    }

    /// Returns the next step after a success: the lease is renewed, or else another is requested, at 63 to 70 % of its lifetime,
    /// so that its successor is there before it ends; at once if a renewal has shortened it. `unit` is a random number in
    /// `0.0..1.0`.
    pub(in crate::agent) fn next_step(&self, unit: f64) -> Step {
        if self.is_ending() {
            return Step::ReadAt(self.since);
        }
        let at = self.since + self.lease.ttl.mul_f64(0.07f64.mul_add(unit, 0.63));
        if self.is_extendable() { Step::RenewAt(at) } else { Step::ReadAt(at) }
    }

    /// Returns the next step after a renewal to which the server did not respond: another at `at`, or a new lease if this one ends
    /// before.
    pub(in crate::agent) fn retry_step(&self, at: ClockReading) -> Step {
        let ends = self.ends();
        if at.boot < ends.boot { Step::RenewAt(at) } else { Step::ReadAt(ends) }
    }

    /// Returns true if a renewal is worthwhile. Near the maximum TTL, servers shorten the renewed duration.
    fn is_extendable(&self) -> bool {
        self.lease.renewable && !self.renewal_refused && self.lease.ttl >= self.initial_ttl / 2
    }

    /// Returns true if a renewal has shortened the lease so much that another must be requested at once.
    fn is_ending(&self) -> bool {
        self.lease.ttl < self.initial_ttl / 2 && self.lease.ttl < MIN_PLANNABLE_TTL
    }
}

/// The shortest lease that leaves time for a planned step.
const MIN_PLANNABLE_TTL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::clock::{Clock, TestClock};

    #[test]
    fn a_lease_is_renewed_while_it_grows_and_replaced_before_it_ends() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let check = |ttl: u64, renewable, refused, unit, wanted: fn(ClockReading) -> Step, after: f64| {
            let lease = Lease { ttl: Duration::from_secs(ttl), renewable };
            let lease_state =
                LeaseState { since: start, lease, initial_ttl: Duration::from_secs(100), renewal_refused: refused };
            let step = lease_state.next_step(unit);
            assert_eq!(step, wanted(step.at()));
            assert!((start.until(step.at()).as_secs_f64() - after).abs() < 0.01, "{step:?}");
            assert!(start.until(step.at()) < start.until(lease_state.ends()));
        };
        check(100, true, false, 0.0, Step::RenewAt, 63.0);
        check(100, true, false, 1.0, Step::RenewAt, 70.0);
        check(50, true, false, 0.0, Step::RenewAt, 31.5);
        check(49, true, false, 0.0, Step::ReadAt, 30.87);
        check(100, false, false, 0.0, Step::ReadAt, 63.0);
        check(100, true, true, 0.0, Step::ReadAt, 63.0);
    }

    #[test]
    fn a_lease_that_a_renewal_shortens_lives_until_its_successor_is_there() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let lease = |seconds| Lease { ttl: Duration::from_secs_f64(seconds), renewable: true };
        let check = |first: f64, told: f64, wanted: f64, at_once: bool| {
            let mut lease_state = LeaseState::issued(lease(first), start);
            let now = start + Duration::from_secs(2);
            lease_state.record_renewal(now, lease(told));
            assert!(
                (now.until(lease_state.ends()).as_secs_f64() - wanted).abs() < 0.001,
                "{first} {told}: {lease_state:?}"
            );
            let step = lease_state.next_step(0.0);
            assert_eq!(step == Step::ReadAt(now), at_once, "{first} {told}: {step:?}");
        };
        // Servers report the last second as 0.
        check(3.0, 0.0, 1.0, true);
        check(3.0, 1.0, 1.0, true);
        check(3.0, 3.0, 3.0, false);
        // An end that is earlier by more than the truncation is respected.
        check(100.0, 4.0, 5.0, false);
        check(100.0, 3.0, 4.0, true);
        check(100.0, 40.0, 41.0, false);
    }
    #[test]
    fn a_renewal_that_failed_is_tried_again_before_the_lease_ends() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let state = LeaseState::issued(Lease { ttl: Duration::from_secs(100), renewable: true }, start);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(state.retry_step(after(99)), Step::RenewAt(after(99)));
        assert_eq!(state.retry_step(after(100)), Step::ReadAt(after(100)));
        assert_eq!(state.retry_step(after(200)), Step::ReadAt(after(100)));
    }
}
