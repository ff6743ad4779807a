//! The emulated Terraform Enterprise by plain HTTP: version, workspaces, states, limits, and fault injection.

pub(crate) mod clients;
pub(crate) mod lists;
mod modules;
mod tokens;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use keyward_emulators::platform::{Edition, FaultListener, Platform, PlatformOptions, PresentedToken};
use keyward_machine::clock::{Clock, TestClock};
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};

use crate::harness::platform::{Emulated, text};

const ORG: &str = "/api/v2/organizations/example";

#[tokio::test]
async fn responses_name_the_emulator_and_discovery_has_paths() {
    let it = Emulated::start();
    let found = it.send(Method::GET, "/.well-known/terraform.json", None, None).await;
    assert_eq!(
        (found.header("content-type"), found.header("server")),
        ("application/json", "keyward-emulated-platform")
    );
    let services = found.with(200);
    assert!(services["emulated"].is_string(), "{services}");
    for (service, path) in [
        ("tfe.v2", "/api/v2/"),
        ("tfe.v2.1", "/api/v2/"),
        ("tfe.v2.2", "/api/v2/"),
        ("state.v2", "/api/v2/"),
        ("modules.v1", "/api/registry/v1/modules/"),
    ] {
        assert_eq!(services[service], path);
    }
    let ping = it.send(Method::GET, "/api/v2/ping", None, None).await;
    assert_eq!(ping.header("x-ratelimit-limit"), "30");
    assert_eq!((ping.header("tfp-api-version"), ping.header("tfp-appname")), ("2.6", "HCP Terraform"));
    ping.with(204);
    it.platform.faults().edition(Edition::SelfManaged { release: "v202212-1".to_owned() });
    let ping = it.get("/api/v2/ping").await;
    assert_eq!((ping.header("x-tfe-version"), ping.header("tfp-appname")), ("v202212-1", "Terraform Enterprise"));
    let whose = it.get("/api/v2/account/details").await.with(200);
    assert_eq!(whose["data"]["relationships"]["authenticated-resource"]["data"]["type"], "users");
    let may = it.get(&format!("{ORG}/entitlement-set")).await.with(200);
    assert_eq!(may["data"]["attributes"]["operations"], false, "runs are not emulated, which it says");
}

#[tokio::test]
async fn errors_have_the_platforms_format() {
    let it = Emulated::start();
    for token in [None, Some("emulatedXXXXXX.atlasv1.nobodys")] {
        let refused = it.send(Method::GET, "/api/v2/account/details", token, None).await;
        assert_eq!(refused.header("content-type"), "application/vnd.api+json");
        assert_eq!(refused.with(401), json!({"errors": [{"status": "401", "title": "unauthorized"}]}));
    }
    let not_found = json!({"errors": [{"status": "404", "title": "not found"}]});
    for path in ["/api/v2/organizations/other/workspaces", "/api/v2/workspaces/ws-none", "/api/v2/nothing/here"] {
        assert_eq!(it.get(path).await.with(404), not_found);
    }
    let invalid = it.post(&format!("{ORG}/workspaces"), json!({"name": "no spaces"})).await.with(422);
    assert_eq!(invalid["errors"][0]["source"]["pointer"], "/data/attributes/name");
    let broken = it.send(Method::POST, &format!("{ORG}/workspaces"), Some(it.token()), Some(b"{".to_vec())).await;
    assert!(broken.refused(400).contains("is not JSON"));
    it.platform.faults().fail_next(2, 503, Some(7));
    for _ in 0..2 {
        let failed = it.get("/api/v2/ping").await;
        assert_eq!((failed.status.as_u16(), failed.header("retry-after")), (503, "7"));
    }
    it.get("/api/v2/ping").await.with(204);
}

