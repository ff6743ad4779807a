//! Rules about bodies.

use super::*;

#[test]
fn each_rule_about_bodies_has_a_match_and_a_mismatch() {
    let pair = |server: &ServerInfo, expected: &str, call: &str, acts: &str, does_not: &str| {
        let (method, target) = call.split_once(' ').unwrap();
        let method = method.parse().unwrap();
        let path = format!("/api/v2{target}");
        let call = ApiCall { method: &method, path: &path, query: "" };
        assert!(actions(ActionOptions::default()).assess_call(call, server).reads_body, "{call:?}");
        for (attributes, expected) in [(acts, expected), (does_not, "")] {
            let body = format!(r#"{{"data":{{"type":"x","attributes":{attributes}}}}}"#);
            let findings = actions(ActionOptions::default()).assess_body(call, body.as_bytes(), server);
            assert_eq!(said(&findings), expected, "{call:?} {attributes}");
            assert_eq!(blocking_errors(&findings).len(), expected.matches('!').count());
            assert!(findings.iter().all(|finding| finding.pointer.as_ref().unwrap().starts_with("/data/attributes")));
        }
    };
    let unknown = ServerInfo::default();
    let old = released("v202112-1");
    let new = released("1.0.3");
    let settings = "PATCH /admin/general-settings";
    pair(
        &unknown,
        "2024-08-01/1",
        settings,
        r#"{"platform-build-worker-plan-timeout":"2h"}"#,
        r#"{"plan-timeout":"2h"}"#,
    );
    pair(&unknown, "2024-08-01/1", settings, r#"{"terraform_build_worker_apply_timeout":"2h"}"#, "{}");
    pair(&hosted(), "", settings, r#"{"platform-build-worker-plan-timeout":"2h"}"#, "{}");
    pair(&hosted(), "2024-08-01/3!", settings, r#"{"plan-timeout":"2h"}"#, r#"{"other":1}"#);
    let organization = "PATCH /admin/organizations/o";
    pair(
        &unknown,
        "2024-08-01/2",
        organization,
        r#"{"terraform-build-worker-plan-timeout":1}"#,
        r#"{"apply-timeout":1}"#,
    );
    pair(&hosted(), "2024-08-01/4!", organization, r#"{"apply-timeout":1}"#, "{}");
    // Older than the row, which is for this product: its date alone refuses nothing.
    pair(
        &old,
        "2024-08-01/4",
        organization,
        r#"{"apply-timeout":1}"#,
        r#"{"platform-build-worker-plan-timeout":"2h"}"#,
    );
    pair(&old, "2022-06-21/1!", organization, r#"{"workspace-limit":5}"#, r#"{"other":1}"#);
    pair(&new, "", organization, r#"{"workspace-limit":5}"#, "{}");
    let policy = "POST /organizations/o/policies";
    let enforced = r#"{"name":"p","enforcement-level":"advisory"}"#;
    pair(&unknown, "2023-05-25/3", policy, r#"{"name":"p","enforce":[]}"#, enforced);
    pair(&unknown, "2022-11-18/1!", policy, r#"{"name":"p"}"#, enforced);
    pair(&unknown, "2022-11-18/1!", policy, r#"{"name":"p","enforcement-level":null}"#, enforced);
    pair(&unknown, "2023-05-25/3", "PATCH /policies/p", r#"{"enforce":[]}"#, "{}");
    let long = format!(r#"{{"name":"{}"}}"#, "é".repeat(41));
    let short = format!(r#"{{"name":"{}"}}"#, "é".repeat(40));
    pair(&unknown, "2024-04-25/1!", "POST /organizations/o/projects", &long, &short);
    pair(&unknown, "2024-04-25/1!", "PATCH /projects/p", &long, r#"{"name":7}"#);
    // On a release before these rows.
    for (call, body) in
        [(policy, r#"{"name":"p","enforce":[]}"#), (policy, r#"{"name":"p"}"#), ("PATCH /projects/p", &long)]
    {
        pair(&old, "", call, body, "{}");
    }
    pair(&old, "2023-05-25/2", policy, enforced, r#"{"name":"p"}"#);
    pair(&old, "2023-08-21/1", "POST /runs", r#"{"save-plan":true}"#, r#"{"refresh":true}"#);
    let plans = "PATCH /organizations/o";
    let (wrong, right) =
        (r#"{"vcs-speculative-plan-management":true}"#, r#"{"speculative-plan-management-enabled":true}"#);
    pair(&unknown, "2024-10-14/1", plans, wrong, right);
    pair(&old, "2024-10-14/1", plans, right, "{}");
    let module = "POST /organizations/o/registry-modules";
    pair(
        &released("v202105-1"),
        "2021-06-08/4!",
        module,
        r#"{"registry-name":"public"}"#,
        r#"{"registry-name":"private"}"#,
    );
    pair(&hosted(), "", module, r#"{"registry-name":"public"}"#, "{}");
}

#[test]
fn invalid_or_long_bodies_have_no_findings() {
    let read = |path: &str, body: &[u8]| {
        let call = ApiCall { method: &Method::POST, path, query: "" };
        actions(ActionOptions::default()).assess_body(call, body, &ServerInfo::default()).len()
    };
    let path = "/api/v2/organizations/o/policies";
    assert_eq!(read(path, br#"{"data":{}}"#), 1);
    for body in [&b""[..], b"{", b"[]", b"7", br#"{"data":[]}"#, br#"{"data":null}"#] {
        assert_eq!(read(path, body), 0, "{body:?}");
    }
    let mut long = br#"{"data":{}}"#.to_vec();
    long.resize(MAX_BODY + 1, b' ');
    assert_eq!(read(path, &long), 0);
    assert_eq!(read(path, &long[..MAX_BODY]), 1);
    assert_eq!(read("/api/v2/organizations/o/workspaces", br#"{"data":{}}"#), 0);
    assert_eq!(read("/organizations/o/policies", br#"{"data":{}}"#), 0);
}
