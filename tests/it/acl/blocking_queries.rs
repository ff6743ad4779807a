//! Blocking queries over HTTP.
#![expect(
    clippy::disallowed_methods,
    reason = "servers and processes are waited for in real time, and end with the test"
)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::harness::{Acl, Answer};

fn index(response: &Answer) -> u64 {
    response.headers["x-consul-index"].to_str().unwrap().parse().unwrap()
}

/// Runs a blocking read and, once it waits or has not to wait, `then`; returns the response and its duration.
async fn waited<T>(acl: &Acl, secret: &str, path: &str, then: impl Future<Output = T>) -> (Answer, Duration, T) {
    let (start, ended) = (Instant::now(), CancellationToken::new());
    let read = async {
        let response = acl.call("GET", path, Some(secret), None).await;
        ended.cancel();
        (response, start.elapsed())
    };
    let later = async {
        tokio::select! {
            () = acl.until_a_query_waits() => {}
            () = ended.cancelled() => {}
        }
        then.await
    };
    let ((response, after), done) = tokio::join!(read, later);
    (response, after, done)
}

/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_blocking_read_without_changes_returns_after_its_wait() {
    let acl = Acl::start().await;
    acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    let now = acl.get("/v1/acl/roles").await;
    // An index from the future waits too.
    for index_value in [index(&now), index(&now) + 1000] {
        let wait = Duration::from_millis(800);
        let path = format!("/v1/acl/roles?index={index_value}&wait=800ms");
        let (response, after, ()) = waited(&acl, &acl.root, &path, async {}).await;
        assert_eq!((response.status, index(&response), response.text), (200, index(&now), now.text.clone()));
        assert!((wait..wait * 17 / 16 + SLACK).contains(&after), "{index_value}: {after:?}");
    }
    // No index, 0 and an index of the past do not wait.
    for query in ["wait=10s", "index=0&wait=10s", "index=1&wait=10s", "index=&wait=10s"] {
        let (response, after, ()) = waited(&acl, &acl.root, &format!("/v1/acl/roles?{query}"), async {}).await;
        assert_eq!(index(&response), index(&now), "{query}");
        assert!(after < SLACK, "{query}: {after:?}");
    }
}

#[tokio::test]
async fn a_blocking_read_wakes_when_a_linked_record_changes() {
    let acl = Acl::start().await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let policy = acl.make("/v1/acl/policy", json!({"Name": "p", "Rules": "key \"a\" { policy = \"read\" }"})).await;
    let linked = json!([{"Name": "p"}]);
    let role = acl.make("/v1/acl/role", json!({"Name": "r", "Policies": linked})).await;
    let body = json!({"Policies": linked, "Roles": [{"Name": "r"}]});
    let token = acl.make("/v1/acl/token", body).await;
    let bare = acl.make("/v1/acl/token", json!({})).await;
    let team = json!({"Name": "team", "ACLs": {"PolicyDefaults": linked, "RoleDefaults": [{"Name": "r"}]}});
    acl.make("/v1/namespace", team.clone()).await;
    let theirs = acl.make("/v1/acl/token", json!({"Namespace": "team"})).await;
    let (policy, role) =
        (format!("/v1/acl/policy/{}", text(&policy["ID"])), format!("/v1/acl/role/{}", text(&role["ID"])));
    let at = |token: &Value| format!("/v1/acl/token/{}", text(&token["AccessorID"]));
    let expanded = format!("{}?expanded=true", at(&token));
    let theirs = format!("{}?expanded&ns=team", at(&theirs));
    let (secret, root) = (text(&token["SecretID"]), acl.root.clone());
    let rules = |level: &str| json!({"Name": "p", "Rules": format!("key \"a\" {{ policy = \"{level}\" }}")});
    let renamed = |name: &str| json!({"Name": name, "Policies": [{"ID": policy.rsplit('/').next()}]});
    for (read, secret, write, body) in [
        (&expanded, &root, &policy, rules("write")),
        (&expanded, &root, &role, renamed("r1")),
        (&at(&token), &root, &role, renamed("r2")),
        (&"/v1/acl/token/self".to_owned(), &secret, &role, renamed("r3")),
        (&"/v1/acl/tokens".to_owned(), &root, &role, renamed("r4")),
        (&theirs, &root, &policy, rules("read")),
        (&theirs, &root, &"/v1/namespace/team".to_owned(), json!({"Name": "team"})),
        (&theirs, &root, &"/v1/namespace/team".to_owned(), team_with(&role)),
        (&"/v1/namespace/team".to_owned(), &root, &role, renamed("r5")),
        (&"/v1/namespaces".to_owned(), &root, &role, renamed("r6")),
        (&role, &root, &policy, json!({"Name": "p1"})),
        (&"/v1/acl/role/name/r6".to_owned(), &root, &policy, json!({"Name": "p2"})),
        (&"/v1/acl/roles".to_owned(), &root, &policy, json!({"Name": "p3"})),
    ] {
        let first = acl.call("GET", read, Some(secret), None).await;
        let join = if read.contains('?') { '&' } else { '?' };
        let path = format!("{read}{join}index={}&wait=60s", index(&first));
        let (response, after, made) = waited(&acl, secret, &path, acl.put(write, body)).await;
        assert_eq!((made.status, response.status), (200, 200), "{write}: {made:?} {response:?}");
        assert!(after < Duration::from_secs(30), "{read} after {write}: {after:?}");
        assert!(index(&response) > index(&first) && response.text != first.text, "{read} after {write}: {response:?}");
    }
    // No record shown has changed: the read does not wake.
    let first = acl.get(&at(&bare)).await;
    let path = format!("{}?index={}&wait=800ms", at(&bare), index(&first));
    let (response, after, _) = waited(&acl, &acl.root, &path, acl.put(&policy, json!({"Name": "p4"}))).await;
    assert_eq!((index(&response), &response.text), (index(&first), &first.text));
    assert!(after >= Duration::from_millis(800), "{after:?}");
}

