//! Schedule of reads of a secret without a lease: a pure function of its request and its data.

use std::time::{Duration, SystemTime};

use keyward_machine::clock::ClockReading;
use serde_json::Value;

use crate::server_client::{SecretFields, SecretOp, SecretRequest};

/// Returns the time of the next read of a secret without a lease: after `interval`, give or take a tenth. `unit` is a random
/// number in `0.0..1.0`.
pub(super) fn reread_at(read: ClockReading, interval: Duration, unit: f64) -> ClockReading {
    read + interval.mul_f64(0.2f64.mul_add(unit, 0.9))
}

/// Returns `interval`, or the server's suggestion if that is shorter, but not less than ten seconds.
pub(super) fn limit_interval(interval: Duration, suggested_ttl: Option<Duration>) -> Duration {
    suggested_ttl.map_or(interval, |ttl| interval.min(ttl.max(MIN_SUGGESTED_TTL)))
}

/// Returns the time until a secret without a lease is read again: `interval`; two thirds of a certificate's remaining lifetime;
/// right after the next rotation of a password that the server rotates. A write is repeated only after
/// [`WRITE_REPEAT_INTERVAL`].
pub(super) fn reread_interval(
    request: &SecretRequest,
    data: &SecretFields,
    interval: Duration,
    now: ClockReading,
) -> Duration {
    let number = |name: &str| data.as_map().get(name).and_then(Value::as_u64);
    if let Some(end) = certificate_end(data) {
        // A certificate that has ended is requested at the ordinary interval.
        let remaining = end.duration_since(now.wall);
        return remaining.map_or(interval, |remaining| remaining.mul_f64(2.0 / 3.0).max(Duration::from_secs(1)));
    }
    // Static roles of Vault's database engine return both. A second later, the password is new.
    if let (Some(remaining), Some(_)) = (number("ttl"), number("rotation_period")) {
        return Duration::from_secs(remaining.saturating_add(1)).min(interval);
    }
    if matches!(request.op, SecretOp::Write(_)) { WRITE_REPEAT_INTERVAL } else { interval }
}

/// Returns the end of a certificate.
fn certificate_end(data: &SecretFields) -> Option<SystemTime> {
    data.as_map().get("certificate")?;
    // As Vault's PKI engine returns it.
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

/// As the least `templates.interval`: whoever writes a secret does not decide how often each machine calls the server.
const MIN_SUGGESTED_TTL: Duration = Duration::from_secs(10);

/// A year, which means never: each write may create something. A longer time could overflow sums with it.
const WRITE_REPEAT_INTERVAL: Duration = Duration::from_hours(365 * 24);

/// In seconds since 1970. Bounds times from the server, so that sums with them do not overflow.
const YEAR_9999: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use keyward_machine::clock::{Clock, TestClock};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_suggested_ttl_shortens_the_interval_down_to_ten_seconds() {
        assert_eq!(limit_interval(Duration::from_mins(5), None).as_secs(), 300);
        for (suggested, expected) in [(2_764_800, 300), (300, 300), (60, 60), (10, 10), (1, 10)] {
            let interval = limit_interval(Duration::from_mins(5), Some(Duration::from_secs(suggested)));
            assert_eq!(interval.as_secs(), expected, "{suggested}");
        }
    }

    #[test]
    fn secrets_without_a_lease_are_read_at_their_own_interval() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        for (unit, expected) in [(0.0, 90), (0.5, 100), (1.0, 110)] {
            let at = reread_at(start, Duration::from_secs(100), unit);
            assert!((start.until(at).as_secs_f64() - f64::from(expected)).abs() < 0.01, "{unit}");
        }
        let now = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1000))).now();
        let written = SecretRequest { path: "pki/issue/web".to_owned(), op: SecretOp::Write(BTreeMap::new()) };
        let check = |request: &SecretRequest, data: Value, expected: u64| {
            let data = SecretFields::from(data.as_object().unwrap().clone());
            let found = reread_interval(request, &data, Duration::from_mins(5), now).as_secs();
            // The clock runs while the test does.
            assert!(found.abs_diff(expected) <= 1, "{found} instead of {expected}");
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
