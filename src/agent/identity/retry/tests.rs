//! The table, row by row.

use super::*;

fn status(status: u16) -> AttemptError {
    AttemptError::Refused(ErrorResponse { status, ..ErrorResponse::default() })
}

fn says(status: u16, error: &str, text: &str) -> AttemptError {
    AttemptError::Refused(ErrorResponse {
        status,
        error: error.to_owned(),
        text: text.to_owned(),
        ..ErrorResponse::default()
    })
}

fn aadsts(code: u32) -> AttemptError {
    AttemptError::Refused(ErrorResponse { status: 401, codes: vec![code], ..ErrorResponse::default() })
}

fn waits(failure: &AttemptError, endpoint: IdentityEndpoint) -> Vec<u64> {
    let mut retry_policy = RetryPolicy::default();
    let mut elapsed = Duration::ZERO;
    let next = || {
        let wait = retry_policy.next(failure, endpoint, elapsed, 1.0)?;
        elapsed += wait;
        Some(wait.as_secs())
    };
    std::iter::from_fn(next).take(20).collect()
}

#[test]
fn each_retry_rule_waits_and_reports_as_specified() {
    use IdentityEndpoint::{Authority, LocalService, Metadata, WorkloadApi};
    let check = |failure: AttemptError, endpoint, expected: &[u64], kind, hint: &str| {
        assert_eq!(waits(&failure, endpoint), expected, "{failure}");
        let error = to_identity_error(&failure, endpoint, "source");
        assert_eq!(error.kind, kind, "{failure}");
        assert!(error.hint.unwrap_or_default().contains(hint) && error.hint.is_some() != hint.is_empty(), "{error}");
    };
    check(
        AttemptError::Unreachable("refused".into()),
        Metadata,
        &[1, 2, 4],
        IdentityErrorKind::NotReady,
        "workload identity",
    );
    check(AttemptError::Unreachable("refused".into()), Authority, &[1, 2, 4], IdentityErrorKind::NotReady, "");
    check(
        AttemptError::ConnectTimedOut("http://169.254.169.254".into()),
        Metadata,
        &[2, 4, 8],
        IdentityErrorKind::NotReady,
        "firewall",
    );
    let ambiguous = "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity";
    check(
        says(400, "invalid_request", ambiguous),
        Metadata,
        &[],
        IdentityErrorKind::Denied,
        "set client_id or object_id to the one to use",
    );
    let by_token_proxy = ErrorResponse { status: 403, is_token_proxy: true, ..ErrorResponse::default() };
    check(
        AttemptError::Refused(by_token_proxy),
        Authority,
        &[],
        IdentityErrorKind::Config,
        "azure.workload.identity/use-identity-binding: \"true\", and its service account the verb use-managed-identity",
    );
    check(
        AttemptError::NoAuthorities("ca.pem does not exist".into()),
        Authority,
        &[1, 2, 4, 8, 16],
        IdentityErrorKind::Transient,
        "",
    );
    check(
        says(400, "invalid_request", "Identity not found"),
        Metadata,
        &[2, 4, 8],
        IdentityErrorKind::Denied,
        "assign",
    );
    let none = "No User Assigned or Delegated Managed Identity found for specified ClientId";
    check(says(400, "", none), LocalService, &[2, 4, 8], IdentityErrorKind::Denied, "assign");
    check(says(400, "invalid_resource", "AADSTS500011"), Metadata, &[], IdentityErrorKind::Config, "");
    for code in [401, 403, 405] {
        check(status(code), Metadata, &[], IdentityErrorKind::Config, "");
    }
    for code in [400, 401, 403, 407] {
        let page =
            || AttemptError::Refused(ErrorResponse { status: code, is_foreign: true, ..ErrorResponse::default() });
        check(page(), Metadata, &[], IdentityErrorKind::NotReady, "something other than the metadata service answered");
        check(page(), Authority, &[], IdentityErrorKind::Config, "");
    }
    check(status(404), Metadata, &[1, 2, 4, 8], IdentityErrorKind::NotReady, "updated");
    check(status(404), LocalService, &[1, 2, 4, 8], IdentityErrorKind::NotReady, "updated");
    check(status(404), Authority, &[], IdentityErrorKind::Config, "");
    check(status(403), WorkloadApi, &[1, 2, 4, 8], IdentityErrorKind::Denied, "no registration entry");
    check(status(410), Metadata, &[10; 8], IdentityErrorKind::NotReady, "updated");
    check(status(429), Metadata, &[2, 4, 8, 16], IdentityErrorKind::Throttled, "");
    for code in [408, 500, 503, 511] {
        check(status(code), Metadata, &[1, 2, 4, 8, 16], IdentityErrorKind::Transient, "");
        check(status(code), Authority, &[1, 2, 4, 8, 16], IdentityErrorKind::Transient, "");
    }
    check(status(502), Metadata, &[1, 2, 4, 8, 16], IdentityErrorKind::Transient, "proxy");
    check(status(504), Authority, &[1, 2, 4, 8, 16], IdentityErrorKind::Transient, "");
    check(AttemptError::Broken("reset".into()), Metadata, &[1, 2, 4, 8, 16], IdentityErrorKind::Transient, "");
    check(AttemptError::Unreadable("html".into()), Authority, &[1, 2, 4, 8, 16], IdentityErrorKind::Transient, "");
    check(AttemptError::NoAssertion("no file".into()), Authority, &[1; 5], IdentityErrorKind::NotReady, "mounted");
    check(aadsts(700_024), Authority, &[0, 5], IdentityErrorKind::Transient, "clock");
    for code in [70_021, 700_211, 700_212, 700_213] {
        check(aadsts(code), Authority, &[10, 20, 40], IdentityErrorKind::Denied, "federated credential");
    }
    for code in [90_061, 50_196, 90_033] {
        check(aadsts(code), Authority, &[1, 2, 4, 8, 16], IdentityErrorKind::Transient, "");
    }
    check(says(400, "temporarily_unavailable", ""), Authority, &[1, 2, 4, 8, 16], IdentityErrorKind::Transient, "");
    for code in [700_016, 900_023, 500_011, 7_000_215, 7_000_222, 53_003] {
        check(aadsts(code), Authority, &[], IdentityErrorKind::Config, "");
    }
    check(AttemptError::Untrusted("unknown issuer".into()), Authority, &[], IdentityErrorKind::Config, "not trusted");
    check(AttemptError::Redirected(302), Metadata, &[], IdentityErrorKind::Config, "portal");
    check(AttemptError::TooLarge, Metadata, &[], IdentityErrorKind::Config, "");
    check(AttemptError::Expiring, Metadata, &[5, 5, 5], IdentityErrorKind::NotReady, "clock is ahead");
    check(AttemptError::setting("no"), Metadata, &[], IdentityErrorKind::Config, "");
}

