//! A lease in use: its lifetime, the schedule of its renewals and of its replacement, and the meaning of a failed renewal.

use std::time::Duration;

use keyward_credentials::backoff::time_to_renewal;
use keyward_machine::clock::ClockReading;

use crate::server_client::{CallError, TokenVerdict};
use crate::token::Lease;

/// Next step for a lease, or for a secret without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Request another.
    ReadAt(ClockReading),
    /// Renew it.
    RenewAt(ClockReading),
}

impl Step {
    /// Time of the step.
    pub(crate) const fn at(self) -> ClockReading {
        let (Self::ReadAt(at) | Self::RenewAt(at)) = self;
        at
    }
}

/// A lease in use, and its next step. `unit` is a random number in `0.0..1.0` throughout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActiveLease {
    /// Time when the request was sent whose response issued or renewed the lease.
    pub(super) since: ClockReading,
    /// The lease in that response.
    pub(super) lease: Lease,
    /// Duration when the lease was issued.
    pub(super) initial_ttl: Duration,
    /// The server has refused a renewal, or nothing may renew the lease.
    pub(super) renewal_refused: bool,
    pub(super) next: Step,
    /// A response to this process has shown that the lease is valid.
    pub(super) is_verified: bool,
}

impl ActiveLease {
    /// A lease that the server has issued to a request that was sent at `sent`.
    pub(crate) fn issued(lease: Lease, sent: ClockReading, unit: f64) -> Self {
        let next = Step::ReadAt(sent);
        let mut issued =
            Self { since: sent, lease, initial_ttl: lease.ttl, renewal_refused: false, next, is_verified: true };
        issued.schedule(unit);
        issued
    }

    /// End of the lease.
    pub(crate) fn ends(&self) -> ClockReading {
        self.since + self.lease.ttl
    }

    pub(crate) const fn next(&self) -> Step {
        self.next
    }

    /// The lease as it was issued: renewals request this duration.
    pub(crate) const fn initial(&self) -> Lease {
        Lease { ttl: self.initial_ttl, renewable: self.lease.renewable }
    }

    /// Records a renewal that was sent at `sent`. Servers truncate the duration to whole seconds; that alone must not move the end
    /// forward.
    pub(crate) fn record_renewal(&mut self, lease: Lease, sent: ClockReading, unit: f64) {
        let remaining = sent.until(self.ends());
        let ttl = lease.ttl.max(remaining.min(lease.ttl + Duration::from_secs(1)));
        (self.since, self.lease, self.is_verified) = (sent, Lease { ttl, ..lease }, true);
        self.schedule(unit);
    }

    /// Records that the lease is not renewed again: another is requested. Returns false for a lease of the previous process that was
    /// not renewed since: it may have ended while no process renewed it.
    pub(crate) fn refuse_renewal(&mut self, unit: f64) -> bool {
        self.renewal_refused = true;
        self.schedule(unit);
        self.is_verified
    }

    /// Schedules another renewal after one to which the server did not respond; a new lease if this one ends before.
    pub(crate) fn retry_renewal(&mut self, at: ClockReading) {
        let ends = self.ends();
        self.next = if at.boot < ends.boot { Step::RenewAt(at) } else { Step::ReadAt(ends) };
    }

    /// Schedules the request of another lease.
    pub(crate) const fn replace_at(&mut self, at: ClockReading) {
        self.next = Step::ReadAt(at);
    }

    /// Schedules the next step after a success: the lease is renewed, or else another is requested, at 63 to 70 % of its lifetime,
    /// so that its successor is there before it ends; at once if a renewal has shortened it.
    fn schedule(&mut self, unit: f64) {
        let at = self.since + time_to_renewal(self.lease.ttl, unit);
        self.next = if self.is_ending() {
            Step::ReadAt(self.since)
        } else if self.is_extendable() {
            Step::RenewAt(at)
        } else {
            Step::ReadAt(at)
        };
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

/// Reason why a lease was not renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalFailure {
    /// The server did not respond, or failed: the lease remains valid, and is renewed later.
    Outage,
    /// The server may not know the token of the call any more. A token that renewed itself has ended; of the session's token,
    /// the session finds that out.
    SuspectToken,
    /// The server refuses to renew the lease; it is valid to its end, unless it was revoked.
    Refused,
}

impl RenewalFailure {
    pub(crate) fn from_error(error: &CallError) -> Self {
        match error.verdict() {
            TokenVerdict::Unavailable => Self::Outage,
            TokenVerdict::Dead | TokenVerdict::Suspect => Self::SuspectToken,
            TokenVerdict::Denied | TokenVerdict::Refused => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use keyward_machine::clock::{Clock, TestClock};

    use super::*;

    #[test]
    fn a_lease_is_renewed_while_it_grows_and_replaced_before_it_ends() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let check = |ttl: u64, renewable, refused, unit, expected: fn(ClockReading) -> Step, after: f64| {
            let lease = |seconds| Lease { ttl: Duration::from_secs(seconds), renewable };
            // A lease that is renewed at its end lasts as long as the renewal says.
            let mut active = ActiveLease::issued(lease(100), start, unit);
            let now = start + Duration::from_secs(100);
            active.record_renewal(lease(ttl), now, unit);
            if refused {
                assert!(active.refuse_renewal(unit));
            }
            let step = active.next();
            assert_eq!(step, expected(step.at()));
            assert!((now.until(step.at()).as_secs_f64() - after).abs() < 0.01, "{step:?}");
            assert!(now.until(step.at()) < now.until(active.ends()));
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
        let check = |first: f64, renewed: f64, expected: f64, at_once: bool| {
            let mut active = ActiveLease::issued(lease(first), start, 0.0);
            let now = start + Duration::from_secs(2);
            active.record_renewal(lease(renewed), now, 0.0);
            assert!((now.until(active.ends()).as_secs_f64() - expected).abs() < 0.001, "{first} {renewed}: {active:?}");
            assert_eq!(active.next() == Step::ReadAt(now), at_once, "{first} {renewed}: {active:?}");
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
        let lease = Lease { ttl: Duration::from_secs(100), renewable: true };
        let mut active = ActiveLease::issued(lease, start, 0.0);
        let mut retried = |seconds| {
            active.retry_renewal(start + Duration::from_secs(seconds));
            active.next()
        };
        assert_eq!(retried(99), Step::RenewAt(start + Duration::from_secs(99)));
        assert_eq!([retried(100), retried(200)], [Step::ReadAt(start + lease.ttl); 2]);
    }

    #[test]
    fn a_failed_renewal_ends_no_lease_unless_the_server_says_so() {
        let check = |status, text: &str, expected| {
            let errors = vec![text.to_owned()];
            let error = CallError::Status { status, errors, retry_after: None, date: None };
            assert_eq!(RenewalFailure::from_error(&error), expected, "{error}");
        };
        check(503, "Vault is sealed", RenewalFailure::Outage);
        check(429, "rate limit", RenewalFailure::Outage);
        check(403, "invalid token", RenewalFailure::SuspectToken);
        check(403, "permission denied", RenewalFailure::SuspectToken);
        check(403, "1 error occurred:\n\t* permission denied\n\n", RenewalFailure::Refused);
        check(400, "lease not found", RenewalFailure::Refused);
        check(400, "lease is not renewable", RenewalFailure::Refused);
        let broken = CallError::Unreachable { cause: "connection refused".to_owned() };
        assert_eq!(RenewalFailure::from_error(&broken), RenewalFailure::Outage);
    }
}
