//! Use of the dated changelog of the platform's API by the gateway: deprecated calls, warnings, refusals, pages, the list.

use http::Response;
use keyward_gateway::actions::{ActionOptions, DeprecatedCallMode};
use serde_json::{Value, json};

use crate::harness::front::Front;
use crate::harness::scripted::{Seen, reply};

const JSON: [(&str, &str); 1] = [("content-type", "application/vnd.api+json")];

fn front(actions: ActionOptions) -> Front {
    Front::with(|options, _| options.actions = actions)
}

fn in_mode(deprecated: DeprecatedCallMode) -> Front {
    front(ActionOptions { deprecated, ..ActionOptions::default() })
}

/// A platform that no longer has the calls of 2021-06-08, and knows the OAuth token `ot-1`.
fn without_old_calls(request: &Seen) -> Response<bytes::Bytes> {
    let related = |name: &str, id: &str| json!({"data": {"relationships": {name: {"data": {"id": id}}}}}).to_string();
    match request.target.as_str() {
        "/api/v2/oauth-tokens/ot-1" => reply(200, &JSON, related("oauth-client", "oc-1")),
        "/api/v2/oauth-clients/oc-1" => reply(200, &JSON, related("organization", "my-org")),
        target if target.starts_with("/api/v2/registry-modules") => {
            reply(404, &JSON, r#"{"errors":[{"status":"404"}]}"#)
        }
        _ if request.method != "GET" && !request.headers.contains_key("content-type") => reply(415, &[], ""),
        _ if request.method == "DELETE" => reply(204, &[], ""),
        _ => reply(200, &JSON, r#"{"data":{}}"#),
    }
}

/// The six calls: method, path, body, and their replacement.
const CALLS: [(&str, &str, &str, &str); 6] = [
    ("POST", "actions/delete/o/n/p/1.0.0", "{}", "DELETE /api/v2/organizations/o/registry-modules/private/o/n/p/1.0.0"),
    (
        "POST",
        "actions/delete/o/n/p%2Fq?x=1",
        "",
        "DELETE /api/v2/organizations/o/registry-modules/private/o/n/p%2Fq?x=1",
    ),
    ("POST", "actions/delete/o/n", "{}", "DELETE /api/v2/organizations/o/registry-modules/private/o/n"),
    (
        "POST",
        "",
        r#"{"data":{"attributes":{"vcs-repo":{"oauth-token-id":"ot-1"}}}}"#,
        "POST /api/v2/organizations/my-org/registry-modules/vcs",
    ),
    (
        "POST",
        "o/n/p/versions",
        r#"{"data":{}}"#,
        "POST /api/v2/organizations/o/registry-modules/private/o/n/p/versions",
    ),
    ("GET", "show/o/n/p", "", "GET /api/v2/organizations/o/registry-modules/private/o/n/p"),
];

fn path(rest: &str) -> String {
    format!("/api/v2/registry-modules{}{rest}", if rest.is_empty() { "" } else { "/" })
}

async fn call(front: &Front, method: &str, rest: &str, body: &str) -> reqwest::Response {
    let call = front.request(method, &path(rest)).header("user-agent", "pytfe/1.5.0");
    call.header("content-type", "application/vnd.api+json").body(body.to_owned()).send().await.unwrap()
}

#[tokio::test]
async fn the_six_calls_of_registry_modules_succeed_where_the_platform_no_longer_has_them() {
    for mode in [DeprecatedCallMode::Always, DeprecatedCallMode::Fallback] {
        let front = in_mode(mode);
        front.platform.answers(without_old_calls);
        for (method, rest, body, expected) in CALLS {
            let response = call(&front, method, rest, body).await;
            assert!(response.status().is_success(), "{mode:?} {method} {rest}: {response:?}");
            assert_eq!(response.headers()["deprecation"], "@1623110400");
            assert!(response.headers()["link"].to_str().unwrap().contains("successor-version"));
            let last = front.platform.requests().pop().unwrap();
            assert_eq!(format!("{} {}", last.method, last.target), expected, "{mode:?}");
            let dropped = last.method == "DELETE";
            assert_eq!((last.body.as_ref(), dropped), (if dropped { b"" } else { body.as_bytes() }, dropped));
            assert_eq!(last.headers["content-type"], "application/vnd.api+json", "{rest}");
        }
        let old = front
            .platform
            .requests()
            .iter()
            .filter(|request| request.target.starts_with("/api/v2/registry-modules"))
            .count();
        assert_eq!(old, if mode == DeprecatedCallMode::Always { 0 } else { 6 });
        let report: Value = front.get("/v1/platform/report").await.json().await.unwrap();
        let calls = report["calls"].as_array().unwrap();
        assert_eq!(calls.len(), 6, "{report}");
        assert!(
            calls.iter().all(|call| call["client"] == "pytfe/1.5.0" && call["calls"] == 1 && call["replaced"] == 1)
        );
        assert!(calls.iter().all(|call| call["replacement"].is_string() && call["kind"] == "deprecated"), "{report}");
    }
}

#[tokio::test]
async fn other_modes_send_deprecated_calls_unchanged_and_one_warns() {
    for (mode, has_warning) in [(DeprecatedCallMode::Off, false), (DeprecatedCallMode::Warn, true)] {
        let front = in_mode(mode);
        front.platform.answers(without_old_calls);
        for (method, rest, body, _) in CALLS {
            let response = call(&front, method, rest, body).await;
            assert_eq!(
                (response.status().as_u16(), response.headers().contains_key("deprecation")),
                (404, has_warning),
                "{rest}"
            );
            let last = front.platform.requests().pop().unwrap();
            assert_eq!((last.method.as_str(), last.target, last.body.as_ref()), (method, path(rest), body.as_bytes()));
        }
        assert_eq!(front.platform.requests().len(), 6, "nothing is looked up for a call that is sent as it is");
        let text = front.metrics.text();
        let counted = "keyward_gateway_deprecated_calls_total{change=\"2021-06-08/d1\",client=\"pytfe/1.5.0\",what=\"deprecated\"} 1";
        assert_eq!(text.contains(counted), has_warning, "{text}");
    }
}

#[tokio::test]
async fn a_call_with_unknown_organization_is_sent_with_a_warning() {
    let front = in_mode(DeprecatedCallMode::Always);
    let body = r#"{"data":{"attributes":{"vcs-repo":{"oauth-token-id":"ot-9"}}}}"#;
    front.platform.answers(|request| match request.target.as_str() {
        "/api/v2/registry-modules" => reply(201, &JSON, "{}"),
        _ => reply(404, &JSON, "{}"),
    });
    let response = call(&front, "POST", "", body).await;
    assert_eq!(response.status(), 201);
    let warning = response.headers()["keyward-warning"].to_str().unwrap();
    assert!(warning.starts_with("2021-06-08/d4: the call names no organization"), "{warning}");
    let configured = ActionOptions {
        deprecated: DeprecatedCallMode::Always,
        organization: Some("ours".to_owned()),
        ..ActionOptions::default()
    };
    let front = self::front(configured);
    call(&front, "POST", "", "{}").await;
    assert_eq!(front.platform.requests()[0].target, "/api/v2/organizations/ours/registry-modules/vcs");
}

#[tokio::test]
async fn one_call_survives_a_rejected_token_and_a_removed_route() {
    let front = in_mode(DeprecatedCallMode::Fallback);
    front.platform.answers(without_old_calls);
    front.platform.accept("tok2");
    front.platform.revoke("tok1");
    front.put_token("tok2");
    let response = call(&front, "POST", "o/n/p/versions", r#"{"data":{}}"#).await;
    assert_eq!(response.status(), 200);
    let last = front.platform.requests().pop().unwrap();
    assert_eq!((last.bearer(), last.body.as_ref()), ("tok2", &br#"{"data":{}}"#[..]));

    front.platform.accept("tok3");
    front.platform.revoke("tok2");
    front.put_token("tok3");
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("{}")]));
    let request = front.request("POST", "/api/v2/organizations").header("content-type", "application/vnd.api+json");
    let response = request.body(chunked).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let last = front.platform.requests().pop().unwrap();
    assert_eq!((last.bearer(), last.body.as_ref()), ("tok3", &b"{}"[..]), "of a length that was not told");
}

#[tokio::test]
async fn findings_become_warnings_or_errors_in_strict_mode() {
    let long = format!(r#"{{"data":{{"attributes":{{"name":"{}"}}}}}}"#, "n".repeat(41));
    let server = |_: &Seen| reply(200, &[JSON[0], ("x-tfe-version", "v202012-1"), ("tfp-api-version", "2.3")], "{}");
    for strict in [false, true] {
        let front = front(ActionOptions { strict, ..ActionOptions::default() });
        front.platform.answers(|_| reply(200, &JSON, "{}"));
        let project =
            front.request("POST", "/api/v2/organizations/o/projects").body(long.clone()).send().await.unwrap();
        assert_eq!(project.status(), if strict { 422 } else { 200 });
        if strict {
            let body: Value = project.json().await.unwrap();
            assert_eq!(body["errors"][0]["source"]["pointer"], "/data/attributes/name", "{body}");
            assert!(
                body["errors"][0].get("code").is_none(),
                "a name of this length is too long for each release: {body}"
            );
            assert!(front.platform.requests().is_empty(), "a refused call is not sent");
        } else {
            assert!(project.headers()["keyward-warning"].to_str().unwrap().starts_with("2024-04-25/1: "));
        }
        // However the body comes.
        let pieces: Vec<_> = long.as_bytes().chunks(7).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
        let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        let project = front.request("POST", "/api/v2/organizations/o/projects").body(chunked).send().await.unwrap();
        assert_eq!(project.status(), if strict { 422 } else { 200 });
        assert_eq!(project.headers().contains_key("keyward-warning"), !strict);
        // The platform is not detected yet: the call passes.
        front.platform.answers(server);
        let producers = "/api/v2/organizations/o/relationships/module-producers";
        let first = front.get(producers).await.status();
        assert_eq!(first, 200);
        let second = front.get(producers).await;
        assert_eq!(second.status(), if strict { 422 } else { 200 }, "the first answer has told that it is too old");
        assert_eq!(second.headers().contains_key("keyward-warning"), !strict);
        if strict {
            let body: Value = second.json().await.unwrap();
            let error = &body["errors"][0];
            assert!(error["code"] == "KW-1708" && error["detail"].as_str().unwrap().ends_with(" [KW-1708]"), "{body}");
        }
        let report: Value = front.get("/v1/platform/report").await.json().await.unwrap();
        let known = json!({"product": "self-managed", "release": "v202012-1", "api_version": "2.3"});
        assert_eq!(report["server"], known);
    }
}

/// A platform of this release, which has the calls of 2021-06-08 in their older form only.
fn of_release(release: &'static str) -> impl Fn(&Seen) -> Response<bytes::Bytes> + Send + Sync + 'static {
    move |request| {
        let is_new = request.target.contains("/registry-modules/private/");
        reply(if is_new { 404 } else { 200 }, &[JSON[0], ("x-tfe-version", release)], r#"{"data":{}}"#)
    }
}

#[tokio::test]
async fn rows_later_than_the_platforms_release_change_no_call() {
    let options = ActionOptions { deprecated: DeprecatedCallMode::Always, strict: true, ..ActionOptions::default() };
    let front = front(options);
    front.platform.answers(of_release("v202012-1"));
    assert_eq!(front.get("/api/v2/ping").await.status(), 200);
    let old = call(&front, "GET", "show/o/n/p", "").await;
    assert_eq!(old.status(), 200, "a call that works is not replaced by one that the platform lacks");
    assert!(!old.headers().contains_key("deprecation"), "{old:?}");
    let policy = r#"{"data":{"attributes":{"name":"p","enforce":[]}}}"#;
    let created = front.request("POST", "/api/v2/organizations/o/policies").body(policy).send().await.unwrap();
    assert_eq!((created.status().as_u16(), created.headers().contains_key("keyward-warning")), (200, false));
    let none = r#"{"data":{"attributes":{"name":"p"}}}"#;
    let created = front.request("POST", "/api/v2/organizations/o/policies").body(none).send().await.unwrap();
    assert_eq!(created.status(), 200, "strict mode knows that no enforcement level was required then");
    // A feature of a later row is warned of, and reported with the age that a server needs.
    let run = r#"{"data":{"attributes":{"save-plan":true}}}"#;
    let run = front.request("POST", "/api/v2/runs").body(run).send().await.unwrap();
    assert_eq!(run.status(), 200);
    let warning = run.headers()["keyward-warning"].to_str().unwrap();
    assert_eq!(warning, "2023-08-21/1: save-plan (runs) is in the API since 2023-08-21; this server is v202012-1");
    let report: Value = front.get("/v1/platform/report").await.json().await.unwrap();
    let advice = "use it with HCP Terraform, or with a Terraform Enterprise of 2023-08 or later";
    assert_eq!(
        (&report["calls"][0]["change"], &report["calls"][0]["advice"]),
        (&json!("2023-08-21/1"), &json!(advice))
    );
    assert_eq!(report["history"], json!({"since": "2021-03-08", "until": "2024-10-14"}));
    // A platform that has the rows is treated as before.
    front.platform.answers(of_release("v202407-1"));
    assert_eq!(front.get("/api/v2/ping").await.status(), 200);
    assert_eq!(call(&front, "GET", "show/o/n/p", "").await.headers()["deprecation"], "@1623110400");
    let refused = front.request("POST", "/api/v2/organizations/o/policies").body(none).send().await.unwrap();
    assert_eq!(refused.status(), 422);
}

#[tokio::test]
async fn the_changelog_is_read_on_the_gateways_listener_with_the_local_token() {
    let front = Front::start();
    let list = "/v1/platform/changes?resource=registry-modules&kind=deprecated&page%5Bsize%5D=2";
    let body: Value = front.get(list).await.json().await.unwrap();
    assert_eq!(body["data"].as_array().unwrap().len(), 2, "{body}");
    assert_eq!(body["meta"]["history"], json!({"since": "2021-03-08", "until": "2024-10-14"}));
    let next = body["links"]["next"].as_str().unwrap();
    assert!(next.starts_with(&format!("{}/v1/platform/changes?", front.url)), "{next}");
    let next = front.client.get(next).bearer_auth(front.local()).send().await.unwrap();
    assert_eq!(
        (next.status().as_u16(), next.headers()["content-type"].to_str().unwrap()),
        (200, "application/vnd.api+json")
    );
    assert_eq!(front.get("/v1/platform/changes?colour=red").await.status(), 400);
    for (method, path, allow) in [
        ("POST", "/v1/platform/changes", "GET, HEAD"),
        ("PUT", "/.well-known/terraform.json", "GET, HEAD"),
        ("OPTIONS", "/api/v2/ping", "GET, HEAD, POST, PUT, PATCH, DELETE"),
    ] {
        let refused = front.request(method, path).send().await.unwrap();
        assert_eq!((refused.status().as_u16(), refused.headers()["allow"].to_str().unwrap()), (405, allow), "{path}");
    }
    let bare = front.client.get(format!("{}/v1/platform/changes", front.url)).send().await.unwrap();
    assert_eq!(bare.status(), 401);
    assert!(front.platform.requests().is_empty());
}

#[tokio::test]
async fn looping_pages_are_reported_and_requested_once() {
    let front = Front::start();
    front.platform.answers(|request| {
        let second = request.target.contains("page%5Bnumber%5D=2");
        let (current, next) = if second { (2, 1) } else { (1, 2) };
        let pagination = json!({"current-page": current, "next-page": next, "total-count": 250});
        reply(200, &JSON, json!({"data": [{"id": current}], "meta": {"pagination": pagination}}).to_string())
    });
    let list = front.request("GET", "/api/v2/organizations").header("keyward-merge-pages", "true");
    let response = list.send().await.unwrap();
    assert_eq!(response.status(), 502);
    let body: Value = response.json().await.unwrap();
    let detail = body["errors"][0]["detail"].as_str().unwrap();
    assert!(
        detail.contains("form a loop before the list is complete") && detail.contains("request its pages one by one"),
        "{detail}"
    );
    assert_eq!(front.platform.requests().len(), 2);
}

#[tokio::test]
async fn pages_are_merged_on_request_and_a_failed_page_is_the_response() {
    let pages = |request: &Seen| {
        let page = |number: u32, next: Option<u32>| {
            json!({"data": [{"id": number}], "meta": {"pagination": {"current-page": number, "next-page": next}}})
                .to_string()
        };
        match request.target.split_once('?').map_or("", |(_, query)| query) {
            query if query.contains("page%5Bnumber%5D=1") => reply(200, &JSON, page(1, Some(2))),
            query if query.contains("page%5Bnumber%5D=2") && request.target.contains("broken") => {
                reply(500, &JSON, "{}")
            }
            query if query.contains("page%5Bnumber%5D=2") => reply(200, &JSON, page(2, None)),
            _ => reply(200, &JSON, page(9, None)),
        }
    };
    let front = Front::start();
    front.platform.answers(pages);
    let merged = |path: &str| front.request("GET", path).header("keyward-merge-pages", "true").send();
    let list = "/api/v2/organizations/o/ssh-keys";
    let body: Value = merged(list).await.unwrap().json().await.unwrap();
    assert_eq!(body["data"], json!([{"id": 1}, {"id": 2}]));
    assert_eq!(body["links"]["self"], format!("{}{list}", front.url));
    assert!(front.platform.requests().iter().all(|request| !request.headers.contains_key("keyward-merge-pages")));
    let plain: Value = front.get(list).await.json().await.unwrap();
    assert_eq!(plain["data"], json!([{"id": 9}]), "who does not ask has the platform's own");
    let failed = merged("/api/v2/organizations/broken/ssh-keys").await.unwrap();
    assert_eq!(failed.status(), 500);
    let always = self::front(ActionOptions { merge_pages: true, ..ActionOptions::default() });
    always.platform.answers(pages);
    let body: Value = always.get(list).await.json().await.unwrap();
    assert_eq!(body["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_merged_list_is_not_taken_for_one_of_its_pages() {
    let front = Front::start();
    front.platform.answers(|request| {
        let second = request.target.contains("page%5Bnumber%5D=2");
        let next = if second { Value::Null } else { json!(2) };
        let page = json!({"data": [{"id": 1}], "meta": {"pagination": {"current-page": 1, "next-page": next}}});
        match (second, request.headers.contains_key("if-none-match")) {
            (true, true) => reply(304, &[], ""),
            _ => reply(200, &[JSON[0], ("etag", "\"of-a-page\""), ("last-modified", "x")], page.to_string()),
        }
    });
    let list = front.request("GET", "/api/v2/organizations").header("keyward-merge-pages", "true");
    let response = list.header("if-none-match", "\"of-a-page\"").send().await.unwrap();
    assert_eq!((response.status().as_u16(), front.platform.requests().len()), (200, 2));
    assert!(!response.headers().contains_key("etag") && !response.headers().contains_key("last-modified"));
}

#[tokio::test]
async fn a_merged_deprecated_list_is_reported_and_counted() {
    let front = Front::start();
    front.platform.answers(|_| reply(200, &JSON, r#"{"data":[]}"#));
    for (merges, counted) in [("false", 1), ("true", 2)] {
        let list = front.request("GET", "/api/v2/runs/run-1/policy-checks").header("keyward-merge-pages", merges);
        let response = list.send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.headers()["deprecation"].to_str().unwrap()),
            (200, "@1725235200")
        );
        let report: Value = front.get("/v1/platform/report").await.json().await.unwrap();
        let call = &report["calls"][0];
        assert_eq!(
            (&call["change"], &call["calls"], &call["replaced"]),
            (&json!("2024-09-02/1"), &json!(counted), &json!(0))
        );
    }
}
