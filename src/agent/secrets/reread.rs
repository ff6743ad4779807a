//! Schedule of requests of a secret without a lease: a pure function of its request and its data.

use std::time::Duration;

use keyward_machine::clock::ClockReading;
use serde_json::Value;

use super::content_end::ContentEnd;
use crate::server_client::{SecretFields, SecretOp, SecretRequest};

/// Time between requests of secrets without a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Intervals {
    /// Between reads.
    pub(super) read: Duration,
    /// Between writes whose result tells no end; `None` for never, as each may create something.
    pub(super) write: Option<Duration>,
}

/// Time until the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextRequest {
    after: Duration,
    /// The server changes the secret at that time by itself. Spreading the reads would only delay them.
    is_exact: bool,
}

impl NextRequest {
    /// Returns the time of the request, give or take a tenth unless it is exact. `unit` is a random number in `0.0..1.0`.
    pub(super) fn at(self, now: ClockReading, unit: f64) -> ClockReading {
        let factor = if self.is_exact { 1.0 } else { 0.2f64.mul_add(unit, 0.9) };
        now + self.after.mul_f64(factor)
    }
}

/// Returns `interval`, or the server's suggestion if that is shorter, but not less than ten seconds.
pub(super) fn limit_interval(interval: Duration, suggested_ttl: Option<Duration>) -> Duration {
    suggested_ttl.map_or(interval, |ttl| interval.min(ttl.max(MIN_SUGGESTED_TTL)))
}

/// Returns the time until a secret without a lease is requested again, `age` after the server's response.
///
/// A write is repeated at two thirds of the time to the end of what it made; if that tells no end, at the interval of writes.
/// A read is repeated at its interval, right after the next rotation of a password that the server rotates, or at two thirds
/// of the time to the end of its content.
pub(super) fn next_request(
    request: &SecretRequest,
    data: &SecretFields,
    intervals: Intervals,
    age: Duration,
    now: ClockReading,
) -> NextRequest {
    let spread = |after| NextRequest { after, is_exact: false };
    let end = ContentEnd::parse(data);
    let remaining = end.map(|end| end.remaining(age, now));
    let share = |remaining: Duration| remaining.mul_f64(2.0 / 3.0);
    if matches!(request.op, SecretOp::Write(_)) {
        return spread(match remaining {
            // Something that has ended is requested at the ordinary interval.
            Some(Duration::ZERO) => intervals.read,
            Some(remaining) => share(remaining).max(Duration::from_secs(1)),
            None => intervals.write.unwrap_or(NEVER),
        });
    }
    let number = |name: &str| data.as_map().get(name).and_then(Value::as_u64);
    // Static roles of Vault's database engine return both. A second later, the password is new.
    if let (Some(remaining), Some(_)) = (number("ttl"), number("rotation_period")) {
        let after = Duration::from_secs(remaining.saturating_add(1));
        return if after < intervals.read { NextRequest { after, is_exact: true } } else { spread(intervals.read) };
    }
    let remaining = remaining.filter(|remaining| !remaining.is_zero());
    spread(remaining.map_or(intervals.read, |remaining| intervals.read.min(share(remaining).max(MIN_SUGGESTED_TTL))))
}

/// Returns the end of what a write has made, `age` after the server's response. It is `now` if that has ended; `None` if
/// its content tells no end, and for other requests: they show what is on the server, whatever its age.
pub(super) fn made_until(
    request: &SecretRequest,
    data: &SecretFields,
    age: Duration,
    now: ClockReading,
) -> Option<ClockReading> {
    let is_made = matches!(request.op, SecretOp::Write(_));
    is_made.then(|| ContentEnd::parse(data)).flatten().map(|end| now + end.remaining(age, now))
}

/// Returns the time until the write of the previous process is repeated; `None` for at once. Its result may still be valid, and
/// each write may create something.
pub(super) fn rewrite_after(
    request: &SecretRequest,
    data: &SecretFields,
    intervals: Intervals,
    age: Duration,
    now: ClockReading,
) -> Option<NextRequest> {
    let has_ended = made_until(request, data, age, now).is_some_and(|end| now.until(end).is_zero());
    if has_ended || !matches!(request.op, SecretOp::Write(_)) {
        return None;
    }
    let mut next = next_request(request, data, intervals, age, now);
    if ContentEnd::parse(data).is_none() {
        next.after = next.after.saturating_sub(age);
    }
    Some(next)
}

/// As the least `templates.interval`: whoever writes a secret does not decide how often each machine calls the server.
const MIN_SUGGESTED_TTL: Duration = Duration::from_secs(10);

