//! Chunked responses: Go servers send responses of more than 2,048 bytes without a length.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::Response;
use keyward_agent::api_proxy::{ApiProxyOptions, CacheOptions, Rule};
use keyward_emulators::secrets::Role;
use serde_json::{Value, json};

use crate::harness::scripted::reply;
use crate::harness::session::World;
use crate::harness::vault::{FetchedResponse, Proxied, cache, fetch, options};

const HOUR: Duration = Duration::from_hours(1);
const CHUNKED: [(&str, &str); 2] = [("content-type", "application/json"), ("transfer-encoding", "chunked")];

/// A value, or a lease, of so many bytes.
fn answer_of(bytes: usize, count: u64, leased: bool) -> Response<bytes::Bytes> {
    let data = json!({ "text": "x".repeat(bytes), "read": count });
    let body = if leased {
        let id = format!("database/creds/dev/{count}");
        json!({ "lease_id": id, "lease_duration": 600, "renewable": false, "data": data })
    } else {
        json!({ "lease_id": "", "data": { "data": data } })
    };
    reply(200, &CHUNKED, body.to_string())
}

/// A proxy in front of a server that answers each read in chunks, and counts the reads.
fn in_chunks(bytes: usize, max_age: Duration) -> (Proxied, Arc<AtomicU64>) {
    let proxied = Proxied::with(|options, _| options.cache = Some(cache(max_age, HOUR)));
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    proxied.vault.answers(move |request| {
        let count = counted.fetch_add(1, Ordering::SeqCst) + 1;
        answer_of(bytes, count, request.target.contains("creds"))
    });
    (proxied, reads)
}

#[tokio::test]
async fn chunked_values_and_leases_are_cached_like_others() {
    let (proxied, reads) = in_chunks(100_000, HOUR);
    for path in ["secret/data/web", "database/creds/dev"] {
        let before = reads.load(Ordering::SeqCst);
        let (first, second) = (proxied.get(path).await, proxied.get(path).await);
        assert_eq!((first.status, first.cache(), second.cache()), (200, "MISS", "HIT"), "{path}");
        assert_eq!(first.json()["data"], second.json()["data"]);
        assert_eq!(first.headers["content-length"].to_str().unwrap(), first.text.len().to_string());
        assert!(!first.headers.contains_key("transfer-encoding"));
        assert_eq!(reads.load(Ordering::SeqCst), before + 1, "{path}");
    }
    let responses = join_all((0..50).map(|_| proxied.get("kv/once"))).await;
    assert!(responses.iter().all(|response| response.json()["data"] == responses[0].json()["data"]));
    assert_eq!(reads.load(Ordering::SeqCst), 3, "fifty callers at once are one read");
}

#[tokio::test]
async fn a_chunked_value_is_served_while_the_server_is_unreachable() {
    let (proxied, _) = in_chunks(5000, Duration::ZERO);
    let good = proxied.get("secret/data/web").await;
    proxied.vault.answers(|_| reply(503, &CHUNKED, r#"{"errors":["Vault is sealed"]}"#));
    let stale = proxied.get("secret/data/web").await;
    assert_eq!((stale.status, stale.cache(), stale.text == good.text), (200, "STALE", true));
}

#[tokio::test]
async fn a_truncated_response_is_replaced_by_the_cached_one() {
    let proxied = Proxied::with(|options, _| {
        let values = vec![Rule::parse("half").unwrap()];
        options.cache = Some(CacheOptions { values, ..cache(Duration::ZERO, HOUR) });
        options.response_timeout = Duration::from_millis(500);
    });
    proxied.vault.answers(|_| answer_of(5000, 1, false));
    let good = proxied.get("half").await;
    assert_eq!(good.cache(), "MISS");
    // From now on the server sends a part of the body, and then nothing.
    *proxied.vault.script() = None;
    let stale = tokio::time::timeout(Duration::from_mins(1), proxied.get("half")).await.expect("an answer in time");
    assert_eq!((stale.status, stale.cache(), stale.text == good.text), (200, "STALE", true));
}

#[tokio::test]
async fn a_response_longer_than_the_bound_is_forwarded_whole_and_not_cached() {
    let (proxied, reads) = in_chunks(3 << 20, HOUR);
    let responses = join_all((0..4).map(|_| proxied.get("secret/data/web"))).await;
    for response in &responses {
        let text = response.json()["data"]["data"]["text"].as_str().map(str::len);
        assert_eq!((response.status, text), (200, Some(3 << 20)));
    }
    let before = reads.load(Ordering::SeqCst);
    assert_eq!(proxied.get("secret/data/web").await.status, 200);
    assert_eq!(reads.load(Ordering::SeqCst), before + 1);
}

#[tokio::test(start_paused = true)]
async fn the_emulated_server_sends_long_answers_in_chunks_and_the_proxy_keeps_them() {
    let world = World::new(Role { policies: vec!["root".to_owned()], ..Role::default() });
    let mut session = world.start();
    let token = session.serving().await;
    let secret = keyward_machine::secret_string::SecretString::expose_secret(token.secret.secret()).to_owned();
    let cached = ApiProxyOptions { cache: Some(cache(HOUR, HOUR)), ..options() };
    let proxied = Proxied::for_world_with(&world, &session, cached);
    for (bytes, chunked) in [(100, false), (5000, true)] {
        let body = json!({ "data": { "text": "x".repeat(bytes) } }).to_string();
        let path = format!("secret/data/long-{bytes}");
        assert_eq!(fetch(proxied.request("POST", &path).body(body)).await.status, 200);
        let straight = proxied.client.get(format!("{}/v1/{path}", world.secrets.url()));
        let straight = fetch(straight.header("x-vault-token", &secret)).await;
        assert_eq!(straight.headers.contains_key("transfer-encoding"), chunked, "{straight:?}");
        assert_eq!(straight.headers.contains_key("content-length"), !chunked, "{straight:?}");
        let responses = [proxied.get(&path).await, proxied.get(&path).await];
        assert_eq!(responses.each_ref().map(FetchedResponse::cache), ["MISS", "HIT"], "{bytes} bytes");
        let data = |response: &Value| response["data"]["data"].clone();
        assert!(responses.iter().all(|response| data(&response.json()) == data(&straight.json())));
    }
}
