//! Revocations through the API proxy: revoked leases and tokens leave the cache, however the request names them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyward_agent::api_proxy::{ApiProxyOptions, CacheOptions, Rule};
use keyward_emulators::secrets::Role;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::scripted::reply;
use crate::harness::session::World;
use crate::harness::vault::{FetchedResponse, Proxied, cache, fetch, options, until};

const HOUR: Duration = Duration::from_hours(1);

fn keeping() -> ApiProxyOptions {
    ApiProxyOptions { cache: Some(cache(HOUR, HOUR)), ..options() }
}

/// A proxy in front of a server that issues leases and answers revocations with `status`. A login gets the token `mine`.
fn in_front_of_leases(status: u16) -> Proxied {
    in_front_of(status, cache(HOUR, HOUR))
}

fn in_front_of(status: u16, options: CacheOptions) -> Proxied {
    let proxied = Proxied::with(|proxy, _| proxy.cache = Some(options));
    let issued = Arc::new(AtomicU64::new(0));
    proxied.vault.answers(move |request| {
        if request.target.ends_with("/login") {
            let auth = json!({ "client_token": "mine", "lease_duration": 3600, "renewable": true });
            return reply(200, &[("content-type", "application/json")], json!({ "auth": auth }).to_string());
        }
        if request.method != "GET" {
            return reply(status, &[], "");
        }
        let id = format!("database/creds/dev/{}", issued.fetch_add(1, Ordering::SeqCst));
        let body =
            json!({ "lease_id": id, "lease_duration": 600, "renewable": true, "data": { "of": request.token() } });
        reply(200, &[("content-type", "application/json")], body.to_string())
    });
    proxied
}

fn lease(response: &FetchedResponse) -> String {
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["lease_id"].as_str().unwrap().to_owned()
}

/// The text as a JSON string in which every character is escaped.
fn escaped(text: &str) -> String {
    let escapes: Vec<String> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{}\"", escapes.concat())
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_revoked_by_an_escaped_id_is_not_served() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping());
    let forms: [fn(&str) -> String; 3] = [
        |id| format!("{{\"lease_id\":\"{}\"}}", id.replace('/', "\\/")),
        |id| format!("{{\"lease_id\":{}}}", escaped(id)),
        |id| format!(" {{\"sync\":true,\"{}\":{}}} ", "lease\\u005fid", escaped(id)),
    ];
    for form in forms {
        let id = lease(&proxied.get("database/creds/dev").await);
        let body = form(&id);
        assert_eq!(fetch(proxied.request("PUT", "sys/leases/revoke").body(body.clone())).await.status, 204, "{body}");
        assert_ne!(lease(&proxied.get("database/creds/dev").await), id, "{body}");
    }
}

#[tokio::test]
async fn an_unreadable_revocation_invalidates_all_that_it_may_name() {
    let own_request = |proxied: &Proxied| proxied.request("GET", "database/creds/dev").header("x-vault-token", "mine");
    let id = "database/creds/dev/0";
    let long = format!("{{\"padding\":\"{}\",\"lease_id\":\"{id}\"}}", "x".repeat(100_000));
    let bodies = [
        format!("lease_id={id}"),
        format!("{{\"lease_id\":\"other\",\"lease_id\":\"{id}\"}}"),
        "{\"lease_id\":5}".to_owned(),
        "{\"lease_id\":".to_owned(),
        "{}".to_owned(),
        long,
    ];
    for body in bodies {
        for (status, others_stay) in [(204, false), (400, true)] {
            let proxied = in_front_of_leases(status);
            login(&proxied).await;
            let (ours, theirs) =
                (lease(&proxied.get("database/creds/dev").await), lease(&fetch(own_request(&proxied)).await));
            fetch(proxied.request("POST", "sys/leases/revoke").body(body.clone())).await;
            let excerpt = &body[..body.len().min(60)];
            assert_ne!(lease(&proxied.get("database/creds/dev").await), ours, "{status} {excerpt}");
            assert_eq!(lease(&fetch(own_request(&proxied)).await) == theirs, others_stay, "{status} {excerpt}");
        }
    }
}

#[tokio::test]
async fn revocations_are_seen_under_every_name_that_the_server_knows_them_by() {
    let id = "database/creds/dev/0";
    let none = "";
    let of = |name: &str| format!("{{\"{name}\":\"{id}\"}}");
    for (path, body) in [
        (format!("sys/leases/revoke/{id}"), none.to_owned()),
        ("sys/leases/revoke/other".to_owned(), of("lease_id")),
        ("sys/leases/revoke".to_owned(), of("url_lease_id")),
        ("team/sys/revoke".to_owned(), of("lease_id")),
        (format!("team/sys/revoke/{id}"), none.to_owned()),
        ("sys/leases/revoke-prefix/database/creds/dev".to_owned(), none.to_owned()),
        ("sys/leases/revoke-prefix/database/creds/".to_owned(), none.to_owned()),
        ("sys/leases/revoke-force/database".to_owned(), none.to_owned()),
        ("sys/revoke-force/database".to_owned(), none.to_owned()),
    ] {
        // With the second, the path of the revocation matches `leases` too.
        for leases in ["+/creds/*", "*"] {
            let options = CacheOptions { leases: vec![Rule::parse(leases).unwrap()], ..cache(HOUR, HOUR) };
            let proxied = in_front_of(204, options);
            assert_eq!(lease(&proxied.get("database/creds/dev").await), id);
            fetch(proxied.request("PUT", &path).body(body.clone())).await;
            assert_ne!(lease(&proxied.get("database/creds/dev").await), id, "{leases} {path} {body}");
        }
    }
}

