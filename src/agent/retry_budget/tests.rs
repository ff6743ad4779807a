//! Tests of the time of the next attempt after failures.

use super::*;

fn at(seconds: u64) -> ClockReading {
    ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
}

#[test]
fn the_wait_depends_on_the_cause_of_the_failure() {
    let check = |before: u32, failure, retry_after: Option<u64>, unit: f64, expected: u64| {
        let mut budget = RetryBudget::new(at(1000));
        budget.failures = before;
        budget.record_failure(at(1000), failure, retry_after.map(Duration::from_secs), unit);
        assert_eq!(budget.not_before(), at(1000 + expected), "{before} {failure:?} {retry_after:?} {unit}");
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
    check(0, FailureCause::Identity, None, 0.4, 7);
    check(0, FailureCause::Identity, None, 1.0, 10);
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
fn three_quick_retries_follow_the_start_a_success_and_a_change_of_a_file() {
    let mut budget = RetryBudget::new(at(0)).with_quick_retries();
    let refuse = |budget: &mut RetryBudget, now: u64, unit: f64| {
        budget.record_failure(at(now), FailureCause::Refused, None, unit);
        budget.not_before().boot.saturating_sub(Duration::from_secs(now)).as_millis()
    };
    let waits = |budget: &mut RetryBudget, unit: f64| [(); 5].map(|()| refuse(budget, 1000, unit));
    assert_eq!(waits(&mut budget, 0.5), [1000, 5000, 15_000, 225_000, 225_000]);
    budget.record_success(at(1000));
    assert_eq!(waits(&mut budget, 0.0), [800, 4000, 12_000, 150_000, 150_000]);
    budget.end_wait_for_change(at(1000));
    assert_eq!(budget.not_before(), at(1000));
    assert_eq!(waits(&mut budget, 1.0), [1200, 6000, 18_000, 300_000, 300_000]);
    budget.record_failure(at(1000), FailureCause::Refused, Some(Duration::from_mins(2)), 0.0);
    budget.end_wait_for_change(at(1060));
    assert_eq!(budget.not_before(), at(1120), "the server asked to wait");
    let mut restarted = RetryBudget::restore(&budget.to_record(), at(1060)).with_quick_retries();
    assert_eq!(restarted.not_before(), at(1120), "a restart does not end a wait");
    assert_eq!(waits(&mut restarted, 0.5)[0], 225_000, "nor does it give new quick retries");
    restarted.reset_failures(at(1060));
    assert_eq!(waits(&mut restarted, 0.5)[..2], [1000, 5000], "changed settings do");
    assert_eq!(waits(&mut RetryBudget::new(at(1000)), 0.0)[0], 150_000, "other budgets have none");
}

#[test]
fn failed_renewals_do_not_delay_logins() {
    let mut budget = RetryBudget::new(at(0));
    for _ in 0..20 {
        budget.record_renewal_failure(at(10), None, 1.0);
    }
    assert_eq!((budget.renewal_not_before(), budget.earliest_login(at(10))), (at(310), at(10)));
    assert_eq!((budget.renewal_failures(), budget.failures()), (20, 0));
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
    for _ in 0..LOGINS.size() {
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
fn a_caller_whose_token_died_early_gets_a_login_before_the_bucket_has_one() {
    let mut budget = RetryBudget::new(at(0));
    assert_eq!(budget.next_for_caller(at(0), 0.0), None, "no login has succeeded");
    budget.record_success(at(10));
    assert_eq!(budget.next_for_caller(at(10), 0.0), Some(at(14)));
    assert_eq!(budget.next_for_caller(at(10), 1.0), Some(at(19)));
    assert_eq!(budget.next_for_caller(at(300), 1.0), Some(at(300)));
    budget.record_failure(at(300), FailureCause::Refused, None, 0.0);
    assert_eq!(budget.next_for_caller(at(301), 0.0), None, "someone has to change a setting");
    budget.record_success(at(500));
    budget.reset_failures(at(600));
    assert_eq!(budget.next_for_caller(at(600), 0.0), Some(at(600)), "changed settings are no success");
}

/// Returns the times of the logins in an hour in which each token is revoked at once and a caller always waits.
fn logins_of_dead_tokens(budget: &mut RetryBudget, from: u64) -> Vec<u64> {
    let mut logins = Vec::new();
    let mut now = at(from);
    loop {
        let earliest = budget.earliest_login(now);
        if let Some(sooner) = budget.next_for_caller(now, 0.0).filter(|sooner| sooner.boot < earliest.boot) {
            now = sooner;
            budget.take_for_caller(now);
        } else {
            now = latest([now, earliest]);
            budget.take_login(now);
        }
        if now.boot.as_secs() >= from + 3600 {
            return logins;
        }
        logins.push(now.boot.as_secs());
        budget.record_success(now);
    }
}

#[test]
fn dead_tokens_lead_to_at_most_49_logins_in_the_first_hour_and_33_in_later_ones() {
    let mut budget = RetryBudget::new(at(0));
    let first = logins_of_dead_tokens(&mut budget, 0);
    let gaps: Vec<_> = first.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[..16], [0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4, 88]);
    assert!(first.len() <= 49, "{}", first.len());
    let later = logins_of_dead_tokens(&mut budget, 3600);
    assert!((30..=33).contains(&later.len()), "{}", later.len());
    let mut restarted = RetryBudget::restore(&budget.to_record(), at(7200));
    assert!(logins_of_dead_tokens(&mut restarted, 7200).len() <= 34, "a restart refills nothing");
}

#[test]
fn restarts_leave_as_many_logins_for_callers_as_were_left() {
    let mut budget = RetryBudget::new(at(0));
    budget.record_success(at(0));
    for _ in 0..LOGINS.size() {
        budget.take_for_caller(at(0));
        budget.take_login(at(0));
    }
    let record = budget.to_record();
    assert!(record.callers.is_some(), "their bucket is saved without a failure too");
    let mut resumed = RetryBudget::restore(&record, at(1));
    assert_eq!(resumed.next_for_caller(at(1), 0.0), None, "the first login is the session's own");
    resumed.record_success(at(1));
    assert_eq!(resumed.next_for_caller(at(1), 0.0), Some(at(1201)));
}

#[test]
fn changed_settings_forget_failures_and_refill_nothing() {
    let mut budget = RetryBudget::new(at(0));
    budget.take_login(at(0));
    budget.record_failure(at(0), FailureCause::Refused, None, 1.0);
    budget.reset_failures(at(10));
    assert_eq!((budget.failures(), budget.not_before()), (0, at(10)));
    assert_eq!(budget.logins.available(at(10)), LOGINS.size() - 1);
}

#[test]
fn optional_calls_leave_half_of_the_bucket_for_logins() {
    let mut budget = RetryBudget::new(at(0));
    let taken = (0..LOGINS.size()).filter(|_| budget.try_take_optional(at(0))).count();
    assert_eq!((taken, budget.logins.available(at(0))), (4, 4));
}

#[test]
fn a_record_holds_whole_seconds_rounded_up() {
    let halves = |count: u64| SystemTime::UNIX_EPOCH + Duration::from_millis(count * 500);
    assert_eq!([0, 1, 2, 3].map(|count| seconds(halves(count))), [0, 1, 1, 2], "rounded up");
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
