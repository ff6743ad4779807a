//! Classification of failed logins: each error that an auth method can return has a class.

mod methods;

use std::time::{Duration, SystemTime};

use keyward_agent::identity::{IdentityProof, SignedToken};
use keyward_agent::login::{LoginError, Remedy};
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_emulators::secrets::{CannedResponse, Operation, Role};

use crate::agent::identity::signed;
use crate::harness::secrets::{Bench, proof};

/// Status, text and expected class of every error of the auth methods of Vault and OpenBao, of the servers' core, and of
/// keyward's ACL server where its texts differ.
const ERRORS: &[(u16, &str, &str)] = &[
    (400, "jwt is required", "bug"),
    (400, "role is required", "bug"),
    (400, "invalid role name \"x\"", "refused"),
    (400, "invalid subscription id \"x\"", "refused"),
    (400, "invalid resource group name \"x\"", "refused"),
    (400, "invalid vmss_name \"x\"", "refused"),
    (400, "invalid vm name \"x\"", "refused"),
    (403, "permission denied", "refused"),
    (500, "tenant_id is required", "refused"),
    (500, "resource is required", "refused"),
    (500, "err: no cloud configuration matching the name \"x\"", "refused"),
    (
        500,
        "Get \"https://login.microsoftonline.com/t/...\": dial tcp 10.0.0.1:443: connect: connection refused",
        "unavailable",
    ),
    (
        500,
        "Get \"https://login.microsoftonline.com/t/...\": dial tcp: lookup login.microsoftonline.com: no such host",
        "unavailable",
    ),
    (500, "Get \"https://login.microsoftonline.com/t/...\": net/http: TLS handshake timeout", "unavailable"),
    (
        500,
        "Get \"https://login.microsoftonline.com/t/...\": tls: failed to verify certificate: x509: unknown authority",
        "unavailable",
    ),
    (500, "404 Not Found: {\"error\":\"invalid_tenant\"}", "unavailable"),
    (500, "unable to unmarshal discovery url: unexpected end of JSON input", "unavailable"),
    (500, "unable to retrieve backend configuration: context deadline exceeded", "unavailable"),
    (500, "oidc: malformed jwt: oidc: malformed jwt, expected 3 parts got 1", "bug"),
    (500, "oidc: id token issued by a different provider, expected \"A\" got \"B\"", "refused"),
    (500, "oidc: expected audience \"A\" got [\"B\"]", "refused"),
    (500, "oidc: token is expired (Token Expiry: 2026-01-01 00:00:00 +0000 UTC)", "clock refetch"),
    (500, "oidc: current time 2026-01-01 before the nbf (not before) time: 2026-01-02", "clock wait"),
    (500, "token is not yet valid (Token Not Before: 2026-01-02 00:00:00 +0000 UTC)", "clock wait"),
    (500, "oidc: id token signed with unsupported algorithm, expected [\"RS256\"] got \"HS256\"", "refused"),
    (500, "failed to verify signature: failed to verify id token signature", "refused"),
    (500, "failed to verify signature: fetching keys oidc: get keys failed Get \"https://...\": EOF", "unavailable"),
    (500, "expected specific bound_group_ids or bound_service_principal_ids; both cannot be empty or '*'", "refused"),
    (500, "service principal not authorized: 33333333-3333-3333-3333-333333333333", "refused"),
    (500, "groups not authorized: []", "refused"),
    (500, "subscription_id and resource_group_name are required", "bug"),
    (500, "xms_az_rid and xms_mirid claims are missing from token", "refused"),
    (500, "xms_az_rid token claim does not match vm_name x\nxms_mirid token claim does not match vm_name x", "refused"),
    (500, "failed to verify flexible vmss claim: x", "refused"),
    (500, "failed to verify uniform vmss claim: x", "refused"),
    (500, "provided resource_id does not match resource_group_name", "refused"),
    (
        500,
        "unable to retrieve virtual machine metadata: GET https://management.azure.com/...\n----\nRESPONSE 403: 403 Forbidden\nERROR CODE: AuthorizationFailed",
        "refused",
    ),
    (
        500,
        "unable to retrieve virtual machine metadata: GET https://management.azure.com/...\n----\nRESPONSE 404: 404 Not Found\nERROR CODE: ResourceNotFound",
        "refused",
    ),
    (
        500,
        "unable to retrieve virtual machine metadata: GET https://management.azure.com/...\n----\nRESPONSE 429: 429 Too Many Requests\nERROR CODE: TooManyRequests",
        "unavailable",
    ),
    (
        500,
        "unable to retrieve virtual machine scale set metadata: GET https://management.azure.com/...\n----\nRESPONSE 503: 503 Service Unavailable",
        "unavailable",
    ),
    (500, "unable to retrieve user assigned identity metadata: x", "refused"),
    (500, "unable to get the provider for resource \"x\": y", "refused"),
    (500, "unable to parse the resource ID: \"x\"", "refused"),
    (500, "failed to create compute client: x", "refused"),
    (500, "failed to create client secret token credential: x", "refused"),
    (500, "vm client did not return identity information", "refused"),
    (500, "vmss client did not return identity information", "refused"),
    (500, "client did not return identity information", "refused"),
    (500, "bound scale set defined but this vm isn't in a scale set", "refused"),
    (500, "scale set requires the vmss_name field to be set", "refused"),
    (500, "scale set not authorized", "refused"),
    (500, "subscription not authorized", "refused"),
    (500, "resource group not authorized", "refused"),
    (500, "location is empty", "refused"),
    (500, "location not authorized", "refused"),
    (500, "one of vm_name, vmss_name, resource_id, or an appid JWT claim must be provided", "refused"),
    (500, "token object id does not match expected identities, and no app id was found", "refused"),
    (500, "neither token object id nor token app id match expected identities", "refused"),
    (400, "malformed jwt: its claims are not of the types that they should be", "bug"),
    (400, "vm_name differs from what the token says", "refused"),
    (400, "this server does not wrap answers: leave the wrap TTL out", "refused"),
    (403, "failed to verify signature: the issuer has no key \"k\"", "refused"),
    (403, "token is expired (Token Expiry: 2026-01-01T00:00:00Z)", "clock refetch"),
    (403, "current time 2026-01-01 before the nbf (not before) time: 2026-01-02", "clock wait"),
    (403, "virtual machine not authorized", "refused"),
    (503, "failed to verify signature: fetching keys failed: x", "unavailable"),
    (404, "no handler for route \"auth/azure/login\"", "refused"),
    (405, "unsupported operation", "refused"),
    (412, "required index state not present", "unavailable"),
    (429, "request path \"auth/azure/login\": rate limit quota exceeded", "unavailable"),
    (472, "", "unavailable"),
    (473, "", "unavailable"),
    (500, "internal error", "unavailable"),
    (502, "", "unavailable"),
    (503, "Vault is sealed", "unavailable"),
    (307, "", "unavailable"),
];

