//! The response cache of the API proxy: shared, renewed leases, and values that are served while the server is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use keyward_agent::api_proxy::ApiProxyOptions;
use keyward_emulators::secrets::{Operation, Role, TokenType};
use serde_json::{Value, json};

use crate::harness::log;
use crate::harness::raw::Raw;
use crate::harness::scripted::reply;
use crate::harness::session::World;
use crate::harness::vault::{FetchedResponse, Proxied, cache, fetch, options};

const HOUR: Duration = Duration::from_hours(1);

fn keeping(max_age: Duration, stale_if_error: Duration) -> ApiProxyOptions {
    ApiProxyOptions { cache: Some(cache(max_age, stale_if_error)), ..options() }
}

/// A proxy that keeps responses, in front of a server that answers values, and counts the reads of each path.
fn in_front_of_values(max_age: Duration, stale_if_error: Duration) -> (Proxied, Arc<AtomicU64>) {
    let proxied = Proxied::with(|options, _| options.cache = Some(cache(max_age, stale_if_error)));
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    proxied.vault.answers(move |request| {
        if request.method != "GET" {
            return reply(204, &[], "");
        }
        let count = counted.fetch_add(1, Ordering::SeqCst) + 1;
        let body = json!({"lease_id": "", "data": {"data": {"of": request.token(), "read": count}}});
        reply(200, &[("content-type", "application/json")], body.to_string())
    });
    (proxied, reads)
}

fn lease(response: &FetchedResponse) -> (String, u64) {
    assert_eq!(response.status, 200, "{response:?}");
    let body = response.json();
    (body["lease_id"].as_str().unwrap().to_owned(), body["lease_duration"].as_u64().unwrap())
}

#[tokio::test(start_paused = true)]
async fn clients_share_one_renewed_lease_with_its_remaining_lifetime() {
    let world = World::new(Role { max_ttl: None, ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping(HOUR, HOUR));
    let first = fetch(proxied.request("GET", "database/creds/dev?a=1&b=2").header("user-agent", "one")).await;
    let (id, seconds) = lease(&first);
    assert_eq!((first.cache(), seconds), ("MISS", 600));
    tokio::time::sleep(Duration::from_mins(5)).await;
    let second = fetch(proxied.request("GET", "database/creds/dev?b=2&a=1").header("user-agent", "two")).await;
    assert_eq!((second.cache(), second.headers["age"].to_str().unwrap()), ("HIT", "300"));
    assert_eq!(lease(&second), (id.clone(), 300));
    assert_eq!(second.json()["data"], first.json()["data"]);
    // The agent renews it: an hour later it is the same, and valid.
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let (again, left) = lease(&proxied.get("database/creds/dev?a=1&b=2").await);
        assert_eq!(again, id);
        assert!(left > 120, "{left} s are left");
    }
    assert_eq!(world.faults().leases_issued(), 1);
    // Near the end that no renewal passes another is got, and callers never see one that has ended.
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(lease(&proxied.get("database/creds/dev?a=1&b=2").await).1 > 0);
    }
    assert_eq!(world.faults().leases_issued(), 2);
}

/// Ends the silence of the server six seconds after the first call of this kind.
async fn respond_late(world: &World, operation: Operation) {
    while world.count(operation) == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    world.faults().set_unresponsive(false);
}