#[tokio::test]
async fn a_revocation_of_unknown_length_is_read_too() {
    let proxied = in_front_of_leases(204);
    let id = lease(&proxied.get("database/creds/dev").await);
    let pieces = ["{\"lease", "_id\":\"", id.as_str(), "\"}"].map(|piece| Ok::<_, std::io::Error>(piece.to_owned()));
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    assert_eq!(fetch(proxied.request("PUT", "sys/leases/revoke").body(body)).await.status, 204);
    assert_eq!(proxied.vault.last().body, format!("{{\"lease_id\":\"{id}\"}}"));
    assert_ne!(lease(&proxied.get("database/creds/dev").await), id);
}

async fn login(proxied: &Proxied) -> Value {
    let body = json!({ "role": "dev", "jwt": "a.b.c" }).to_string();
    fetch(proxied.request("POST", "auth/azure/login").body(body)).await.json()["auth"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_revoked_by_accessor_or_by_itself_is_not_served() {
    let world = World::new(Role { max_ttl: None, ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    let proxied = Proxied::for_world_with(&world, &session, keeping());
    let of = |auth: &Value| auth["client_token"].as_str().unwrap().to_owned();

    let first = login(&proxied).await;
    assert_eq!(of(&login(&proxied).await), of(&first), "it is shared");
    let creds =
        async |token: &str| fetch(proxied.request("GET", "database/creds/dev").header("x-vault-token", token)).await;
    let id = lease(&creds(&of(&first)).await);
    assert_eq!(lease(&creds(&of(&first)).await), id);
    let body = json!({ "accessor": first["accessor"] }).to_string().replace('-', "\\u002d");
    assert_eq!(fetch(proxied.request("POST", "auth/token/revoke-accessor").body(body)).await.status, 204);
    let second = login(&proxied).await;
    assert_ne!(of(&second), of(&first));
    assert_eq!(creds(&of(&first)).await.status, 403, "and what it had got ends with it");

    let revoke = proxied.request("POST", "auth/token/revoke-self").header("x-vault-token", of(&second));
    assert_eq!(fetch(revoke).await.status, 204);
    let third = login(&proxied).await;
    assert_ne!(of(&third), of(&second));
    let bearer = format!("Bearer {}", of(&third));
    let revoke = proxied.request("PUT", "auth/token/revoke-self").header("authorization", bearer);
    assert_eq!(fetch(revoke).await.status, 204);
    assert_ne!(of(&login(&proxied).await), of(&third));
}

#[tokio::test]
async fn the_revocation_of_an_unknown_accessor_invalidates_the_callers_entries() {
    for (status, stays) in [(204, false), (400, true)] {
        let proxied = in_front_of_leases(status);
        let fetch_own = async || {
            let request = proxied.request("GET", "database/creds/dev").header("x-vault-token", "mine");
            lease(&fetch(request).await)
        };
        login(&proxied).await;
        let (ours, theirs) = (lease(&proxied.get("database/creds/dev").await), fetch_own().await);
        let body = json!({ "accessor": "somebody" }).to_string();
        fetch(proxied.request("POST", "auth/token/revoke-accessor").body(body)).await;
        assert_eq!(lease(&proxied.get("database/creds/dev").await), ours, "the session's own is looked after");
        assert_eq!(fetch_own().await == theirs, stays, "{status}");
    }
}

#[tokio::test]
async fn responses_under_way_during_a_write_or_a_revocation_are_not_cached() {
    for (path, method, change) in [
        ("secret/data/web", "POST", "secret/data/web"),
        ("database/creds/dev", "PUT", "sys/leases/revoke-prefix/database/creds"),
    ] {
        let proxied = in_front_of_leases(204);
        if path.starts_with("secret") {
            proxied.vault.answers(|_| reply(200, &[], json!({ "data": {} }).to_string()));
        }
        let gate = Arc::new(Semaphore::new(0));
        proxied.vault.holds(Arc::clone(&gate));
        let first = proxied.get(path);
        let then = async {
            until(|| proxied.vault.open() > 0).await;
            // Only the read is held from here on.
            proxied.vault.holds(Arc::new(Semaphore::new(100)));
            assert!(fetch(proxied.request(method, change).body("{}")).await.status < 300);
            let later = proxied.get(path).await;
            assert_eq!((later.status, later.cache()), (200, "MISS"), "{path}: who asks after it does not follow");
            gate.add_permits(1);
        };
        let (first, ()) = tokio::join!(first, then);
        assert_eq!((first.status, first.cache()), (200, "MISS"));
        let cached = proxied.get(path).await;
        assert_eq!(cached.cache(), "HIT");
        if path.starts_with("database") {
            assert_ne!(lease(&cached), lease(&first), "the answer that was under way is not given on");
        }
    }
}

#[tokio::test]
async fn a_write_or_a_revocation_whose_caller_has_gone_is_seen_too() {
    for (path, method, change) in [
        ("secret/data/web", "POST", "secret/data/web"),
        ("database/creds/dev", "PUT", "sys/leases/revoke/database/creds/dev/0"),
    ] {
        let proxied = in_front_of_leases(204);
        if path.starts_with("secret") {
            proxied.vault.answers(|_| reply(200, &[], json!({ "data": {} }).to_string()));
        }
        assert_eq!((proxied.get(path).await.cache(), proxied.get(path).await.cache()), ("MISS", "HIT"), "{path}");
        let gate = Arc::new(Semaphore::new(0));
        proxied.vault.holds(Arc::clone(&gate));
        let mut caller = JoinSet::new();
        caller.spawn(proxied.request(method, change).body("{}").send());
        until(|| proxied.vault.open() == 1).await;
        caller.shutdown().await;
        until(|| proxied.vault.open() == 0).await;
        proxied.vault.holds(Arc::new(Semaphore::new(100)));
        assert_eq!(proxied.get(path).await.cache(), "MISS", "{method} {change}");
    }
}