#[tokio::test]
async fn a_workspace_is_made_changed_locked_by_one_user_and_removed() {
    let it = Emulated::start();
    let all = format!("{ORG}/workspaces");
    let id = it.make(&all, json!({"name": "web", "auto-apply": true, "execution-mode": "remote"})).await;
    assert!(it.post(&all, json!({"name": "web"})).await.refused(422).contains("already been taken"));
    let one = it.get(&format!("{all}/web")).await.with(200);
    let attributes = &one["data"]["attributes"];
    assert_eq!((&attributes["auto-apply"], &attributes["execution-mode"]), (&json!(true), &json!("local")));
    let act = |action: &str| format!("/api/v2/workspaces/{id}/actions/{action}");
    it.post(&act("lock"), json!({})).await.with(200);
    assert!(it.post(&act("lock"), json!({})).await.refused(409).contains("already locked"));

    // Another token of the same user is the same user; a team is another one.
    let second = it.platform.faults().mint("second");
    let team = it.make(&format!("{ORG}/teams"), json!({"name": "ops"})).await;
    let made = it.post(&format!("/api/v2/teams/{team}/authentication-token"), json!({})).await.with(201);
    let of_team = text(&made["data"]["attributes"]["token"]);
    assert!(it.post_as(&of_team, &act("unlock"), json!({})).await.refused(409).contains("another user"));
    it.post_as(second.token.expose_secret(), &act("unlock"), json!({})).await.with(200);
    assert!(it.post(&act("unlock"), json!({})).await.refused(409).contains("already unlocked"));
    it.post(&act("lock"), json!({})).await.with(200);
    it.post_as(&of_team, &act("force-unlock"), json!({})).await.with(200);

    let tags = format!("/api/v2/workspaces/{id}/relationships/tags");
    let body = json!({"data": [{"type": "tags", "attributes": {"name": "blue"}}]}).to_string().into_bytes();
    it.send(Method::POST, &tags, Some(it.token()), Some(body.clone())).await.with(204);
    let count = async |query: &str| it.get(&format!("{all}?{query}")).await.with(200)["data"].as_array().unwrap().len();
    assert_eq!((count("search%5Btags%5D=blue").await, count("search%5Bexclude-tags%5D=blue").await), (1, 0));
    it.send(Method::DELETE, &tags, Some(it.token()), Some(body)).await.with(204);
    assert_eq!((count("search%5Btags%5D=blue").await, count("search%5Bname%5D=we").await), (0, 1));
    it.delete(&format!("/api/v2/workspaces/{id}")).await.with(204);
    it.get(&format!("{all}/web")).await.with(404);
}

#[tokio::test]
async fn changes_of_a_workspace_are_validated_as_its_creation_is() {
    let it = Emulated::start();
    let all = format!("{ORG}/workspaces");
    let requested = json!({"name": "web", "description": "d", "auto-apply": true, "resource-count": 7});
    let id = it.make(&all, requested).await;
    it.make(&all, json!({"name": "other"})).await;
    let patch = async |attributes: Value| {
        let body = json!({"data": {"attributes": attributes}}).to_string().into_bytes();
        it.send(Method::PATCH, &format!("/api/v2/workspaces/{id}"), Some(it.token()), Some(body)).await
    };
    for (name, why) in [
        (json!("a b"), "can only include letters"),
        (json!("other"), "already been taken"),
        (json!(""), "can't be blank"),
        (Value::Null, "can't be blank"),
        (json!(7), "can't be blank"),
    ] {
        let refused = patch(json!({ "name": name })).await.refused(422);
        assert!(refused.contains(why), "{name}: {refused}");
    }
    let unchanged = patch(json!({"name": "web"})).await.with(200)["data"]["attributes"].clone();
    assert_eq!((&unchanged["description"], &unchanged["auto-apply"]), (&json!("d"), &json!(true)));
    assert_eq!(unchanged["resource-count"], 0, "the state's resources count");
    let set = patch(json!({"name": "web-2", "resource-count": 9, "tag-names": ["x"]})).await.with(200);
    let set = &set["data"]["attributes"];
    assert_eq!((&set["name"], &set["resource-count"], &set["tag-names"]), (&json!("web-2"), &json!(0), &json!([])));
    let cleared = patch(json!({"description": null, "auto-apply": null, "unknown": null})).await.with(200);
    let cleared = &cleared["data"]["attributes"];
    assert_eq!((&cleared["description"], &cleared["auto-apply"]), (&Value::Null, &json!(false)));
    assert!(cleared.as_object().unwrap().get("unknown").is_none(), "{cleared}");
    it.post(&format!("/api/v2/workspaces/{id}/actions/safe-delete"), json!({})).await.with(204);
}

