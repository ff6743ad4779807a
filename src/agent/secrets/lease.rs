//! When a secret is read again, and when its lease is renewed: a function of what is held.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::agent::server_client::{SecretFields, SecretOp, SecretRequest};
use crate::agent::token::Lease;
use crate::clock::ClockReading;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Read it (again).
    ReadAt(ClockReading),
    /// Renew its lease.
    RenewAt(ClockReading),
}

impl Step {
    /// When.
    pub(super) const fn at(self) -> ClockReading {
        let (Self::ReadAt(at) | Self::RenewAt(at)) = self;
        at
    }
}

/// What is held of a secret's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseState {
    /// When the answer came that the lease is from.
    pub(super) since: ClockReading,
    /// The lease, as that answer has it.
    pub(super) lease: Lease,
    /// How long it was given when the secret was read.
    pub(super) first: Duration,
    /// Whether the server has refused to renew it.
    pub(super) refused: bool,
}

impl LeaseState {
    /// When it ends.
    pub(super) fn ends(&self) -> ClockReading {
        self.since + self.lease.ttl
    }

    /// Takes what a renewal gave. It is told in whole seconds, the rest cut off: by that alone no end comes sooner than the one
    /// that was told before.
    pub(super) fn renewed(&mut self, now: ClockReading, lease: Lease) {
        let told_before = now.until(self.ends());
        let ttl = lease.ttl.max(told_before.min(lease.ttl + Duration::from_secs(1)));
        (self.since, self.lease) = (now, Lease { ttl, ..lease });
    }

    /// Whether renewing it makes sense: what was given last is cut short where the lease nears the end that no renewal
    /// passes.
    fn grows(&self) -> bool {
        self.lease.renewable && !self.refused && self.lease.ttl >= self.first / 2
    }

    /// Whether it was cut so short by a renewal that another must be got at once, to be there before it ends.
    fn is_short(&self) -> bool {
        self.lease.ttl < self.first / 2 && self.lease.ttl < SHORT
    }
}

/// The next step after a success. A secret without a lease is looked at every `interval`, a tenth more or less; a leased one
/// is renewed, or read anew where it cannot be, at 63 to 70 % of its life, so that a new one is there before it ends; at once where
/// a renewal has cut it short.
/// `unit` is a random number in `0.0..1.0`.
pub(super) fn next_step(read: ClockReading, lease_state: Option<LeaseState>, interval: Duration, unit: f64) -> Step {
    match lease_state {
        None => Step::ReadAt(read + interval.mul_f64(0.2f64.mul_add(unit, 0.9))),
        Some(lease_state) => {
            if lease_state.is_short() {
                return Step::ReadAt(lease_state.since);
            }
            let at = lease_state.since + lease_state.lease.ttl.mul_f64(0.07f64.mul_add(unit, 0.63));
            if lease_state.grows() { Step::RenewAt(at) } else { Step::ReadAt(at) }
        }
    }
}

/// How soon a secret without a lease is looked at again: every `interval`; a certificate at two thirds of what is left of it; a
/// password that the server changes by itself right after it has. What was made for a write is made once, and not again.
pub(super) fn reread_interval(
    request: &SecretRequest,
    data: &SecretFields,
    interval: Duration,
    now: ClockReading,
) -> Duration {
    let number = |name: &str| data.as_map().get(name).and_then(Value::as_u64);
    if let Some(end) = ends(data) {
        // One that has ended is asked for at the pace of any other.
        let left = end.duration_since(now.wall);
        return left.map_or(interval, |left| left.mul_f64(2.0 / 3.0).max(Duration::from_secs(1)));
    }
    if let (Some(left), Some(_)) = (number("ttl"), number("rotation_period")) {
        return Duration::from_secs(left.saturating_add(1)).min(interval);
    }
    if matches!(request.op, SecretOp::Write(_)) { ONCE } else { interval }
}

/// When a certificate ends.
fn ends(data: &SecretFields) -> Option<SystemTime> {
    data.as_map().get("certificate")?;
    let end = data.as_map().get("expiration")?.as_u64()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(end.min(FAR_OFF)))
}

/// Whether it is a certificate that tells its own end: how old it is does not matter.
pub(super) fn is_certificate(data: &SecretFields) -> bool {
    ends(data).is_some()
}

/// How soon what was made for a write before a restart is asked for again, `None` where at once: it was made once, and may be
/// good still.
pub(super) fn rewrite_after(
    request: &SecretRequest,
    data: &SecretFields,
    interval: Duration,
    now: ClockReading,
) -> Option<Duration> {
    let ended = ends(data).is_some_and(|end| end <= now.wall);
    (matches!(request.op, SecretOp::Write(_)) && !ended).then(|| reread_interval(request, data, interval, now))
}

/// What is left of a lease that leaves no time to be planned in.
const SHORT: Duration = Duration::from_secs(5);

/// As good as never: a year.
const ONCE: Duration = Duration::from_hours(365 * 24);

/// The year 9999.
const FAR_OFF: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::clock::{Clock, TestClock};

    #[test]
    fn a_lease_is_renewed_while_it_grows_and_read_anew_before_it_ends() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let check = |ttl: u64, renewable, refused, unit, wanted: fn(ClockReading) -> Step, after: f64| {
            let lease = Lease { ttl: Duration::from_secs(ttl), renewable };
            let lease_state = LeaseState { since: start, lease, first: Duration::from_secs(100), refused };
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
    fn a_lease_that_a_renewal_cuts_short_is_there_until_another_is() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let lease = |seconds| Lease { ttl: Duration::from_secs_f64(seconds), renewable: true };
        let check = |first: f64, told: f64, wanted: f64, at_once: bool| {
            let mut lease_state =
                LeaseState { since: start, lease: lease(first), first: Duration::from_secs_f64(first), refused: false };
            let now = start + Duration::from_secs(2);
            lease_state.renewed(now, lease(told));
            assert!(
                (now.until(lease_state.ends()).as_secs_f64() - wanted).abs() < 0.001,
                "{first} {told}: {lease_state:?}"
            );
            let step = next_step(now, Some(lease_state), Duration::from_mins(5), 0.0);
            assert_eq!(step == Step::ReadAt(now), at_once, "{first} {told}: {step:?}");
        };
        // The last second is told as none.
        check(3.0, 0.0, 1.0, true);
        check(3.0, 1.0, 1.0, true);
        check(3.0, 3.0, 3.0, false);
        // An end that really comes sooner is taken at its word.
        check(100.0, 4.0, 5.0, false);
        check(100.0, 3.0, 4.0, true);
        check(100.0, 40.0, 41.0, false);
    }

    #[test]
    fn what_has_no_lease_is_looked_at_at_its_own_pace() {
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
        check(&read, json!({ "certificate": "c", "expiration": u64::MAX }), (FAR_OFF - 1000) / 3 * 2 + 1);
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