/// A year. A longer time could overflow sums with it.
pub(super) const NEVER: Duration = Duration::from_hours(365 * 24);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::SystemTime;

    use keyward_machine::clock::{Clock, TestClock};
    use serde_json::json;

    use super::*;

    const FIVE_MINUTES: Intervals = Intervals { read: Duration::from_mins(5), write: None };

    fn fields(data: &Value) -> SecretFields {
        SecretFields::from(data.as_object().unwrap().clone())
    }

    fn written() -> SecretRequest {
        SecretRequest { path: "pki/issue/web".to_owned(), op: SecretOp::Write(BTreeMap::new()) }
    }

    fn at(seconds: u64) -> ClockReading {
        Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))).now()
    }

    #[test]
    fn a_suggested_ttl_shortens_the_interval_down_to_ten_seconds() {
        assert_eq!(limit_interval(Duration::from_mins(5), None).as_secs(), 300);
        for (suggested, expected) in [(2_764_800, 300), (300, 300), (60, 60), (10, 10), (1, 10)] {
            let interval = limit_interval(Duration::from_mins(5), Some(Duration::from_secs(suggested)));
            assert_eq!(interval.as_secs(), expected, "{suggested}");
        }
    }

    #[test]
    fn requests_are_spread_except_those_after_a_rotation_of_the_server() {
        let start = at(0);
        for (is_exact, unit, expected) in [(false, 0.0, 90), (false, 0.5, 100), (false, 1.0, 110), (true, 1.0, 100)] {
            let at = NextRequest { after: Duration::from_secs(100), is_exact }.at(start, unit);
            assert!((start.until(at).as_secs_f64() - f64::from(expected)).abs() < 0.01, "{unit}");
        }
        let role = fields(&json!({ "ttl": 60, "rotation_period": 3600 }));
        let next = |interval: u64| {
            let intervals = Intervals { read: Duration::from_secs(interval), write: None };
            next_request(&SecretRequest::read("database/static-creds/app"), &role, intervals, Duration::ZERO, start)
        };
        assert_eq!(next(300), NextRequest { after: Duration::from_secs(61), is_exact: true });
        assert_eq!(next(30), NextRequest { after: Duration::from_secs(30), is_exact: false });
    }

    #[test]
    fn secrets_without_a_lease_are_requested_at_their_own_time() {
        let now = at(1000);
        let check = |request: &SecretRequest, data: Value, intervals: Intervals, age: u64, expected: u64| {
            let found = next_request(request, &fields(&data), intervals, Duration::from_secs(age), now).after.as_secs();
            // The clock runs while the test does.
            assert!(found.abs_diff(expected) <= 1, "{data}: {found} instead of {expected}");
        };
        let read = SecretRequest::read("secret/data/web");
        check(&read, json!({ "password": "p" }), FIVE_MINUTES, 0, 300);
        check(&read, json!({ "ttl": 60, "password": "p" }), FIVE_MINUTES, 0, 40);
        check(&read, json!({ "ttl": 6, "password": "p" }), FIVE_MINUTES, 0, 10);
        check(&read, json!({ "ttl": 3000, "rotation_period": 3600 }), FIVE_MINUTES, 0, 300);
        check(&read, json!({ "certificate": "c", "expiration": 9000 }), FIVE_MINUTES, 0, 300);
        check(&written(), json!({ "certificate": "c", "expiration": 4000 }), FIVE_MINUTES, 0, 2000);
        check(&written(), json!({ "expiration": "4000" }), FIVE_MINUTES, 0, 2000);
        check(&written(), json!({ "certificate": "c", "expiration": 900 }), FIVE_MINUTES, 0, 300);
        check(&written(), json!({ "secret_id": "s", "secret_id_ttl": 12 }), FIVE_MINUTES, 0, 8);
        check(&written(), json!({ "secret_id": "s", "secret_id_ttl": 12 }), FIVE_MINUTES, 6, 4);
        check(&written(), json!({ "plaintext": "p" }), FIVE_MINUTES, 0, NEVER.as_secs());
        let daily = Intervals { write: Some(Duration::from_hours(24)), ..FIVE_MINUTES };
        check(&written(), json!({ "plaintext": "p" }), daily, 0, 86_400);
        check(&written(), json!({ "expiration": 4000 }), daily, 0, 2000);
    }

    #[test]
    fn a_write_of_the_previous_process_is_repeated_when_it_is_due() {
        let now = at(1000);
        let daily = Intervals { write: Some(Duration::from_hours(24)), ..FIVE_MINUTES };
        let remade = |request: &SecretRequest, data: Value, intervals: Intervals| {
            let after = rewrite_after(request, &fields(&data), intervals, Duration::from_secs(400), now);
            after.map(|next| next.after.as_secs().div_ceil(100))
        };
        assert_eq!(remade(&written(), json!({ "certificate": "c", "expiration": 4000 }), FIVE_MINUTES), Some(20));
        assert_eq!(
            remade(&written(), json!({ "certificate": "c", "expiration": 1000 }), FIVE_MINUTES),
            None,
            "it has ended"
        );
        assert_eq!(remade(&written(), json!({ "ttl": 300 }), FIVE_MINUTES), None, "it has ended");
        assert_eq!(remade(&written(), json!({ "plaintext": "p" }), FIVE_MINUTES), Some(365 * 24 * 36 - 4));
        assert_eq!(remade(&written(), json!({ "plaintext": "p" }), daily), Some(860));
        let read = SecretRequest::read("secret/data/web");
        assert_eq!(remade(&read, json!({ "password": "p" }), FIVE_MINUTES), None, "it may be another by now");
    }

    #[test]
    fn only_what_was_made_has_an_end() {
        let now = at(1000);
        let left = |request: &SecretRequest, data: Value| {
            made_until(request, &fields(&data), Duration::from_secs(5), now)
                .map(|end| now.until(end).as_secs().div_ceil(10))
        };
        assert_eq!(left(&written(), json!({ "ttl": 100 })), Some(10));
        assert_eq!(left(&written(), json!({ "ttl": 3 })), Some(0));
        assert_eq!(left(&written(), json!({ "plaintext": "p" })), None);
        assert_eq!(left(&SecretRequest::read("kv/app"), json!({ "ttl": 100 })), None);
    }
}