/// Body of a namespace with the role at a path as its default.
fn team_with(role: &str) -> Value {
    json!({"Name": "team", "ACLs": {"RoleDefaults": [{"ID": role.rsplit('/').next()}]}})
}

#[tokio::test]
async fn each_blocking_read_wakes_when_a_shown_record_changes() {
    let acl = Acl::start().await;
    let role = acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    let token = acl.make("/v1/acl/token", json!({})).await;
    let policy = acl.make("/v1/acl/policy", json!({"Name": "p"})).await;
    acl.make("/v1/namespace", json!({"Name": "team"})).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (role_id, accessor, secret) = (text(&role["ID"]), text(&token["AccessorID"]), text(&token["SecretID"]));
    let (role, token) = (format!("/v1/acl/role/{role_id}"), format!("/v1/acl/token/{accessor}"));
    let policy = format!("/v1/acl/policy/{}", text(&policy["ID"]));
    for (read, secret, write, body) in [
        (role.as_str(), &acl.root, role.as_str(), json!({"Name": "r", "Description": "d"})),
        ("/v1/acl/role/name/r", &acl.root, &role, json!({"Name": "r"})),
        ("/v1/acl/roles", &acl.root, "/v1/acl/role", json!({"Name": "s"})),
        ("/v1/acl/roles?ns=*", &acl.root, "/v1/acl/role?ns=team", json!({"Name": "s"})),
        (&token, &acl.root, &token, json!({"Description": "d"})),
        ("/v1/acl/token/self", &secret, &token, json!({"Description": "e"})),
        ("/v1/acl/tokens", &acl.root, "/v1/acl/token", json!({})),
        (&policy, &acl.root, &policy, json!({"Name": "p", "Description": "d"})),
        ("/v1/acl/policy/name/p", &acl.root, &policy, json!({"Name": "p"})),
        ("/v1/acl/policies", &acl.root, "/v1/acl/policy", json!({"Name": "q"})),
        ("/v1/namespace/team", &acl.root, "/v1/namespace/team", json!({"Description": "d"})),
        ("/v1/namespaces", &acl.root, "/v1/namespace", json!({"Name": "other"})),
    ] {
        let before = acl.call("GET", read, Some(secret), None).await;
        let separator = if read.contains('?') { '&' } else { '?' };
        let path = format!("{read}{separator}index={}&wait=20s", index(&before));
        let (response, after, _) = waited(&acl, secret, &path, acl.make(write, body)).await;
        assert_eq!(response.status, 200, "{read} {response:?}");
        assert!(index(&response) > index(&before) && response.text != before.text, "{read}");
        assert!(after < SLACK, "{read}: {after:?}");
    }
}

