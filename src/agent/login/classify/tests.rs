use std::time::Duration;

use super::LoginFailureKind::{Bug, Expired, NotYet, Refused, Unavailable};
use super::*;

#[test]
fn the_text_of_a_refusal_decides_and_the_status_where_it_is_unknown() {
    let check = |status, error: &str, kind: LoginFailureKind, hint: Option<&str>| {
        assert_eq!(classify_text(AuthMethodKind::Other, status, error), (kind, hint), "{status} {error}");
    };
    check(500, "invalid role name \"web\"", Refused, Some(NO_ROLE));
    check(400, "expected audience \"a\" got [\"b\"]", Refused, Some(AUDIENCE));
    check(500, "jwt is required", Bug, None);
    check(500, "oidc: token is expired", Expired, Some(SKEW));
    check(400, "token is not yet valid", NotYet, Some(SKEW));
    // Trouble of the server, or between it and Azure, may pass.
    check(503, "Vault is sealed", Unavailable, None);
    check(429, "invalid role name", Unavailable, None);
    check(500, "fetching keys: invalid role name", Unavailable, Some(NO_AZURE));
    check(400, "fetching keys", Refused, None);
    // A machine of a flexible scale set has the resource id of a standalone one.
    check(500, "bound scale set defined but this vm isn't in a scale set", Refused, Some(NO_SCALE_SET));
    // Unknown messages.
    check(403, "", Refused, Some(WRONG_MOUNT_OR_ADDRESS));
    check(403, "1 error occurred: * permission denied", Refused, Some(WRONG_MOUNT_OR_ADDRESS));
    check(403, "not today", Refused, None);
    check(404, "no handler for route", Refused, Some(WRONG_MOUNT));
    check(405, "unsupported operation", Refused, Some(WRONG_MOUNT));
    check(500, "not today", Unavailable, None);
    check(400, "not today", Refused, None);
}

/// Texts of the methods of Vault and OpenBao, which answer 400.
#[test]
fn refusals_of_the_methods_of_aws_and_google_are_told_apart() {
    let check = |error: &str, kind: LoginFailureKind, hint: Option<&str>| {
        assert_eq!(classify_text(AuthMethodKind::Other, 400, error), (kind, hint), "{error}");
    };
    check("entry for role web not found", Refused, Some(NO_ROLE));
    let arn = "IAM Principal \"arn:aws:sts::1:assumed-role/a/b\" does not belong to the role \"web\"";
    check(arn, Refused, Some(IAM_PRINCIPAL));
    let id = "error validating X-Vault-AWS-IAM-Server-ID header: expected \"a\" but got \"b\"";
    check(id, Refused, Some(SERVER_ID));
    let sts = |text: &str| {
        format!("error making upstream request: received error code 403 from STS: <Message>{text}</Message>")
    };
    check(&sts("Signature expired: 20150830T123600Z is now earlier than 20260101T000000Z"), Expired, Some(SKEW));
    check(&sts("Signature not yet current: 20360830T123600Z"), NotYet, Some(SKEW));
    check(&sts("Credential should be scoped to a valid region."), Refused, Some(REGION));
    let broken =
        "error making upstream request: error making request: Post \"https://sts.amazonaws.com/\": dial tcp: refused";
    check(broken, Unavailable, Some(NO_ISSUER));
    check("error making upstream request: received error code 503 from STS: busy", Unavailable, Some(NO_ISSUER));
    let retried = "error making upstream request: error making request: POST https://sts.amazonaws.com// giving up after 1 attempt(s)";
    check(retried, Unavailable, Some(NO_ISSUER));
    let no_key = "unable to get public key for signed JWT: unable to get public key \"1\" for JWT subject \"2\": no Google OAuth2 \
                  provider key found for GCE role";
    check(no_key, Refused, Some(GOOGLE_KEY));
    check("role \"web\" not found", Refused, Some(NO_ROLE));
    check("JWT is expired or does not have proper 'exp' claim", Expired, Some(SKEW));
    let account = "service account a@b (id: 1) is not authorized for role";
    check(account, Refused, Some(GOOGLE_PRINCIPAL));
    check("instance \"1\" (project \"p\") not in bound projects [q]", Refused, Some(GOOGLE_PRINCIPAL));
    let key = "unable to get public key for signed JWT: unable to get public key \"1\": dial tcp: refused";
    check(key, Unavailable, Some(NO_ISSUER));
}

