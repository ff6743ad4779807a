//! Tests of the time of the next attempt after failures.

use super::*;

fn at(seconds: u64) -> ClockReading {
    ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
}

#[test]
fn the_wait_depends_on_the_cause_of_the_failure() {
    let check = |before: u32, failure, retry_after: Option<u64>, unit: f64, wanted: u64| {
        let mut budget = RetryBudget::new(at(1000));
        budget.failures = before;
        budget.record_failure(at(1000), failure, retry_after.map(Duration::from_secs), unit);
        assert_eq!(budget.not_before(), at(1000 + wanted), "{before} {failure:?} {retry_after:?} {unit}");
        assert_eq!(budget.failures(), before + 1);
    };
    check(0, FailureCause::Transient, None, 1.0, 1);
    check(4, FailureCause::Transient, None, 0.5, 8);
    check(40, FailureCause::Transient, None, 1.0, 300);
    check(0, FailureCause::Transient, Some(7), 0.0, 7);
    check(0, FailureCause::Transient, Some(8), 1.0, 12);
    check(0, FailureCause::Transient, Some(999_999), 0.0, 900);
    check(40, FailureCause::Transient, Some(1), 1.0, 300);
    check(0, FailureCause::Identity, None, 0.0, 5);
    check(40, FailureCause::Identity, None, 0.0, 150);
    check(0, FailureCause::Refused, None, 0.0, 150);
    check(9, FailureCause::Refused, None, 1.0, 300);
    check(0, FailureCause::Refused, Some(600), 0.0, 600);
    check(0, FailureCause::Clock(Duration::from_secs(40)), None, 0.0, 40);
    check(0, FailureCause::Clock(Duration::ZERO), None, 0.0, 1);
    check(0, FailureCause::Clock(Duration::from_hours(9)), None, 0.0, 900);
}

#[test]
fn a_clock_that_stays_wrong_is_tried_slowly_after_one_fetch() {
    let mut budget = RetryBudget::new(at(0));
    budget.record_failure(at(0), FailureCause::Clock(Duration::ZERO), None, 0.0);
    assert_eq!(budget.not_before(), at(1));
    budget.record_failure(at(1), FailureCause::Clock(Duration::ZERO), None, 0.0);
    assert_eq!(budget.not_before(), at(151));
}

#[test]
fn failed_renewals_do_not_delay_logins() {
    let mut budget = RetryBudget::new(at(0));
    for _ in 0..20 {
        budget.record_renewal_failure(at(10), None, 1.0);
    }
    assert_eq!((budget.renewal_not_before(), budget.earliest_login(at(10))), (at(310), at(10)));
    assert_eq!(RetryBudget::restore(&budget.to_record(), at(100)).renewal_not_before(), at(310));
    budget.record_renewal_failure(at(10), Some(Duration::from_mins(10)), 0.0);
    assert_eq!(budget.renewal_not_before(), at(610));
    budget.record_success(at(20));
    assert_eq!((budget.renewal_failures(), budget.renewal_not_before()), (0, at(20)));
}

#[test]
fn a_waiting_caller_gets_a_login_soon_and_never_before_retry_after() {
    let mut budget = RetryBudget::new(at(0));
    assert_eq!(budget.next_for_caller(at(0), 0.0), None, "nothing fails");
    for _ in 0..20 {
        budget.record_failure(at(0), FailureCause::Transient, None, 1.0);
    }
    assert_eq!(budget.next_for_caller(at(1), 0.0), Some(at(4)));
    assert_eq!(budget.next_for_caller(at(200), 0.0), Some(at(200)));
    budget.record_failure(at(200), FailureCause::Transient, Some(Duration::from_mins(1)), 0.0);
    assert_eq!(budget.next_for_caller(at(201), 0.0), Some(at(260)));
    assert_eq!(budget.next_on_demand(at(201)), at(260));
    let mut resumed = RetryBudget::restore(&budget.to_record(), at(210));
    assert_eq!(resumed.next_for_caller(at(211), 0.0), Some(at(260)));
    budget.record_failure(at(300), FailureCause::Refused, None, 0.0);
    assert_eq!(budget.next_for_caller(at(301), 0.0), None, "someone has to change a setting");
    assert_eq!(budget.next_on_demand(at(301)), at(301), "and may have done so");
}

#[test]
fn unplanned_logins_are_taken_from_a_bucket() {
    let mut budget = RetryBudget::new(at(0));
    for _ in 0..LOGINS.size {
        assert_eq!(budget.earliest_login(at(10)), at(10));
        budget.take_login(at(10));
    }
    assert_eq!(budget.earliest_login(at(10)), at(130));
    assert_eq!(budget.earliest_login(at(130)), at(130));
    budget.take_login(at(130));
    assert_eq!(budget.earliest_login(at(131)), at(250));
    let resumed = RetryBudget::restore(&budget.to_record(), at(200)).earliest_login(at(200));
    assert_eq!(resumed, at(250), "a restart refills nothing");
}

#[test]
fn a_restart_keeps_the_wait_and_a_clock_set_meanwhile_cannot_make_it_long() {
    let mut budget = RetryBudget::new(at(1000));
    budget.record_failure(at(1000), FailureCause::Refused, None, 0.0);
    let record = budget.to_record();
    assert_eq!(RetryBudget::restore(&record, at(1050)).not_before(), at(1150));
    assert_eq!(RetryBudget::restore(&record, at(1050)).failures(), 1);
    assert_eq!(RetryBudget::restore(&record, at(5000)).not_before(), at(5000));
    assert_eq!(RetryBudget::restore(&record, at(10)).not_before(), at(910));
}
