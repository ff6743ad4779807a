//! The table, row by row.

use super::*;

fn status(status: u16) -> Failure {
    Failure::Refused(Refusal { status, ..Refusal::default() })
}

fn says(status: u16, error: &str, text: &str) -> Failure {
    Failure::Refused(Refusal { status, error: error.to_owned(), text: text.to_owned(), ..Refusal::default() })
}

fn aadsts(code: u32) -> Failure {
    Failure::Refused(Refusal { status: 401, codes: vec![code], ..Refusal::default() })
}

fn waits(failure: &Failure, asked: Asked) -> Vec<u64> {
    let mut patience = Patience::default();
    let mut elapsed = Duration::ZERO;
    let next = || {
        let wait = patience.next(failure, asked, elapsed, 1.0)?;
        elapsed += wait;
        Some(wait.as_secs())
    };
    std::iter::from_fn(next).take(20).collect()
}

#[test]
fn each_row_of_the_table_waits_and_tells_as_written() {
    use Asked::{Authority, Host, Metadata};
    let check = |failure: Failure, asked, wanted: &[u64], class, hint: &str| {
        assert_eq!(waits(&failure, asked), wanted, "{failure}");
        let told = told(&failure, asked, "source");
        assert_eq!(told.class, class, "{failure}");
        assert!(told.hint.unwrap_or_default().contains(hint) && told.hint.is_some() != hint.is_empty(), "{told}");
    };
    check(Failure::Unreachable("refused".into()), Metadata, &[1, 2, 4], Class::NotReady, "workload identity");
    check(Failure::Unreachable("refused".into()), Authority, &[1, 2, 4], Class::NotReady, "");
    check(Failure::ConnectTimedOut("http://169.254.169.254".into()), Metadata, &[2, 4, 8], Class::NotReady, "firewall");
    check(says(400, "invalid_request", "Identity not found"), Metadata, &[2, 4, 8], Class::Denied, "assign");
    let none = "No User Assigned or Delegated Managed Identity found for specified ClientId";
    check(says(400, "", none), Host, &[2, 4, 8], Class::Denied, "assign");
    check(says(400, "invalid_resource", "AADSTS500011"), Metadata, &[], Class::Config, "");
    for code in [401, 403, 405] {
        check(status(code), Metadata, &[], Class::Config, "");
    }
    check(status(404), Metadata, &[1, 2, 4, 8], Class::NotReady, "updated");
    check(status(404), Host, &[1, 2, 4, 8], Class::NotReady, "updated");
    check(status(404), Authority, &[], Class::Config, "");
    check(status(410), Metadata, &[10; 8], Class::NotReady, "updated");
    check(status(429), Metadata, &[2, 4, 8, 16], Class::Throttled, "");
    for code in [408, 500, 503, 511] {
        check(status(code), Metadata, &[1, 2, 4, 8, 16], Class::Transient, "");
        check(status(code), Authority, &[1, 2, 4, 8, 16], Class::Transient, "");
    }
    check(status(502), Metadata, &[1, 2, 4, 8, 16], Class::Transient, "proxy");
    check(status(504), Authority, &[1, 2, 4, 8, 16], Class::Transient, "");
    check(Failure::Broken("reset".into()), Metadata, &[1, 2, 4, 8, 16], Class::Transient, "");
    check(Failure::Unreadable("html".into()), Authority, &[1, 2, 4, 8, 16], Class::Transient, "");
    check(Failure::NoAssertion("no file".into()), Authority, &[1; 5], Class::NotReady, "mounted");
    check(aadsts(700_024), Authority, &[0, 5], Class::Transient, "clock");
    for code in [70_021, 700_211, 700_212, 700_213] {
        check(aadsts(code), Authority, &[10, 20, 40], Class::Denied, "federated credential");
    }
    for code in [90_061, 50_196, 90_033] {
        check(aadsts(code), Authority, &[1, 2, 4, 8, 16], Class::Transient, "");
    }
    check(says(400, "temporarily_unavailable", ""), Authority, &[1, 2, 4, 8, 16], Class::Transient, "");
    for code in [700_016, 900_023, 500_011, 7_000_215, 7_000_222, 53_003] {
        check(aadsts(code), Authority, &[], Class::Config, "");
    }
    check(Failure::Untrusted("unknown issuer".into()), Authority, &[], Class::Config, "not trusted");
    check(Failure::Redirected(302), Metadata, &[], Class::Config, "portal");
    check(Failure::TooLarge, Metadata, &[], Class::Config, "");
    check(Failure::Stale, Metadata, &[5, 5, 5], Class::NotReady, "clock is ahead");
    check(Failure::setting("no"), Metadata, &[], Class::Config, "");
}

#[test]
fn a_wait_that_the_service_asks_for_is_kept() {
    let asks = |status, seconds| {
        let retry_after = Some(Duration::from_secs(seconds));
        Failure::Refused(Refusal { status, retry_after, ..Refusal::default() })
    };
    assert_eq!(waits(&asks(429, 7), Asked::Metadata), [7, 7, 7, 7]);
    assert_eq!(waits(&asks(503, 3), Asked::Authority), [3; 5]);
    assert_eq!(waits(&asks(429, 60), Asked::Authority), [60]);
    assert_eq!(waits(&asks(429, 3600), Asked::Authority), [0; 0], "the caller waits that long");
    assert_eq!(waits(&asks(500, 7), Asked::Metadata), [1, 2, 4, 8, 16]);
    assert_eq!(told(&asks(429, 7), Asked::Metadata, "source").retry_after, Some(Duration::from_secs(7)));
}

#[test]
fn changing_failures_stay_within_the_budget_too() {
    let mut patience = Patience::default();
    let mut elapsed = Duration::ZERO;
    let mut attempts = 1;
    for failure in [status(410), status(429), status(500), status(404)].iter().cycle().take(100) {
        let Some(wait) = patience.next(failure, Asked::Metadata, elapsed, 0.0) else { break };
        elapsed += wait;
        attempts += 1;
    }
    assert!(elapsed <= BUDGET && attempts < 25, "{elapsed:?} {attempts}");
}

#[test]
fn calls_to_the_authority_are_spread() {
    let mut patience = Patience::default();
    let wait = |patience: &mut Patience, unit| patience.next(&status(500), Asked::Authority, Duration::ZERO, unit);
    assert_eq!(wait(&mut patience, 0.0), Some(Duration::from_millis(500)));
    assert_eq!(wait(&mut patience, 0.5), Some(Duration::from_millis(1500)));
}