fn classify_text(method: AuthMethodKind, status: u16, error: &str) -> (LoginFailureKind, Option<&'static str>) {
    let errors = if error.is_empty() { Vec::new() } else { vec![error.to_owned()] };
    classify(method, &CallError::Status { status, errors, retry_after: None, date: None })
}

#[test]
fn trouble_between_the_server_and_the_issuer_of_a_token_is_no_refusal() {
    let check = |status, error: &str, kind: LoginFailureKind, hint: Option<&str>| {
        assert_eq!(classify_text(AuthMethodKind::Kubernetes, status, error), (kind, hint), "{status} {error}");
    };
    check(403, "permission denied", Unavailable, Some(UNVERIFIED));
    check(403, "1 error occurred: * permission denied", Refused, Some(WRONG_MOUNT_OR_ADDRESS));
    check(403, "", Refused, Some(WRONG_MOUNT_OR_ADDRESS));
    check(403, "service account name not authorized", Refused, Some(SERVICE_ACCOUNT));
    check(403, "namespace not authorized", Refused, Some(SERVICE_ACCOUNT));
    check(403, "namespace not authorized err=Get \"https://x\": dial tcp: refused", Unavailable, Some(NO_ISSUER));
    check(400, "invalid role name \"x\"", Refused, Some(NO_ROLE));
    let check = |error: &str, kind: LoginFailureKind, hint: Option<&str>| {
        assert_eq!(classify_text(AuthMethodKind::Other, 400, error), (kind, hint), "{error}");
    };
    let keys = "error verifying token signature: fetching keys oidc: get keys failed Get \"https://x\": EOF";
    check(&format!("error validating token: {keys}"), Unavailable, Some(NO_ISSUER));
    check("error configuring token validator: Get \"https://x\": dial tcp: refused", Unavailable, Some(NO_ISSUER));
    check("error validating token: invalid signature", Refused, None);
    check("error validating claims: dial tcp", Refused, None);
}

#[test]
fn a_token_in_a_file_has_its_own_advice() {
    let status = |errors: &[&str]| {
        let errors = errors.iter().map(|error| (*error).to_owned()).collect();
        CallError::Status { status: 403, errors, retry_after: None, date: None }
    };
    for (error, hint) in [
        (CallError::LimitedUse { uses: 1 }, Some(LIMITED_FILE)),
        (status(&["bad token"]), Some(DEAD)),
        (status(&["permission denied"]), Some(DEAD)),
        (status(&["1 error occurred: * permission denied"]), Some(NO_LOOKUP)),
    ] {
        assert_eq!(token_file_hint(&error), hint, "{error}");
    }
}

#[test]
fn a_failure_without_a_refusal_is_classified_by_what_came() {
    let text = String::new;
    let classify = |error: &CallError| classify(AuthMethodKind::Other, error);
    assert_eq!(classify(&CallError::LimitedUse { uses: 1 }), (Refused, Some(LIMITED_ROLE)));
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
        (ErrorCode::LoginPrincipal, &[PRINCIPAL, SERVICE_ACCOUNT]),
        (ErrorCode::LoginRoleUnknown, &[NO_ROLE, NO_ROLE_ID]),
        (ErrorCode::LoginMount, &[WRONG_MOUNT, WRONG_MOUNT_OR_ADDRESS]),
        (ErrorCode::LoginMachine, &[FIELDS, OTHER_MACHINE, NO_MACHINE, ROLE_BOUNDS, NO_SCALE_SET, BAD_FIELD]),
        (ErrorCode::LoginServerSettings, &[SERVER_SETTINGS, SERVER_RIGHTS]),
        (ErrorCode::LoginSecretId, &[SECRET_ID]),
        (ErrorCode::TokenLimitedUse, &[LIMITED_ROLE, LIMITED_FILE]),
        (ErrorCode::TokenDead, &[DEAD]),
        (ErrorCode::LoginRefused, &["another"]),
    ] {
        for hint in hints {
            assert_eq!(refusal_code(Some(hint)), code, "{hint}");
        }
    }
    assert_eq!(refusal_code(None), ErrorCode::LoginRefused);
}
