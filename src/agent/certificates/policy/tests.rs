use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_hours(1);
const NIGHT: Window = Window { start: Duration::from_hours(3), length: Duration::from_hours(2) };

/// A time in hours after midnight of a day in 2027.
fn at(hours: f64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_016) + Duration::from_secs_f64(hours * 3600.0)
}

fn life(begins: f64, hours: f64) -> Life {
    Life { begins: at(begins), ends: at(begins + hours) }
}

fn hours(time: SystemTime) -> f64 {
    time.duration_since(at(0.0)).unwrap().as_secs_f64() / 3600.0
}

fn policy(renew_at: Option<RenewAt>, window: Option<Window>) -> RenewalPolicy {
    RenewalPolicy { renew_at, window }
}

#[test]
fn a_certificate_is_due_after_a_part_of_its_life_or_before_its_end() {
    let check = |renew_at, unit: f64, expected: f64| {
        let due = hours(policy(renew_at, None).due(life(0.0, 100.0), unit));
        assert!((due - expected).abs() < 0.01, "{renew_at:?} {unit}: {due}");
    };
    check(None, 0.0, 63.0);
    check(None, 1.0, 70.0);
    check(Some(RenewAt::Percent(50)), 0.0, 50.0);
    check(Some(RenewAt::Percent(50)), 1.0, 45.0);
    check(Some(RenewAt::Percent(1)), 1.0, 0.5);
    check(Some(RenewAt::BeforeEnd(20 * HOUR)), 0.5, 80.0);
    check(Some(RenewAt::BeforeEnd(80 * HOUR)), 0.5, 50.0);
}

/// Due at noon of the second day, with an end 24 hours after that.
const DUE_AT_NOON: RenewAt = RenewAt::BeforeEnd(Duration::from_hours(24));

#[test]
fn a_window_is_waited_for_while_the_end_is_far() {
    let check = |window: Window, not_before: f64, now: f64, unit: f64, expected: f64| {
        let policy = policy(Some(DUE_AT_NOON), Some(window));
        let found = hours(policy.next_request(life(0.0, 60.0), at(not_before), at(now), unit));
        assert!((found - expected).abs() < 0.01, "{window:?} after {not_before} at {now}, {unit}: {found}");
    };
    let window = |start, length| Window { start: Duration::from_hours(start), length: Duration::from_hours(length) };
    // Due at 36, ends at 60: a window is waited for until 48.
    check(window(14, 2), 0.0, 1.0, 0.0, 38.0);
    check(window(14, 2), 0.0, 1.0, 0.5, 39.0);
    // It is open when the certificate is due.
    check(window(10, 4), 0.0, 1.0, 0.9, 36.0);
    // It began on the day before, and lasts beyond midnight.
    check(window(23, 14), 0.0, 1.0, 0.9, 36.0);
    // At its end the next one begins too late.
    check(window(10, 2), 0.0, 1.0, 0.9, 36.0);
    // It begins in time, and would last beyond the half.
    check(window(23, 4), 0.0, 1.0, 0.9, 48.0);
    // A failed try in the window is repeated in it, and after it at once, as the next one begins too late.
    check(window(14, 2), 38.5, 38.4, 0.0, 38.5);
    check(window(14, 2), 40.5, 40.4, 0.0, 40.5);
    // The machine slept during the window.
    check(window(14, 2), 0.0, 41.0, 0.0, 36.0);
    check(window(14, 2), 0.0, 39.0, 0.0, 38.0);
}

#[test]
fn a_missed_window_of_a_long_certificate_is_followed_by_the_next_one() {
    let policy = policy(None, Some(NIGHT));
    let month = life(0.0, 720.0);
    let due = hours(policy.due(month, 0.0));
    assert!((due - 453.6).abs() < 0.01);
    let next = |not_before: f64, now: f64| hours(policy.next_request(month, at(not_before), at(now), 0.0));
    assert!((next(0.0, 1.0) - 459.0).abs() < 0.01, "day 19, 03:00");
    assert!((next(0.0, 470.0) - 483.0).abs() < 0.01, "after the window has passed");
    assert!((next(461.2, 461.1) - 483.0).abs() < 0.01, "after a failure at its end");
    assert!((next(600.0, 599.0) - 600.0).abs() < 0.01, "in the second half nothing is waited for");
}

#[test]
fn every_replacement_of_a_year_is_in_its_window() {
    for (days, renew_at) in [
        (30, None),
        (90, None),
        (7, Some(RenewAt::Percent(50))),
        (30, Some(RenewAt::BeforeEnd(Duration::from_hours(240)))),
        (4, None),
    ] {
        let policy = policy(renew_at, Some(NIGHT));
        let (mut now, mut unit, mut replacements) = (1.0, 0.3, 0);
        while now < 365.0 * 24.0 {
            let current = life(now - 30.0 / 3600.0, f64::from(days) * 24.0);
            unit = (unit * 7.0 + 0.123_f64).fract();
            let next = hours(policy.next_request(current, at(now), at(now), unit));
            let of_day = next % 24.0;
            assert!((3.0..5.0).contains(&of_day), "{days} d: replaced at {of_day}");
            assert!(hours(current.ends) - next > f64::from(days) * 24.0 / 10.0, "{days} d: too near the end");
            (now, replacements) = (next, replacements + 1);
        }
        assert!(replacements >= 365 / days, "{replacements}");
    }
}

proptest! {
    #[test]
    fn no_window_delays_a_request_beyond_half_of_the_time_to_the_end(
        seconds in 60_u64..40_000_000,
        begins in 0_u64..86400,
        start in 0_u64..86400,
        length in 600_u64..86400,
        failed_until in 0_u64..40_000_000,
        elapsed in 0_u64..40_000_000,
        percent in 1_u8..=95,
        unit in 0.0..1.0_f64,
    ) {
        let begins = at(0.0) + Duration::from_secs(begins);
        let life = Life { begins, ends: begins + Duration::from_secs(seconds) };
        let window = Window { start: Duration::from_secs(start), length: Duration::from_secs(length) };
        let policy = policy(Some(RenewAt::Percent(percent)), Some(window));
        let due = policy.due(life, unit);
        let latest = due + life.ends.duration_since(due).unwrap() / 2;
        let not_before = begins + Duration::from_secs(failed_until);
        let now = begins + Duration::from_secs(elapsed);
        let at = policy.next_request(life, not_before, now, unit);
        prop_assert!(at >= due && at >= not_before);
        prop_assert!(at <= latest.max(not_before), "{at:?} is after {latest:?}");
        let without = RenewalPolicy { window: None, ..policy }.next_request(life, not_before, now, unit);
        prop_assert!(at >= without);
    }
}