#[tokio::test]
async fn blocking_reads_wait_for_records_that_do_not_exist_yet() {
    let acl = Acl::start().await;
    let accessor = "6a1253d2-1785-24fd-91c2-f8e78c745511";
    let made = [
        (format!("/v1/acl/token/{accessor}"), "/v1/acl/token", json!({"AccessorID": accessor})),
        ("/v1/acl/role/name/late".to_owned(), "/v1/acl/role", json!({"Name": "late"})),
        ("/v1/namespace/late".to_owned(), "/v1/namespace", json!({"Name": "late"})),
    ];
    for (read, write, body) in made {
        let missing = acl.get(&read).await;
        assert_eq!(missing.status, 404);
        let path = format!("{read}?index={}&wait=20s", index(&missing));
        let (response, after, made) = waited(&acl, &acl.root, &path, acl.make(write, body)).await;
        assert_eq!((response.status, response.json()), (200, made));
        assert!(index(&response) > index(&missing) && after < SLACK, "{after:?}");
    }
}

#[tokio::test]
async fn caller_and_rights_are_checked_again_after_a_wait() {
    let acl = Acl::start().await;
    let reader = async || {
        let policy = acl.make("/v1/acl/policy", json!({"Name": "p", "Rules": "acl = \"read\""})).await;
        let token = acl.make("/v1/acl/token", json!({"Policies": [{"Name": "p"}]})).await;
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        (id(&policy["ID"]), id(&token["AccessorID"]), id(&token["SecretID"]))
    };
    let (policy, accessor, secret) = reader().await;
    let path = async |wait: &str| format!("/v1/acl/roles?index={}&wait={wait}", index(&acl.get("/v1/acl/roles").await));

    // The right is revoked during the wait: refused at the next change, and at the end of the wait.
    let (response, ..) = waited(&acl, &secret, &path("20s").await, async {
        acl.make(&format!("/v1/acl/policy/{policy}"), json!({"Name": "p"})).await;
        acl.make("/v1/acl/role", json!({"Name": "r"})).await
    })
    .await;
    assert_eq!((response.status, response.text.contains("lacks permission 'acl:read'")), (403, true), "{response:?}");
    acl.make(&format!("/v1/acl/policy/{policy}"), json!({"Name": "p", "Rules": "acl = \"read\""})).await;
    let (response, ..) = waited(&acl, &secret, &path("600ms").await, async {
        acl.make(&format!("/v1/acl/policy/{policy}"), json!({"Name": "p"})).await
    })
    .await;
    assert_eq!((response.status, response.headers.get("x-service-index")), (403, None), "{response:?}");

    // Its token is deleted while it waits.
    acl.make(&format!("/v1/acl/policy/{policy}"), json!({"Name": "p", "Rules": "acl = \"read\""})).await;
    let (response, ..) =
        waited(&acl, &secret, &path("600ms").await, acl.delete(&format!("/v1/acl/token/{accessor}"))).await;
    assert_eq!((response.status, response.text.as_str()), (403, "ACL not found"));
    let token = acl.make("/v1/acl/token", json!({})).await;
    let (secret, accessor) = (token["SecretID"].as_str().unwrap(), token["AccessorID"].as_str().unwrap());
    let own = acl.call("GET", "/v1/acl/token/self", Some(secret), None).await;
    let path = format!("/v1/acl/token/self?index={}&wait=20s", index(&own));
    let (response, after, _) = waited(&acl, secret, &path, acl.delete(&format!("/v1/acl/token/{accessor}"))).await;
    assert_eq!((response.status, after < SLACK), (404, true), "{response:?} {after:?}");
}

#[tokio::test]
async fn stopping_the_server_answers_blocking_queries_at_once() {
    let acl = Acl::start().await;
    let before = acl.get("/v1/acl/roles").await;
    let url = format!("{}/v1/acl/roles?index={}&wait=5m", acl.url, index(&before));
    let root = acl.root.clone();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let waiting = tokio::spawn(async move { client.get(url).header("X-Service-Token", root).send().await.unwrap() });
    acl.until_a_query_waits().await;
    let start = Instant::now();
    let _again = acl.restarted().await;
    let response = waiting.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!((response.status().as_u16(), response.headers()["x-service-index"].to_str().unwrap()), (200, "1"));
    assert_eq!(response.text().await.unwrap(), before.text);
}