fn class(error: &LoginError) -> String {
    match error {
        LoginError::Clock { remedy: Remedy::Refetch, .. } => "clock refetch".to_owned(),
        LoginError::Clock { remedy: Remedy::Wait(_), .. } => "clock wait".to_owned(),
        error => error.reason().to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_error_of_the_auth_method_is_classified() {
    let bench = Bench::new(Role::default());
    let login = bench.login();
    for (status, text, expected) in ERRORS {
        bench.secrets.faults().respond_next(Operation::Login, CannedResponse::error(*status, text));
        let error = login.login(&proof("a.b.c"), &bench.clock).await.unwrap_err();
        assert_eq!(class(&error), *expected, "HTTP {status} {text}: {error}");
        assert!(error.to_string().lines().count() == 1, "{error}");
    }
    assert_eq!(bench.secrets.faults().counts().get(Operation::Login), ERRORS.len() as u64, "one call a login");
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_has_advice_for_the_operator() {
    let bench = Bench::new(Role::default());
    let login = bench.login();
    let check = async |status: u16, text: &str, expected: &str| {
        bench.secrets.faults().respond_next(Operation::Login, CannedResponse::error(status, text));
        let error = login.login(&proof("a.b.c"), &bench.clock).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(500, "oidc: expected audience \"A\" got [\"B\"]", "byte for byte").await;
    check(500, "oidc: id token issued by a different provider", "requestedAccessTokenVersion").await;
    check(500, "oidc: token is expired", "clock").await;
    check(400, "invalid role name \"x\"", "no role of this name").await;
    check(403, "permission denied", "mount path").await;
    check(500, "groups not authorized: []", "up to a day later").await;
    check(500, "subscription_id and resource_group_name are required", "bind the role only to service principals")
        .await;
    check(400, "invalid role name \"x\"", &bench.secrets.url().replace("http://", "")).await;
}

#[tokio::test(start_paused = true)]
async fn the_servers_retry_after_is_returned() {
    let bench = Bench::new(Role::default());
    let login = bench.login();
    let check = async |status: u16, value: &str, expected: Option<u64>| {
        let response = CannedResponse::error(status, "x").retry_after(value);
        bench.secrets.faults().respond_next(Operation::Login, response);
        let error = login.login(&proof("a.b.c"), &bench.clock).await.unwrap_err();
        assert_eq!(error.retry_after(), expected.map(Duration::from_secs), "{value}");
    };
    check(429, "7", Some(7)).await;
    check(503, "999999", Some(900)).await;
    check(503, "-1", None).await;
    check(503, "soon", None).await;
    check(400, "30", Some(30)).await;
}

fn proof_with_validity(nbf: SystemTime, exp: SystemTime) -> IdentityProof {
    let claims = UnverifiedClaims { nbf: Some(nbf), exp: Some(exp), ..UnverifiedClaims::default() };
    let signed = signed(proof("a.b.c"));
    IdentityProof::Signed(Box::new(SignedToken { claims: Some(claims), ..signed }))
}

#[tokio::test(start_paused = true)]
async fn a_proof_outside_its_time_is_not_sent() {
    let bench = Bench::new(Role::default());
    let (login, now, hour) = (bench.login(), bench.clock.now().wall, Duration::from_hours(1));

    let error =
        login.login(&proof_with_validity(now - hour, now - Duration::from_secs(1)), &bench.clock).await.unwrap_err();
    assert_eq!(class(&error), "clock refetch");

    let start = now + Duration::from_secs(30);
    let error = login.login(&proof_with_validity(start, now + hour), &bench.clock).await.unwrap_err();
    let LoginError::Clock { remedy: Remedy::Wait(Some(until)), .. } = error else { panic!("{error}") };
    assert_eq!(until, start + Duration::from_secs(1));
    assert_eq!(bench.secrets.faults().counts().total(), 0);

    login.login(&proof_with_validity(now - hour, now + hour), &bench.clock).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_clock_is_behind_is_retried_by_its_own_clock() {
    let bench = Bench::new(Role::default());
    let now = bench.clock.now().wall;
    let proof = proof_with_validity(now - Duration::from_secs(5), now + Duration::from_hours(1));
    let behind = CannedResponse::error(500, "token is not yet valid (Token Not Before: x)");
    bench.secrets.faults().respond_next(Operation::Login, behind.clone());
    bench.secrets.faults().skew(-60);
    let error = bench.login().login(&proof, &bench.clock).await.unwrap_err();
    assert!(error.to_string().contains("its clock is 60 s behind this machine's"), "{error}");
    let LoginError::Clock { remedy: Remedy::Wait(Some(until)), .. } = error else { panic!("{error}") };
    assert_eq!(until, now + Duration::from_secs(56));

    bench.secrets.faults().respond_next(Operation::Login, behind);
    bench.secrets.faults().skew(-86_400);
    let error = bench.login().login(&proof, &bench.clock).await.unwrap_err();
    assert!(matches!(error, LoginError::Clock { remedy: Remedy::Wait(None), .. }), "a day is no wait: {error}");
}

#[tokio::test(start_paused = true)]
async fn no_error_holds_the_proof_or_a_token_that_a_server_echoes() {
    const CANARY: &str = "eyJhbGciOiJSUzI1NiJ9.canary-canary-canary.c2lnbmF0dXJl";
    let bench = Bench::new(Role::default());
    let login = bench.login();
    let echo = |text: String| serde_json::json!({ "errors": [text] }).to_string();
    let bodies = [
        (500, echo(format!("cannot parse {CANARY}"))),
        (400, echo(CANARY.to_owned())),
        (403, echo(format!("a={CANARY}&b"))),
        (500, CANARY.to_owned()),
        (200, CANARY.to_owned()),
        (200, format!("{{\"auth\": {{\"client_token\": \"{CANARY} \", \"lease_duration\": 1}}}}")),
        (200, format!("{{\"auth\": {{\"client_token\": 1, \"lease_duration\": \"{CANARY}\"}}}}")),
        (200, format!("{{\"auth\": {{\"client_token\": \"{CANARY}\", \"lease_duration\": 1, \"num_uses\": 2}}}}")),
    ];
    for (status, body) in bodies {
        bench.secrets.faults().respond_next_login(status, body);
        let error = login.login(&proof(CANARY), &bench.clock).await.unwrap_err();
        let rendered = format!("{error} {error:?}");
        assert!(!rendered.contains("canary"), "{rendered}");
    }
    let token = bench.login().login(&proof(CANARY), &bench.clock).await.unwrap();
    assert!(!format!("{token:?}").contains("emulated-"), "{token:?}");
}

/// A token with a line end would break credential files and protocols of lines (as CVE-2020-5260 did), an error with
/// escapes the terminal that shows it (CVE-2024-52005).
#[tokio::test(start_paused = true)]
async fn t29_a_hostile_answer_to_a_login_gives_no_token_and_an_error_of_one_printable_line() {
    let bench = Bench::new(Role::default());
    let login = bench.login();
    let auth =
        |token: &str, lease: &str| format!("{{\"auth\": {{\"client_token\": {token}, \"lease_duration\": {lease}}}}}");
    let escapes = "\\u001b[2J\\u001b]0;x\\u0007\\r\\n\\u0000 \\u202e \\u009b31m";
    let mut bodies: Vec<(u16, String)> = [
        "\"\"",
        "\"a b\"",
        "\"a\\nb\"",
        "\"a\\r\\nX-Vault-Token: b\"",
        "\"a\\u0000\"",
        "\"\\u00e9\"",
        "\"\\u001b[2J\"",
        "1",
        "null",
        "[\"t\"]",
        "{}",
        "true",
    ]
    .iter()
    .map(|token| (200, auth(token, "60")))
    .collect();
    bodies.extend(
        ["-1", "1.5", "1e300", "\"60\"", "null", "[60]", "18446744073709551616"]
            .map(|lease| (200, auth("\"t\"", lease))),
    );
    bodies.push((200, auth(&format!("\"{}\"", "t".repeat(4097)), "60")));
    bodies.extend(
        ["", " ", "null", "[]", "{", "{\"auth\": null}", "{\"auth\": []}", "<html>", "\u{feff}{}"]
            .map(|body| (200, body.to_owned())),
    );
    bodies.push((200, "[".repeat(500_000)));
    bodies.push((200, "{\"auth\":".repeat(100_000)));
    for status in [400, 403, 429, 500, 503] {
        bodies.push((status, format!("{{\"errors\": [\"{escapes}\"]}}")));
        bodies.push((status, format!("{{\"errors\": [\"{}\"]}}", "x".repeat(500_000))));
        bodies.push((status, "\u{1b}[31m\r\n\u{0}".to_owned()));
    }
    for (status, body) in bodies {
        bench.secrets.faults().respond_next_login(status, body.clone());
        let start = body.chars().take(60).collect::<String>();
        match login.login(&proof("a.b.c"), &bench.clock).await {
            Ok(_) => panic!("{status} {start} gives a token"),
            Err(error) => {
                let text = error.to_string();
                assert!(!text.chars().any(char::is_control), "{status} {start}: {text:?}");
                assert!(text.len() < 2_000, "{status} {start}: {} bytes", text.len());
            }
        }
    }
    bench.login().login(&proof("a.b.c"), &bench.clock).await.unwrap();
}
