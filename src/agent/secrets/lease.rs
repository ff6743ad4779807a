//! Schedule of reads and lease renewals of a secret: a pure function of its lease and its data.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::agent::server_client::{SecretFields, SecretOp, SecretRequest};
use crate::agent::token::Lease;
use crate::clock::ClockReading;

/// Next step for a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum Step {
    /// Read the secret.
    ReadAt(ClockReading),
    /// Renew the lease.
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

    /// Returns true if a renewal is worthwhile. Near the maximum TTL, servers shorten the renewed duration.
    fn is_extendable(&self) -> bool {
        self.lease.renewable && !self.renewal_refused && self.lease.ttl >= self.initial_ttl / 2
    }

    /// Returns true if a renewal has shortened the lease so much that another must be requested at once.
    fn is_ending(&self) -> bool {
        self.lease.ttl < self.initial_ttl / 2 && self.lease.ttl < MIN_PLANNABLE_TTL
    }
}

/// Returns the next step after a success. A secret without a lease is read every `interval`, give or take a tenth. A leased one is
/// renewed, or else read again, at 63 to 70 % of its lifetime, so that its successor is there before it ends; at once if a renewal
/// has shortened it. `unit` is a random number in `0.0..1.0`.
pub(in crate::agent) fn next_step(
    read: ClockReading,
    lease_state: Option<LeaseState>,
    interval: Duration,
    unit: f64,
) -> Step {
    match lease_state {
        None => Step::ReadAt(read + interval.mul_f64(0.2f64.mul_add(unit, 0.9))),
        Some(lease_state) => {
            if lease_state.is_ending() {
                return Step::ReadAt(lease_state.since);
            }
            let at = lease_state.since + lease_state.lease.ttl.mul_f64(0.07f64.mul_add(unit, 0.63));
            if lease_state.is_extendable() { Step::RenewAt(at) } else { Step::ReadAt(at) }
        }
    }
}

/// Returns the time until a secret without a lease is read again: `interval`; two thirds of a certificate's remaining lifetime;
/// right after the next rotation of a password that the server rotates. A write is repeated only after [`NEVER`].
pub(super) fn reread_interval(
    request: &SecretRequest,
    data: &SecretFields,
    interval: Duration,
    now: ClockReading,
) -> Duration {
    let number = |name: &str| data.as_map().get(name).and_then(Value::as_u64);
    if let Some(end) = certificate_end(data) {
        // A certificate that has ended is requested at the ordinary interval.
        let left = end.duration_since(now.wall);
        return left.map_or(interval, |left| left.mul_f64(2.0 / 3.0).max(Duration::from_secs(1)));
    }
    if let (Some(left), Some(_)) = (number("ttl"), number("rotation_period")) {
        return Duration::from_secs(left.saturating_add(1)).min(interval);
    }
    if matches!(request.op, SecretOp::Write(_)) { NEVER } else { interval }
}

/// Returns the end of a certificate.
fn certificate_end(data: &SecretFields) -> Option<SystemTime> {
    data.as_map().get("certificate")?;
    let end = data.as_map().get("expiration")?.as_u64()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(end.min(YEAR_9999)))
}

/// Returns true for a certificate with an end. Its age does not matter.
pub(super) fn is_certificate(data: &SecretFields) -> bool {
    certificate_end(data).is_some()
}

/// Returns the time until the write of the previous process is repeated; `None` for at once. Its result may still be valid, and
/// each write may create something.
pub(super) fn rewrite_after(
    request: &SecretRequest,
    data: &SecretFields,
    interval: Duration,
    now: ClockReading,
) -> Option<Duration> {
    let has_ended = certificate_end(data).is_some_and(|end| end <= now.wall);
    (matches!(request.op, SecretOp::Write(_)) && !has_ended).then(|| reread_interval(request, data, interval, now))
}