#[test]
fn the_services_retry_after_is_honoured() {
    let asks = |status, seconds| {
        let retry_after = Some(Duration::from_secs(seconds));
        AttemptError::Refused(ErrorResponse { status, retry_after, ..ErrorResponse::default() })
    };
    assert_eq!(waits(&asks(429, 7), IdentityEndpoint::Metadata), [7, 7, 7, 7]);
    assert_eq!(waits(&asks(503, 3), IdentityEndpoint::Authority), [3; 5]);
    assert_eq!(waits(&asks(429, 60), IdentityEndpoint::Authority), [60]);
    assert_eq!(waits(&asks(429, 3600), IdentityEndpoint::Authority), [0; 0], "the caller waits that long");
    assert_eq!(waits(&asks(500, 7), IdentityEndpoint::Metadata), [1, 2, 4, 8, 16]);
    assert_eq!(
        to_identity_error(&asks(429, 7), IdentityEndpoint::Metadata, "source").retry_after,
        Some(Duration::from_secs(7))
    );
}

#[test]
fn changing_failures_stay_within_the_budget_too() {
    let mut retry_policy = RetryPolicy::default();
    let mut elapsed = Duration::ZERO;
    let mut attempts = 1;
    for failure in [status(410), status(429), status(500), status(404)].iter().cycle().take(100) {
        let Some(wait) = retry_policy.next(failure, IdentityEndpoint::Metadata, elapsed, 0.0) else { break };
        elapsed += wait;
        attempts += 1;
    }
    assert!(elapsed <= TIME_LIMIT && attempts < 25, "{elapsed:?} {attempts}");
}

#[test]
fn retries_at_the_authority_have_jitter() {
    let mut retry_policy = RetryPolicy::default();
    let wait = |retry_policy: &mut RetryPolicy, unit| {
        retry_policy.next(&status(500), IdentityEndpoint::Authority, Duration::ZERO, unit)
    };
    assert_eq!(wait(&mut retry_policy, 0.0), Some(Duration::from_millis(500)));
    assert_eq!(wait(&mut retry_policy, 0.5), Some(Duration::from_millis(1500)));
}
