//! Renewals that the server refuses, fails at, or makes shorter.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation, Role};

use super::case::{Case, LEASE, Setup, case, token};
use super::record::is_full_run;
use crate::harness::binary::eventually;

/// Waits for the token after `old`, and returns it.
fn next_token(case: &Case, old: &str) -> String {
    eventually(Duration::from_secs(40), || {
        let (status, body) = case.ask("/agent/v1/token")?;
        token(status, &body).filter(|token| token != old).ok_or_else(|| format!("{status}: {}", case.output()))
    })
}

#[test]
fn f08_a_refused_renewal_is_asked_once_and_a_login_comes_before_the_end() {
    case("F08", |case| {
        // Two thirds of the lifetime after the refusal are more than a second, enough for a busy machine.
        let role = Role { ttl: LEASE * 2, max_ttl: None, ..Role::default() };
        case.ready(&Setup { role, session: "check_interval = \"off\"", ..Setup::default() });
        let first = next_token(case, "");
        case.inject(|case| case.secrets().faults().refuse_renewals(true));
        let second = next_token(case, &first);
        assert!(case.secrets().remaining(&first).is_some(), "the new token is there before the old one ends");
        // The first login, the renewal, a look-up, and the login that follows.
        case.calls = 4;
        let calls = case.upstream_calls();
        case.record.observe("calls_until_replaced", calls);
        assert!(calls <= 4, "{calls} calls: {}", case.output());
        case.calls = 6;
        next_token(case, &second);
        assert_eq!(case.count(Operation::Renew), 1, "no other token is renewed meanwhile");
        case.clear(|case| case.secrets().faults().refuse_renewals(false));
        case.recovers(Duration::from_secs(5));
    });
}

#[test]
fn f09_renewals_that_fail_are_tried_again_and_the_token_stays() {
    case("F09", |case| {
        // With more than two failures the backoff may reach the last tenth of a lease of seconds: those take a run of everything.
        let (lease, statuses) =
            if is_full_run() { (160, &[500, 502, 503, 429, 500][..]) } else { (16, &[500, 503][..]) };
        let role = Role { ttl: Duration::from_secs(lease), max_ttl: None, ..Role::default() };
        case.ready(&Setup { role, session: "check_interval = \"off\"", ..Setup::default() });
        let first = next_token(case, "");
        case.inject(|case| {
            for status in statuses {
                let failure = CannedResponse::error(*status, "out of order");
                case.secrets().faults().respond_next(Operation::Renew, failure);
            }
        });
        eventually(Duration::from_secs(lease * 3), || match case.count(Operation::Renew) {
            renewals if renewals > statuses.len() as u64 => Ok(()),
            renewals => Err(format!("{renewals} renewals: {}", case.output())),
        });
        case.clear(|_| ());
        assert_eq!(case.recovers(Duration::from_secs(5)), first);
        assert_eq!(case.count(Operation::Login), 1);
        case.record.observe("failures", statuses.len());
    });
}

#[test]
fn f10_a_token_whose_renewals_get_shorter_is_replaced_before_its_maximum() {
    case("F10", |case| {
        let role = Role { ttl: LEASE, max_ttl: Some(Duration::from_secs(10)), ..Role::default() };
        case.ready(&Setup { role, ..Setup::default() });
        let first = next_token(case, "");
        case.inject(|_| ());
        next_token(case, &first);
        assert!(case.secrets().remaining(&first).is_some(), "the new token is there before the old one ends");
        case.clear(|_| ());
        case.recovers(Duration::from_secs(5));
    });
}
