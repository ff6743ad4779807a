//! Two ACL servers on one etcd cluster.
#![expect(
    clippy::disallowed_methods,
    clippy::large_futures,
    reason = "servers and processes are waited for in real time, and end with the test"
)]

use std::time::{Duration, Instant};

use keyward_acl::store::etcd::EtcdOptions;
use keyward_acl::store::{self, StoreOptions};
use serde_json::json;

use crate::acl::bootstrap_reset::index;
use crate::acl::removal::wait_until_gone;
use crate::acl::store::etcd_process::{Server, options, shared};
use crate::acl::store::soon;
use crate::acl::tokens::anonymous::{LACKS, delete_records, refusal_without_token};
use crate::harness::Acl;

/// Starts two servers with the same key and datacenter.
async fn start_two(options: EtcdOptions) -> (Acl, Acl, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("seal.key");
    let one = Acl::start_with(|service| {
        service.store = StoreOptions::Etcd(options);
        service.key_file = Some(key);
    });
    let one = one.await;
    let other = one.start_second().await;
    (one, other, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_serve_the_writes_of_each_other() {
    let server = shared();
    let (one, other, _folder) = start_two(server.options()).await;
    let refused = other.call("PUT", "/v1/acl/bootstrap", None, None).await;
    assert_eq!(refused.status, 403, "{refused:?}");

    let token = one.make("/v1/acl/token", json!({"Description": "shared"})).await;
    let path = format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap());
    let read = other.get(&path).await;
    assert_eq!(read.json()["Description"], "shared");
    let mine = other.call("GET", "/v1/acl/token/self", token["SecretID"].as_str(), None).await;
    assert_eq!(mine.json()["AccessorID"], token["AccessorID"]);

    // A blocking query at one wakes by a write at the other, with an index valid at both.
    let index = read.headers["X-Service-Index"].to_str().unwrap().to_owned();
    let waiting = async |acl: &Acl, path: String| {
        let response = acl.get(&path).await;
        (response.json()["Description"].clone(), response.headers["X-Service-Index"].to_str().unwrap().to_owned())
    };
    let update = async {
        other.until_a_query_waits().await;
        one.make(&path, json!({"AccessorID": token["AccessorID"], "Description": "changed"})).await
    };
    let (changed, _) = tokio::join!(waiting(&other, format!("{path}?index={index}&wait=20s")), update);
    assert_eq!(changed.0, "changed");
    assert!(changed.1.parse::<u64>().unwrap() > index.parse::<u64>().unwrap());
    for mode in ["stale", "consistent", "index=1"] {
        assert_eq!(waiting(&one, format!("{path}?{mode}")).await, changed, "{mode}");
    }

    assert_eq!(other.delete(&path).await.text, "true");
    let deleted = one.call("GET", "/v1/acl/token/self", token["SecretID"].as_str(), None).await;
    assert_ne!(deleted.status, 200, "{deleted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_reads_all_records_of_etcd_which_have_no_checksum_of_their_own() {
    let server = shared();
    let (one, other, _folder) = start_two(server.options()).await;
    let counts = async |acl: &Acl| {
        let response = acl.get("/v1/operator/verify").await;
        assert_eq!(response.status, 200, "{response:?}");
        let found = response.json();
        assert_eq!((&found["Clean"], &found["Damaged"]), (&true.into(), &0.into()), "{found}");
        assert_eq!(found["Records"], found["WithoutChecksum"], "{found}");
        found["Records"].as_u64().unwrap()
    };
    let before = counts(&one).await;
    one.make("/v1/acl/policy", json!({"Name": "counted"})).await;
    assert_eq!(counts(&other).await, counts(&one).await);
    assert!(counts(&other).await > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_get_503_with_retry_after_while_etcd_is_unreachable() {
    let mut server = Server::start();
    let options = EtcdOptions { request_timeout: Duration::from_secs(1), ..server.options() };
    server.ready().await;
    let (one, _other, _folder) = start_two(options).await;
    let role = one.make("/v1/acl/role", json!({"Name": "kept"})).await;
    server.kill();
    let start = Instant::now();
    for (method, path) in [("GET", "/v1/acl/role/name/kept"), ("PUT", "/v1/acl/role")] {
        let body = (method == "PUT").then(|| json!({"Name": "new"}));
        let response = one.call(method, path, Some(&one.root), body).await;
        assert_eq!(response.status, 503, "{response:?}");
        assert!(response.headers.contains_key("Retry-After"), "{response:?}");
        assert!(!response.text.contains("127."), "{response:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    server.run();
    server.ready().await;
    // Its first responses may take longer than the timeout on a busy machine.
    soon(async { while one.get("/v1/acl/role/name/kept").await.status == 503 {} }).await;
    assert_eq!(one.get("/v1/acl/role/name/kept").await.json()["ID"], role["ID"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_stale_reads_succeed_without_a_quorum() {
    let mut servers = Server::cluster();
    for server in &servers {
        soon(server.ready()).await;
    }
    let endpoints = options(servers.each_ref().map(|server| server.endpoint("http")));
    let (one, _other, _folder) = start_two(EtcdOptions { request_timeout: Duration::from_secs(3), ..endpoints }).await;
    let role = one.make("/v1/acl/role", json!({"Name": "kept"})).await;
    // All three members have it before two of them stop.
    for server in &servers {
        soon(server.ready()).await;
    }
    let (left, stopped) = servers.split_first_mut().unwrap();
    stopped.iter_mut().for_each(Server::kill);
    soon(async { while one.get("/v1/acl/roles").await.status == 200 {} }).await;
    for path in ["/v1/acl/role/name/kept", "/v1/acl/role/name/kept?consistent", "/v1/acl/roles"] {
        let response = one.get(path).await;
        assert_eq!(response.status, 503, "{path}: {response:?}");
        assert!(response.headers.contains_key("Retry-After"), "{path}: {response:?}");
    }
    let stale = one.get("/v1/acl/role/name/kept?stale").await;
    assert_eq!((stale.status, &stale.json()["ID"]), (200, &role["ID"]), "{stale:?}");
    assert_eq!(stale.headers["X-Service-Effective-Consistency"], "stale");
    assert_eq!(one.get("/v1/acl/token/self?stale").await.status, 200);
    let body = Some(json!({"Name": "new"}));
    assert_eq!(one.call("PUT", "/v1/acl/role?stale", Some(&one.root), body).await.status, 503);
    stopped.iter_mut().for_each(Server::run);
    soon(left.ready()).await;
    soon(async { while one.get("/v1/acl/roles").await.status != 200 {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_deleted_at_one_server_is_closed_and_removed_at_all() {
    let server = shared();
    let (one, other, _folder) = start_two(server.options()).await;
    one.make("/v1/namespace", json!({"Name": "team"})).await;
    let secret = one.token_in("team", "acl = \"write\"").await;
    for number in 0..70 {
        let server = if number % 2 == 0 { &one } else { &other };
        server.make("/v1/acl/role?ns=team", json!({"Name": format!("r{number}")})).await;
    }
    assert_eq!(other.call("GET", "/v1/acl/roles", Some(&secret), None).await.status, 200);
    assert_eq!(one.delete("/v1/namespace/team").await.status, 200);
    let refused = other.call("GET", "/v1/acl/roles", Some(&secret), None).await;
    assert_eq!((refused.status, refused.text.as_str()), (403, "ACL not found"));
    wait_until_gone(&other, "team").await;
    assert_eq!(one.delete("/v1/namespace/team").await.status, 404);
    other.make("/v1/namespace", json!({"Name": "team"})).await;
    for server in [&one, &other] {
        assert_eq!(server.get("/v1/acl/roles?ns=team").await.text, "[]");
        assert_eq!(server.get("/v1/acl/policies?ns=team").await.text, "[]");
        assert_eq!(server.call("GET", "/v1/acl/token/self", Some(&secret), None).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_keep_working_at_two_servers_during_a_rekey() {
    let server = shared();
    let (one, other, folder) = start_two(server.options()).await;
    let mut secrets = vec![one.root.clone()];
    for number in 0..24 {
        let at = if number % 2 == 0 { &one } else { &other };
        let token = at.make("/v1/acl/token", json!({"Description": format!("token {number}")})).await;
        secrets.push(token["SecretID"].as_str().unwrap().to_owned());
    }
    let refused = one.put("/v1/operator/rekey", json!({"Generate": true})).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("Other servers may use this store"), "{refused:?}");

    let file = folder.path().join("seal.key");
    let old = std::fs::read_to_string(&file).unwrap();
    let new = "b".repeat(64);
    std::fs::write(&file, format!("{new}\n{old}")).unwrap();
    let check_token = async |acl: &Acl, secret: &str| {
        for mode in ["", "?stale"] {
            let path = format!("/v1/acl/token/self{mode}");
            let response = acl.call("GET", &path, Some(secret), None).await;
            assert_eq!(response.status, 200, "{response:?}");
        }
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    let reading = async {
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            for secret in secrets.iter().step_by(7) {
                check_token(&other, secret).await;
            }
        }
    };
    let changing = async {
        let response = one.make("/v1/operator/rekey", json!({})).await;
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        response
    };
    let (response, ()) = tokio::join!(changing, reading);
    // Includes the anonymous token.
    assert_eq!((&response["Done"], &response["Rewritten"]), (&json!(true), &json!(secrets.len() + 1)), "{response}");
    let late = other.make("/v1/acl/token", json!({"Description": "late"})).await;
    secrets.push(late["SecretID"].as_str().unwrap().to_owned());

    std::fs::write(&file, &new).unwrap();
    let third = one.start_second().await;
    for server in [&one, &other, &third] {
        for secret in &secrets {
            check_token(server, secret).await;
        }
    }
    let listed = third.get("/v1/acl/tokens").await;
    let count = listed.json().as_array().unwrap().iter().filter(|token| token["SecretID"] == late["SecretID"]).count();
    assert_eq!(count, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bootstrap_reset_works_at_one_of_two_servers() {
    let server = shared();
    let (one, other, folder) = start_two(server.options()).await;
    let index_before = index(&one.call("PUT", "/v1/acl/bootstrap", None, None).await);
    // Both servers have the key file.
    std::fs::write(folder.path().join("acl-bootstrap-reset"), &index_before).unwrap();
    let ask = async |acl: &Acl| acl.call("PUT", "/v1/acl/bootstrap", None, None).await;
    let (first, second) = tokio::join!(ask(&one), ask(&other));
    let responses = [first, second];
    let made: Vec<_> = responses.iter().filter(|response| response.status == 200).collect();
    assert_eq!(made.len(), 1, "{responses:?}");
    let secret = made[0].json()["SecretID"].as_str().unwrap().to_owned();
    for server in [&one, &other] {
        // The index was used already.
        std::fs::write(folder.path().join("acl-bootstrap-reset"), &index_before).unwrap();
        assert_ne!(index(&ask(server).await), index_before);
        assert_eq!(server.call("GET", "/v1/acl/token/self", Some(&secret), None).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_creates_a_missing_anonymous_token_for_all() {
    let server = shared();
    let (one, other, _folder) = start_two(server.options()).await;
    let revoke = async |acl: &Acl| {
        acl.send("POST", "/v1/auth/token/revoke-self", &[("X-Vault-Token", "anonymous")], b"").await.status
    };
    assert_eq!((revoke(&one).await, revoke(&other).await), (400, 400));
    let direct = store::open(&one.options.store, &one.options.datacenter).await.unwrap();
    delete_records(&*direct).await;
    assert_eq!(refusal_without_token(&other).await, (403, "ACL not found".to_owned()));
    let (third, fourth) = tokio::join!(one.start_second(), one.start_second());
    for acl in [&one, &other, &third, &fourth] {
        assert_eq!(refusal_without_token(acl).await, (403, LACKS.to_owned()));
    }
}