#[tokio::test(start_paused = true)]
async fn ages_and_leases_count_from_the_request_however_slow_the_response_is() {
    let world = World::new(Role { max_ttl: None, ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping(HOUR, HOUR));
    world.faults().hang_only(Operation::Secret);
    tokio::join!(proxied.get("database/creds/dev"), respond_late(&world, Operation::Secret));
    let hit = proxied.get("database/creds/dev").await;
    let age: u64 = hit.headers["age"].to_str().unwrap().parse().unwrap();
    assert_eq!(hit.cache(), "HIT");
    assert!(age >= 6 && lease(&hit).1 <= 594, "{hit:?}");

    world.faults().hang_only(Operation::RenewLease);
    respond_late(&world, Operation::RenewLease).await;
    let renewed = loop {
        let (_, left) = lease(&proxied.get("database/creds/dev").await);
        if left > 300 {
            break left;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert!(renewed <= 594, "{renewed} s are left");
    assert_eq!(world.faults().leases_issued(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_at_once_get_one_lease() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping(HOUR, HOUR));
    let responses = join_all((0..100).map(|_| proxied.get("database/creds/dev"))).await;
    let ids: std::collections::BTreeSet<String> = responses.iter().map(|response| lease(response).0).collect();
    assert_eq!((ids.len(), world.faults().leases_issued()), (1, 1));
}

/// vault#19684: a cached renewal response hides the end of the lease.
#[tokio::test(start_paused = true)]
async fn renewals_are_not_cached() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping(HOUR, HOUR));
    let (id, _) = lease(&proxied.get("database/creds/dev").await);
    for renewals in 1..=3 {
        let body = json!({"lease_id": id, "increment": 60}).to_string();
        let response = fetch(proxied.request("PUT", "sys/leases/renew").body(body)).await;
        assert_eq!((response.status, response.cache()), (200, ""));
        assert_eq!(world.count(Operation::RenewLease), renewals);
    }
    // A revoked lease is not served again.
    let body = json!({ "lease_id": id }).to_string();
    assert_eq!(fetch(proxied.request("PUT", "sys/leases/revoke").body(body)).await.status, 204);
    assert_ne!(lease(&proxied.get("database/creds/dev").await).0, id);
}

/// vault#25712: leases of a revoked token are renewed for ever, each renewal refused.
#[tokio::test(start_paused = true)]
async fn leases_of_a_token_that_was_replaced_are_dropped_and_never_renewed_again() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping(HOUR, HOUR));
    let (id, _) = lease(&proxied.get("database/creds/dev").await);
    world.faults().revoke_all();
    assert_eq!(proxied.get("sys/mounts").await.status, 200, "the token is found dead and replaced");
    session.serving().await;
    let (next, _) = lease(&proxied.get("database/creds/dev").await);
    assert_ne!(next, id);
    let before = world.count(Operation::RenewLease);
    tokio::time::sleep(Duration::from_mins(30)).await;
    let renewals = world.count(Operation::RenewLease) - before;
    assert!((3..=6).contains(&renewals), "{renewals} renewals of one lease of ten minutes in half an hour");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_not_flooded_with_renewals() {
    let world = World::new(Role { token_type: TokenType::Batch, ttl: 8 * HOUR, max_ttl: None, ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping(HOUR, HOUR));
    for number in 0..40 {
        lease(&proxied.get(&format!("database/creds/dev?n={number}")).await);
    }
    let failing = keyward_emulators::secrets::CannedResponse::error(503, "Vault is sealed");
    world.faults().respond_always(Operation::RenewLease, Some(failing));
    let before = world.count(Operation::RenewLease);
    tokio::time::sleep(HOUR).await;
    let renewals = world.count(Operation::RenewLease) - before;
    assert!(renewals < 200, "{renewals} renewals in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_login_through_the_proxy_is_shared_by_callers_with_equal_requests() {
    let world = World::new(Role { max_ttl: None, ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping(HOUR, HOUR));
    let login = async |role: &str| {
        let body = json!({"role": role, "jwt": "a.b.c"}).to_string();
        let response = fetch(proxied.request("POST", "auth/azure/login").body(body)).await;
        response.json()["auth"].clone()
    };
    let logins = world.count(Operation::Login);
    let (one, same, other) = (login("dev").await, login("dev").await, login("ops").await);
    assert_eq!(one["client_token"], same["client_token"]);
    assert_ne!(one["client_token"], other["client_token"]);
    assert_eq!(world.count(Operation::Login) - logins, 2);
    tokio::time::sleep(Duration::from_mins(90)).await;
    let later = login("dev").await;
    assert_eq!(later["client_token"], one["client_token"], "the agent has renewed it");
    assert!(later["lease_duration"].as_u64().unwrap() > 600);
}

#[tokio::test]
async fn values_are_read_once_for_a_time_and_a_write_through_the_proxy_is_seen_at_once() {
    let (proxied, reads) = in_front_of_values(HOUR, HOUR);
    let first = proxied.get("secret/data/web").await;
    let second = proxied.get("secret/data/web").await;
    assert_eq!((first.cache(), second.cache(), first.text == second.text), ("MISS", "HIT", true));
    assert!(second.headers.contains_key("age") && reads.load(Ordering::SeqCst) == 1);
    for (method, path) in [
        ("POST", "secret/data/web"),
        ("DELETE", "secret/metadata/web"),
        ("POST", "secret/undelete/web"),
        ("PUT", "secret/destroy/web"),
    ] {
        let before = reads.load(Ordering::SeqCst);
        fetch(proxied.request(method, path).body("{}")).await;
        assert_eq!(proxied.get("secret/data/web").await.cache(), "MISS", "{method} {path}");
        assert_eq!(proxied.get("secret/data/web").await.cache(), "HIT");
        assert_eq!(reads.load(Ordering::SeqCst), before + 1);
    }
    let anew = fetch(proxied.request("GET", "secret/data/web").header("cache-control", "no-cache")).await;
    assert_eq!(anew.cache(), "MISS");
    let text = proxied.metrics.text();
    assert!(text.contains("keyward_cache_requests_total{listener=\"vault\",outcome=\"hit\"} 5"), "{text}");
    assert!(text.contains("keyward_cache_bytes{listener=\"vault\"}"), "{text}");
}

#[tokio::test]
async fn a_read_for_all_callers_has_no_header_of_one_of_them() {
    let (proxied, _) = in_front_of_values(Duration::from_mins(1), Duration::ZERO);
    let shaping = [
        "accept",
        "accept-language",
        "content-language",
        "prefer",
        "user-agent",
        "x-consul-token",
        "x-custom",
        "x-vault-no-request-forwarding",
        "x-vault-policy-override",
        "x-vault-raw-error",
        "x-vault-wrap-format",
    ];
    let mut request = proxied.request("GET", "secret/data/web");
    for name in shaping {
        request = request.header(name, "shaped");
    }
    assert_eq!(fetch(request).await.cache(), "MISS");
    let forwarded = proxied.vault.last();
    assert!(!format!("{:?}", forwarded.headers).contains("shaped"), "{forwarded:?}");
    assert_eq!((forwarded.token(), forwarded.header("x-vault-request")), ("tok1", "true"));
    fetch(proxied.request("GET", "sys/mounts").header("x-custom", "kept")).await;
    assert_eq!(proxied.vault.last().header("x-custom"), "kept", "it is not cached");
}

#[tokio::test]
async fn responses_are_not_shared_between_tokens() {
    let (proxied, _) = in_front_of_values(HOUR, HOUR);
    let of = |response: FetchedResponse| response.json()["data"]["data"]["of"].as_str().unwrap().to_owned();
    let fetch_own =
        async |token: &str| fetch(proxied.request("GET", "secret/data/web").header("x-vault-token", token)).await;
    assert_eq!(of(proxied.get("secret/data/web").await), "tok1");
    assert_eq!(of(fetch_own("one").await), "one");
    assert_eq!(of(fetch_own("two").await), "two");
    let again = fetch_own("one").await;
    assert_eq!(again.cache(), "HIT");
    assert_eq!(of(again), "one");
    let named = fetch(proxied.request("GET", "secret/data/web").header("x-vault-namespace", "team")).await;
    assert_eq!(named.cache(), "MISS");
    let wrapped = fetch(proxied.request("GET", "secret/data/web").header("x-vault-wrap-ttl", "60")).await;
    assert_eq!(wrapped.cache(), "");
}

/// vault#19879, vault#10920: only Vault Enterprise caches values.
#[tokio::test]
async fn while_the_server_is_unreachable_values_are_served_up_to_their_maximum_age_and_marked_as_stale() {
    let (proxied, _) = in_front_of_values(Duration::ZERO, HOUR);
    let good = proxied.get("secret/data/web").await;
    assert_eq!(proxied.get("secret/data/web").await.cache(), "MISS", "each is asked for while the server is there");
    proxied.vault.answers(|_| reply(503, &[], r#"{"errors":["Vault is sealed"]}"#));
    let stale = proxied.get("secret/data/web").await;
    assert_eq!((stale.status, stale.cache()), (200, "STALE"));
    assert!(
        stale.headers.contains_key("age") && stale.json()["data"]["data"]["of"] == good.json()["data"]["data"]["of"]
    );
    assert_eq!(proxied.get("secret/data/other").await.status, 503);
    proxied.withdraw("the token has expired", Duration::from_secs(5));
    assert_eq!(
        proxied.get("secret/data/web").await.status,
        503,
        "a token that was taken away takes what it read along"
    );

    let (bounded, _) = in_front_of_values(Duration::ZERO, Duration::ZERO);
    assert_eq!(bounded.get("secret/data/web").await.status, 200);
    // The value is older than the bound, which is zero.
    tokio::time::sleep(Duration::from_millis(5)).await;
    bounded.vault.answers(|_| reply(503, &[], "{}"));
    assert_eq!(bounded.get("secret/data/web").await.status, 503);
}

#[tokio::test]
async fn a_refusal_removes_the_cache_entry() {
    let (proxied, _) = in_front_of_values(Duration::ZERO, HOUR);
    assert_eq!(proxied.get("secret/data/web").await.status, 200);
    proxied.vault.answers(|_| reply(404, &[], r#"{"errors":[]}"#));
    assert_eq!(proxied.get("secret/data/web").await.status, 404);
    proxied.vault.answers(|_| reply(503, &[], "{}"));
    assert_eq!(proxied.get("secret/data/web").await.status, 503);
}

#[tokio::test]
async fn requests_that_are_not_cached_do_not_wait_for_equal_ones() {
    let (proxied, _) = in_front_of_values(HOUR, HOUR);
    *proxied.vault.script() = None;
    let request = "POST /v1/never HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nContent-Length: 0\r\n\r\n";
    let (mut first, mut second) = (Raw::tcp(proxied.address).await, Raw::tcp(proxied.address).await);
    first.send(request).await;
    second.send(request).await;
    tokio::time::timeout(Duration::from_secs(30), async {
        while proxied.vault.open() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("both are at the server at once");
}

#[tokio::test]
async fn a_caller_that_disconnects_does_not_fail_others_that_wait_for_the_same_response() {
    let proxied = Proxied::with(|options, _| options.cache = Some(cache(HOUR, HOUR)));
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    proxied.vault.holds(Arc::clone(&gate));
    let request = "GET /v1/secret/data/web HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n";
    let mut first = Raw::tcp(proxied.address).await;
    first.send(request).await;
    while proxied.vault.open() < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut second = Raw::tcp(proxied.address).await;
    second.send(request).await;
    drop(first);
    gate.add_permits(10);
    assert_eq!(second.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn the_cache_can_be_cleared_by_path_lease_token_or_completely() {
    log::keep();
    let (proxied, _) = in_front_of_values(HOUR, HOUR);
    let clear = async |header: bool, body: Value| {
        let mut request = proxied.client.post(format!("{}/agent/v1/cache-clear", proxied.url)).body(body.to_string());
        if header {
            request = request.header("x-vault-request", "true");
        }
        fetch(request).await
    };
    let fill = async || {
        for path in ["secret/data/a", "secret/data/b", "kv/c"] {
            proxied.get(path).await;
        }
        fetch(proxied.request("GET", "kv/c").header("x-vault-token", "mine")).await;
    };
    fill().await;
    let cleared = async |body: Value| clear(true, body).await.json()["cleared"].as_u64().unwrap();
    assert_eq!(cleared(json!({"type": "request_path", "value": "/v1/secret/data/a"})).await, 1);
    assert_eq!(proxied.get("secret/data/b").await.cache(), "HIT");
    assert_eq!(proxied.get("secret/data/a").await.cache(), "MISS");
    assert_eq!(cleared(json!({"type": "request_path", "value": "secret/", "namespace": "team"})).await, 0);
    assert_eq!(cleared(json!({"type": "token", "value": "mine"})).await, 1);
    assert_eq!(cleared(json!({"type": "lease", "value": "database/creds"})).await, 0);
    assert_eq!(cleared(json!({"type": "all"})).await, 3);
    let logged = log::lines().into_iter().filter(|line| line["fields"]["event"] == "cache.cleared");
    let logged: Vec<Value> = logged.map(|line| json!([line["fields"]["scope"], line["fields"]["entries"]])).collect();
    let expected = json!([["request_path", 1], ["request_path", 0], ["token", 1], ["lease", 0], ["all", 3]]);
    assert_eq!(json!(logged), expected);
    assert_eq!(clear(false, json!({"type": "all"})).await.status, 412);
    for body in [json!({}), json!({"type": "lease"}), json!({"type": "some", "value": "a"}), json!([])] {
        assert_eq!(clear(true, body.clone()).await.status, 400, "{body}");
    }
    let without = Proxied::start();
    let request =
        without.client.post(format!("{}/agent/v1/cache-clear", without.url)).header("x-vault-request", "true");
    assert_eq!(fetch(request.body("{}")).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn values_outlast_the_token_they_were_read_with_while_the_server_is_away() {
    let world = World::new(Role { ttl: Duration::from_mins(5), ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping(Duration::ZERO, HOUR));
    let good = proxied.get("secret/data/example").await;
    world.faults().go_away().await;
    for minute in 1..60 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let stale = proxied.get("secret/data/example").await;
        assert_eq!((stale.status, stale.cache(), stale.text == good.text), (200, "STALE", true), "minute {minute}");
    }
    assert!(session.token().is_none(), "it has ended long since");
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(proxied.get("secret/data/example").await.status, 503, "an hour is over");
    world.faults().come_back().await;
    session.serving().await;
    assert_eq!(proxied.get("secret/data/example").await.cache(), "MISS");
}
