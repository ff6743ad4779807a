//! Deprecated calls and their replacements: the order of the calls, the names that become part of a path, the silent mode.

use http::Response;
use keyward_gateway::actions::{ActionOptions, DeprecatedCallMode};
use serde_json::{Value, json};

use crate::harness::front::Front;
use crate::harness::scripted::{Seen, reply};

const JSON: [(&str, &str); 1] = [("content-type", "application/vnd.api+json")];
const OLD: &str = "/api/v2/registry-modules";

fn in_mode(deprecated: DeprecatedCallMode) -> Front {
    Front::with(|options, _| options.actions = ActionOptions { deprecated, ..ActionOptions::default() })
}

/// A platform with the OAuth token `ot-1` of the organization `my-org`, whose older call answers `status`.
fn platform(status: u16) -> impl Fn(&Seen) -> Response<bytes::Bytes> + Send + Sync + 'static {
    let related = |name: &str, id: &str| json!({"data": {"relationships": {name: {"data": {"id": id}}}}}).to_string();
    move |request: &Seen| match request.target.as_str() {
        "/api/v2/oauth-tokens/ot-1" => reply(200, &JSON, related("oauth-client", "oc-1")),
        "/api/v2/oauth-clients/oc-1" => reply(200, &JSON, related("organization", "my-org")),
        OLD => reply(status, &JSON, r#"{"errors":[{"status":"404","title":"gone for good"}]}"#),
        "/api/v2/organizations/my-org/registry-modules/vcs" => reply(201, &JSON, r#"{"data":{}}"#),
        _ => reply(404, &JSON, r#"{"errors":[{"status":"404"}]}"#),
    }
}

async fn create(front: &Front, repository: Value) -> reqwest::Response {
    let body = json!({"data": {"attributes": {"vcs-repo": repository}}}).to_string();
    front.request("POST", OLD).header("content-type", "application/vnd.api+json").body(body).send().await.unwrap()
}

fn calls(front: &Front) -> Vec<String> {
    front.platform.requests().into_iter().map(|request| format!("{} {}", request.method, request.target)).collect()
}

#[tokio::test]
async fn in_fallback_the_older_call_is_sent_first_and_look_ups_follow() {
    let front = in_mode(DeprecatedCallMode::Fallback);
    front.platform.answers(platform(404));
    assert_eq!(create(&front, json!({"oauth-token-id": "ot-1"})).await.status(), 201);
    let expected = [
        "POST /api/v2/registry-modules",
        "GET /api/v2/oauth-tokens/ot-1",
        "GET /api/v2/oauth-clients/oc-1",
        "POST /api/v2/organizations/my-org/registry-modules/vcs",
    ];
    assert_eq!(calls(&front), expected);

    // A platform that still has the call gets no other request.
    let front = in_mode(DeprecatedCallMode::Fallback);
    front.platform.answers(platform(201));
    let response = create(&front, json!({"oauth-token-id": "ot-1"})).await;
    assert_eq!((response.status().as_u16(), calls(&front)), (201, vec!["POST /api/v2/registry-modules".to_owned()]));
    assert!(response.headers().contains_key("deprecation") && !response.headers().contains_key("keyward-warning"));

    // If the successor is not found either, the caller gets the first response unchanged.
    let front = in_mode(DeprecatedCallMode::Fallback);
    front.platform.answers(platform(404));
    let response = create(&front, json!({"oauth-token-id": "ot-9"})).await;
    assert!(response.headers()["keyward-warning"].to_str().unwrap().starts_with("2021-06-08/d4: the call names no"));
    assert_eq!(response.status(), 404);
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["errors"][0]["title"], "gone for good");
    assert_eq!(calls(&front), ["POST /api/v2/registry-modules", "GET /api/v2/oauth-tokens/ot-9"]);
}

#[tokio::test]
async fn dot_segments_from_a_body_never_become_part_of_a_path() {
    for mode in [DeprecatedCallMode::Always, DeprecatedCallMode::Fallback] {
        for name in ["..", "../../admin", "x/..;y/z", "%2e%2e/%2e%2e", "a\\..\\b", "a\u{7}b"] {
            let front = in_mode(mode);
            front.platform.answers(platform(404));
            let response = create(&front, json!({"organization-name": name})).await;
            assert_eq!(
                (response.status().as_u16(), calls(&front)),
                (404, vec![format!("POST {OLD}")]),
                "{mode:?} {name}"
            );
            let warning = response.headers()["keyward-warning"].to_str().unwrap();
            assert!(warning.contains("cannot be a segment of a path"), "{warning}");
            assert!(!response.headers().contains_key("link"), "{mode:?} {name}");
            let front = in_mode(mode);
            front.platform.answers(platform(404));
            create(&front, json!({"oauth-token-id": name})).await;
            assert_eq!(calls(&front), [format!("POST {OLD}")], "{mode:?} {name}");
        }
    }
}

#[tokio::test]
async fn the_mode_off_warns_of_no_deprecated_attributes_either() {
    let policy = r#"{"data":{"attributes":{"name":"p","enforce":[{"path":"p.sentinel","mode":"advisory"}]}}}"#;
    for (mode, has_warning) in [(DeprecatedCallMode::Off, false), (DeprecatedCallMode::Warn, true)] {
        let front = in_mode(mode);
        front.platform.answers(|_| reply(200, &JSON, "{}"));
        let call = front.request("POST", "/api/v2/organizations/o/policies").body(policy).send().await.unwrap();
        assert_eq!(
            (call.status().as_u16(), call.headers().contains_key("keyward-warning")),
            (200, has_warning),
            "{mode:?}"
        );
        let report: Value = front.get("/v1/platform/report").await.json().await.unwrap();
        assert_eq!(report["calls"].as_array().unwrap().len(), usize::from(has_warning), "{report}");
        // A call that every release refuses is warned about in every mode.
        let long = json!({"data": {"attributes": {"name": "n".repeat(41)}}}).to_string();
        let call = front.request("POST", "/api/v2/organizations/o/projects").body(long).send().await.unwrap();
        assert!(call.headers().contains_key("keyward-warning"), "{mode:?}");
    }
}

#[tokio::test]
async fn the_report_names_the_call_and_its_replacement() {
    let front = in_mode(DeprecatedCallMode::Warn);
    front.platform.answers(|_| reply(200, &JSON, r#"{"data":[]}"#));
    let policy = r#"{"data":{"attributes":{"enforce":[]}}}"#;
    let made = [
        ("GET", "/api/v2/policy-checks/polchk-1/output", ""),
        ("GET", "/api/v2/policy-checks/polchk-2/output", ""),
        ("PATCH", "/api/v2/policies/pol-1", policy),
        ("POST", "/api/v2/organizations/my%20org/policies", policy),
        ("POST", "/api/v2/organizations/other/policies", policy),
        ("DELETE", "/api/v2/workspaces/ws-7/actions/safe-delete", ""),
    ];
    for (method, path, body) in made {
        let call = front.request(method, path).header("user-agent", "go-tfe").body(body);
        assert_eq!(call.send().await.unwrap().status(), 200, "{path}");
    }
    let report: Value = front.get("/v1/platform/report").await.json().await.unwrap();
    let summarize = |call: &Value| {
        let text = |name: &str| call[name].as_str().unwrap_or("-").to_owned();
        let (call, advice) = (format!("{} x{}", text("call"), call["calls"]), text("advice"));
        [text("change"), call, text("organization"), text("workspace"), advice.chars().take(22).collect()]
    };
    let mut found: Vec<_> = report["calls"].as_array().unwrap().iter().map(summarize).collect();
    found.sort();
    let policies = "POST /organizations/:organization_name/policies x1";
    let expected = [
        [
            "2022-12-22/1",
            "DELETE /workspaces/:workspace_id/actions/safe-delete x1",
            "-",
            "ws-7",
            "use POST in place of D",
        ],
        ["2023-05-25/3", "PATCH /policies/:policy_id x1", "-", "-", "use enforcement-level"],
        ["2023-05-25/3", policies, "my org", "-", "use enforcement-level"],
        ["2023-05-25/3", policies, "other", "-", "use enforcement-level"],
        ["2024-09-02/1", "GET /policy-checks/:id/output x2", "-", "-", "use policy evaluations"],
    ];
    assert_eq!(found, expected);
}