/// The shortest lease that leaves time for a planned step.
const MIN_PLANNABLE_TTL: Duration = Duration::from_secs(5);

/// A year.
const NEVER: Duration = Duration::from_hours(365 * 24);

/// In seconds since 1970. Bounds times from the server, so that sums with them do not overflow.
const YEAR_9999: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::clock::{Clock, TestClock};

    #[test]
    fn a_lease_is_renewed_while_it_grows_and_replaced_before_it_ends() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let check = |ttl: u64, renewable, refused, unit, wanted: fn(ClockReading) -> Step, after: f64| {
            let lease = Lease { ttl: Duration::from_secs(ttl), renewable };
            let lease_state =
                LeaseState { since: start, lease, initial_ttl: Duration::from_secs(100), renewal_refused: refused };
            let step = next_step(start, Some(lease_state), Duration::from_mins(5), unit);
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
        let none = next_step(start, None, Duration::from_secs(100), 0.5);
        assert_eq!((none, start.until(none.at())), (Step::ReadAt(none.at()), Duration::from_secs(100)));
    }

    #[test]
    fn a_lease_that_a_renewal_shortens_lives_until_its_successor_is_there() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let lease = |seconds| Lease { ttl: Duration::from_secs_f64(seconds), renewable: true };
        let check = |first: f64, told: f64, wanted: f64, at_once: bool| {
            let mut lease_state = LeaseState {
                since: start,
                lease: lease(first),
                initial_ttl: Duration::from_secs_f64(first),
                renewal_refused: false,
            };
            let now = start + Duration::from_secs(2);
            lease_state.record_renewal(now, lease(told));
            assert!(
                (now.until(lease_state.ends()).as_secs_f64() - wanted).abs() < 0.001,
                "{first} {told}: {lease_state:?}"
            );
            let step = next_step(now, Some(lease_state), Duration::from_mins(5), 0.0);
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
    fn secrets_without_a_lease_are_read_at_their_own_interval() {
        let now = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1000))).now();
        let written = SecretRequest { path: "pki/issue/web".to_owned(), op: SecretOp::Write(BTreeMap::new()) };
        let check = |request: &SecretRequest, data: Value, wanted: u64| {
            let data = SecretFields::from(data.as_object().unwrap().clone());
            let found = reread_interval(request, &data, Duration::from_mins(5), now).as_secs();
            // The clock runs while the test does.
            assert!(found.abs_diff(wanted) <= 1, "{found} instead of {wanted}");
        };
        let read = SecretRequest::read("secret/data/web");
        check(&read, json!({ "password": "p" }), 300);
        check(&read, json!({ "ttl": 60, "password": "p" }), 300);
        check(&read, json!({ "ttl": 60, "rotation_period": 3600 }), 61);
        check(&read, json!({ "ttl": 3000, "rotation_period": 3600 }), 300);
        check(&written, json!({ "certificate": "c", "expiration": 4000 }), 2000);
        check(&written, json!({ "certificate": "c", "expiration": 900 }), 300);
        check(&written, json!({ "plaintext": "p" }), 365 * 24 * 3600);
        check(&read, json!({ "certificate": "c", "expiration": u64::MAX }), (YEAR_9999 - 1000) / 3 * 2 + 1);
        let remade = |request: &SecretRequest, data: Value| {
            let data = SecretFields::from(data.as_object().unwrap().clone());
            rewrite_after(request, &data, Duration::from_mins(5), now).map(|after| after.as_secs().div_ceil(100))
        };
        assert_eq!(remade(&written, json!({ "certificate": "c", "expiration": 4000 })), Some(20));
        assert_eq!(remade(&written, json!({ "certificate": "c", "expiration": 1000 })), None, "it has ended");
        assert_eq!(remade(&written, json!({ "plaintext": "p" })), Some(365 * 24 * 36));
        assert_eq!(remade(&read, json!({ "password": "p" })), None, "it may be another by now");
    }
}