#[tokio::test]
async fn a_state_needs_the_lock_is_uploaded_without_a_token_and_is_read_with_its_outputs() {
    let it = Emulated::start();
    let id = it.make(&format!("{ORG}/workspaces"), json!({"name": "web"})).await;
    let path = |rest: &str| format!("/api/v2/workspaces/{id}/{rest}");
    let attributes = |serial: u64| json!({"serial": serial, "md5": "0", "lineage": "one"});
    assert!(it.post(&path("state-versions"), attributes(1)).await.refused(409).contains("locked by you"));
    it.post(&path("actions/lock"), json!({})).await.with(200);
    let made = it.post(&path("state-versions"), attributes(1)).await.with(201);
    it.get(&path("current-state-version")).await.with(404);

    let state = json!({
        "version": 4, "terraform_version": "1.11.4", "serial": 1, "lineage": "one", "resources": [{}, {}],
        "outputs": {"a": {"value": "x", "type": "string"}, "b": {"value": ["y"], "type": ["list", "string"], "sensitive": true}},
    });
    let put = async |name: &str, body: Vec<u8>| {
        it.send(Method::PUT, &text(&made["data"]["attributes"][name]), None, Some(body)).await.with(200);
    };
    put("hosted-state-upload-url", state.to_string().into_bytes()).await;
    put("hosted-json-state-upload-url", b"{}".to_vec()).await;
    let current = it.get(&path("current-state-version?include=outputs")).await.with(200);
    assert_eq!(
        (&current["data"]["attributes"]["status"], &current["data"]["attributes"]["serial"]),
        (&json!("finalized"), &json!(1))
    );
    assert!(current["data"]["attributes"]["hosted-state-upload-url"].is_null(), "only the first answer has it");
    assert_eq!(current["included"].as_array().unwrap().len(), 2);
    let version = text(&current["data"]["id"]);
    let [url, json_url] = ["hosted-state-download-url", "hosted-json-state-download-url"]
        .map(|name| text(&current["data"]["attributes"][name]));
    let of_version = format!("{}/api/state-versions/{version}", it.platform.url());
    assert_eq!([&url, &json_url], [&format!("{of_version}/hosted_state"), &format!("{of_version}/hosted_json_state")]);
    it.send(Method::GET, &url, None, None).await.with(401);
    it.get(&format!("/api/state-versions/{version}/other")).await.with(404);
    for (path, content) in
        [(url, &state), (json_url, &json!({})), (format!("/api/v2/state-versions/{version}/download"), &state)]
    {
        let redirect = it.get(&path).await;
        assert_eq!(redirect.status.as_u16(), 302, "{path}");
        assert_eq!(&it.send(Method::GET, redirect.header("location"), None, None).await.with(200), content, "{path}");
    }

    let outputs = it.get(&path("current-state-version-outputs")).await.with(200);
    let values: Vec<&Value> =
        outputs["data"].as_array().unwrap().iter().map(|one| &one["attributes"]["value"]).collect();
    assert_eq!(values, [&json!("x"), &Value::Null], "lists hide what is sensitive");
    let secret = text(&outputs["data"][1]["id"]);
    let one = it.get(&format!("/api/v2/state-version-outputs/{secret}")).await.with(200);
    assert_eq!(one["data"]["attributes"]["value"], json!(["y"]));

    assert!(it.post(&path("state-versions"), attributes(1)).await.refused(409).contains("serial"));
    let mut other = attributes(2);
    other["lineage"] = "two".into();
    assert!(it.post(&path("state-versions"), other).await.refused(409).contains("lineage"));
    let mut inline = attributes(2);
    inline["state"] = STANDARD.encode(state.to_string()).into();
    let made = it.post(&path("state-versions"), inline).await.with(201);
    assert_eq!(made["data"]["attributes"]["status"], "finalized");
    let list = "/api/v2/state-versions?filter%5Bworkspace%5D%5Bname%5D=web&filter%5Borganization%5D%5Bname%5D=example";
    let list = it.get(list).await.with(200);
    assert_eq!((&list["data"][0]["id"], list["data"].as_array().unwrap().len()), (&made["data"]["id"], 2));
    assert!(it.post(&path("actions/safe-delete"), json!({})).await.refused(409).contains("managing resources"));

    // Before this release the URL needs no token: it is the archive's own.
    it.platform.faults().edition(Edition::SelfManaged { release: "v202310-1".to_owned() });
    let mut inline = attributes(3);
    inline["state"] = STANDARD.encode(state.to_string()).into();
    let made = it.post(&path("state-versions"), inline).await.with(201);
    let url = text(&made["data"]["attributes"]["hosted-state-download-url"]);
    assert_eq!(it.send(Method::GET, &url, None, None).await.with(200), state);
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_a_users_whatever_the_token_and_run_lists_have_their_own() {
    let clock = Clock::Test(TestClock::starting_at(std::time::SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)));
    let it = Emulated::with(PlatformOptions { clock, ..PlatformOptions::default() });
    it.platform.faults().limit(Some(3));
    let second = it.platform.faults().mint("second").token;
    let ask = async |token: &str| it.send(Method::GET, "/api/v2/account/details", Some(token), None).await;
    for token in [it.token(), second.expose_secret(), it.token()] {
        ask(token).await.with(200);
    }
    let refused = ask(second.expose_secret()).await;
    assert_eq!((refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-remaining")), ("3", "0"));
    let reset: f64 = refused.header("x-ratelimit-reset").parse().unwrap();
    assert!(reset > 0.0 && reset <= 1.0 && refused.header("retry-after").is_empty(), "{reset}");
    assert_eq!(refused.with(429)["errors"][0]["status"], 429, "a number, as in the public sample");
    tokio::time::advance(Duration::from_secs(1)).await;
    ask(it.token()).await.with(200);
    it.platform.faults().limit(Some(1000));
    for _ in 0..30 {
        it.get(&format!("{ORG}/runs")).await.with(200);
    }
    let refused = it.get(&format!("{ORG}/runs")).await;
    assert_eq!(refused.header("x-ratelimit-limit"), "30");
    refused.with(429);
    ask(it.token()).await.with(200);
    tokio::time::advance(Duration::from_mins(1)).await;
    it.get(&format!("{ORG}/runs")).await.with(200);
}

#[tokio::test]
async fn calls_are_logged_by_token_id_without_secrets() {
    let it = Emulated::start();
    it.platform.faults().forget_calls();
    it.get("/api/v2//organizations/example/?secret=query").await.with(200);
    it.send(Method::GET, "/api/v2/organizations/example", Some("strange"), None).await.with(401);
    it.send(Method::GET, "/_archivist/v1/object/secret", None, None).await.with(404);
    let calls = it.platform.faults().calls();
    let routes: Vec<_> =
        calls.iter().map(|call| (call.route.as_str(), call.path.as_str(), &call.token, call.status)).collect();
    let (organization, known) = ("/api/v2/organizations/example", PresentedToken::Known(it.first.id.clone()));
    assert_eq!(
        routes,
        [
            ("/api/v2/organizations/{organization}", organization, &known, 200),
            ("", organization, &PresentedToken::Unknown, 401),
            ("/_archivist/v1/object/{secret}", "", &PresentedToken::Absent, 404),
        ]
    );
    let everything = format!("{calls:?}{:?}", it.platform);
    for secret in [it.token(), "strange", "query", "object/secret"] {
        assert!(!everything.contains(secret), "{secret} in {everything}");
    }
}

#[tokio::test]
async fn bodies_of_any_size_stream_both_ways() {
    let it = Emulated::start();
    let got = reqwest::Client::new()
        .get(format!("{}/api/v2/emulated/bytes?mib=5", it.platform.url()))
        .bearer_auth(it.token());
    assert_eq!(got.send().await.unwrap().bytes().await.unwrap().len(), 5 * 1024 * 1024);
    let sent = it.send(Method::PUT, "/api/v2/emulated/bytes", Some(it.token()), Some(vec![0; 3 * 1024 * 1024])).await;
    assert_eq!(sent.with(200)["received"], 3 * 1024 * 1024);
}

#[tokio::test]
async fn fault_injection_over_http_requires_the_key() {
    let faults_listener = FaultListener { address: ([127, 0, 0, 1], 0).into(), key: SecretString::from("key") };
    let it = Emulated::with(PlatformOptions { faults: Some(faults_listener), ..PlatformOptions::default() });
    let client = reqwest::Client::new();
    let turn = async |method: Method, fault: Value, key: &str| {
        let request = client.request(method, it.platform.faults_url().unwrap()).header("X-Faults-Key", key);
        let response = request.body(fault.to_string()).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap_or_default())
    };
    assert_eq!(turn(Method::POST, json!("revoke-all"), "wrong").await.0, 403);
    for fault in [
        json!({"edition": {"self-managed": {"release": "v202207-1"}}}),
        json!({"paging": "never"}),
        json!({"limit": 7}),
        json!({"old-registry-routes": false}),
        json!({"new-registry-routes": true}),
        json!({"delay": 1}),
        json!({"blobs": 1}),
        json!({"relative-downloads": true}),
        json!({"fill": {"list": "ssh-keys", "parent": "example", "count": 3}}),
        json!({"lose-next-responses": 0}),
        json!({"fail-next": {"count": 1, "status": 502}}),
    ] {
        let (status, body) = turn(Method::POST, fault.clone(), "key").await;
        assert_eq!((status, &body["emulated"]), (200, &json!(true)), "{fault}: {body}");
    }
    let (_, body) = turn(Method::GET, Value::Null, "key").await;
    assert_eq!(
        (&body["edition"], &body["paging"], &body["requests_per_second"]),
        (&json!({"self-managed": {"release": "v202207-1"}}), &json!("never"), &json!(7))
    );
    assert_eq!(
        (&body["blob_mib"], &body["failing"], body["removed_routes"].as_array().unwrap().len()),
        (&json!(1), &json!(1), 6)
    );
    it.get("/api/v2/ping").await.with(502);
    let (_, minted) = turn(Method::POST, json!({"mint": "fresh"}), "key").await;
    let fresh = text(&minted["token"]);
    it.post_as(&fresh, "/api/v2/organizations", json!({"name": "second"})).await.with(201);
    assert_eq!(turn(Method::POST, json!({"revoke": minted["id"]}), "key").await.0, 200);
    it.post_as(&fresh, "/api/v2/organizations", json!({"name": "third"})).await.with(401);
    let (_, next) = turn(Method::POST, json!("rotate"), "key").await;
    it.post_as(&text(&next["token"]), "/api/v2/organizations", json!({"name": "third"})).await.with(201);
    it.get("/api/v2/account/details").await.with(401);
    let unknown_list = json!({"fill": {"list": "odd", "count": 1}});
    for fault in [json!({"paging": "odd"}), json!({"revoke": "none"}), unknown_list, json!("none")] {
        assert_eq!(turn(Method::POST, fault.clone(), "key").await.0, 400, "{fault}");
    }
}

#[tokio::test]
async fn it_listens_on_loopback_only() {
    let options = PlatformOptions { address: ([0, 0, 0, 0], 0).into(), ..PlatformOptions::default() };
    let error = Platform::start(options, &mut TaskGroup::default()).unwrap_err();
    assert!(error.to_string().contains("loopback only, not at 0.0.0.0:0"), "{error}");
}
