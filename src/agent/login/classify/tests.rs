use std::time::Duration;

use super::LoginFailureKind::{Bug, Expired, NotYet, Refused, Unavailable};
use super::*;

#[test]
fn the_text_of_a_refusal_decides_and_the_status_where_it_is_unknown() {
    let check = |status, error: &str, kind: LoginFailureKind, hint: Option<&str>| {
        let errors = if error.is_empty() { Vec::new() } else { vec![error.to_owned()] };
        let found = classify(&CallError::Status { status, errors, retry_after: None, date: None });
        assert_eq!(found, (kind, hint), "{status} {error}");
    };
    check(500, "invalid role name \"web\"", Refused, Some(NO_ROLE));
    check(400, "expected audience \"a\" got [\"b\"]", Refused, Some(AUDIENCE));
    check(500, "jwt is required", Bug, None);
    check(500, "oidc: token is expired", Expired, Some(SKEW));
    check(400, "token is not yet valid", NotYet, Some(SKEW));
    // Trouble of the server, or between it and Azure, may pass.
    check(503, "Vault is sealed", Unavailable, None);
    check(429, "invalid role name", Unavailable, None);
    check(500, "fetching keys: invalid role name", Unavailable, Some("the server could not query Azure"));
    check(400, "fetching keys", Refused, None);
    // Unknown messages.
    check(403, "", Refused, Some(WRONG_MOUNT_OR_ADDRESS));
    check(403, "1 error occurred: * permission denied", Refused, Some(WRONG_MOUNT_OR_ADDRESS));
    check(403, "not today", Refused, None);
    check(404, "no handler for route", Refused, Some(WRONG_MOUNT));
    check(405, "unsupported operation", Refused, Some(WRONG_MOUNT));
    check(500, "not today", Unavailable, None);
    check(400, "not today", Refused, None);
}

#[test]
fn a_failure_without_a_refusal_is_classified_by_what_came() {
    let text = String::new;
    assert_eq!(classify(&CallError::LimitedUse { uses: 1 }), (Refused, None));
    assert_eq!(classify(&CallError::NoSecret { what: "nothing" }), (Refused, None));
    for error in [
        CallError::Unreachable { cause: text() },
        CallError::TimedOut { server: text(), after: Duration::ZERO },
        CallError::InvalidResponse { what: text() },
    ] {
        assert_eq!(classify(&error), (Unavailable, None), "{error}");
    }
}

#[test]
fn a_refusal_has_the_code_of_its_advice() {
    for (code, hints) in [
        (ErrorCode::LoginAudience, &[AUDIENCE][..]),
        (ErrorCode::LoginIssuer, &[ISSUER, OTHER_CLOUD, OTHER_TENANT]),
        (ErrorCode::LoginClock, &[SKEW]),
        (ErrorCode::LoginPrincipal, &[PRINCIPAL]),
        (ErrorCode::LoginRoleUnknown, &[NO_ROLE, NO_ROLE_ID]),
        (ErrorCode::LoginMount, &[WRONG_MOUNT, WRONG_MOUNT_OR_ADDRESS]),
        (ErrorCode::LoginMachine, &[FIELDS, FOREIGN, NO_MACHINE, ROLE_BOUNDS, BAD_FIELD]),
        (ErrorCode::LoginServerSettings, &[SERVER_SETTINGS, SERVER_RIGHTS]),
        (ErrorCode::LoginSecretId, &[SECRET_ID]),
        (ErrorCode::TokenDead, &[DEAD]),
        (ErrorCode::LoginRefused, &["another"]),
    ] {
        for hint in hints {
            assert_eq!(refusal_code(Some(hint)), code, "{hint}");
        }
    }
    assert_eq!(refusal_code(None), ErrorCode::LoginRefused);
}
