//! Paths that match `leases`: writes to values among them, and leases of callers' own tokens, which end with the token.

use std::time::Duration;

use keyward_agent::api_proxy::{ApiProxyOptions, CacheOptions, Rule};
use keyward_emulators::secrets::{Operation, Role};
use serde_json::json;
use tokio::time::Instant;

use crate::harness::scripted::reply;
use crate::harness::session::World;
use crate::harness::vault::{Proxied, cache, fetch, options};

const HOUR: Duration = Duration::from_hours(1);

fn caching(values: &[&str], leases: &[&str]) -> CacheOptions {
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).unwrap()).collect();
    CacheOptions { values: rules(values), leases: rules(leases), ..cache(HOUR, HOUR) }
}

/// A proxy in front of a server that answers reads with a value, logins with a token, and writes with nothing.
fn in_front_of_values(cache: CacheOptions) -> Proxied {
    let proxied = Proxied::with(|options, _| options.cache = Some(cache));
    proxied.vault.answers(|request| {
        let body = match request.method.as_str() {
            "GET" => json!({ "lease_id": "", "data": { "a": "b" } }),
            _ if request.target.ends_with("/login") && !request.body.is_empty() => {
                json!({ "auth": { "client_token": "theirs", "lease_duration": 600 } })
            }
            _ => return reply(204, &[], ""),
        };
        reply(200, &[("content-type", "application/json")], body.to_string())
    });
    proxied
}

#[tokio::test]
async fn a_write_whose_path_matches_leases_too_is_seen_at_once() {
    for (values, leases, read, written) in [
        ("kv/*", "+/creds/*", "kv/creds/app", "kv/creds/app"),
        ("secret/data/*", "*", "secret/data/web", "secret/delete/web"),
        ("secret/data/*", "*", "secret/data/web", "secret/data/web"),
    ] {
        let proxied = in_front_of_values(caching(&[values], &[leases]));
        for (method, bytes) in [("PUT", 2), ("DELETE", 0), ("POST", 100_000), ("PATCH", 2)] {
            for expected in ["MISS", "HIT"] {
                assert_eq!(proxied.get(read).await.cache(), expected, "{method} {leases} {written}");
            }
            let write = proxied.request(method, written).body("x".repeat(bytes));
            assert_eq!(fetch(write).await.status, 204);
        }
        assert_eq!(proxied.get(read).await.cache(), "MISS", "{leases} {written}");
    }
}

#[tokio::test]
async fn writes_drop_no_shared_login_of_their_path() {
    let proxied = in_front_of_values(caching(&["secret/*"], &["auth/+/login"]));
    let login = async |body: &'static str| fetch(proxied.request("POST", "auth/azure/login").body(body)).await;
    assert_eq!(login("{}").await.cache(), "MISS");
    assert_eq!(login("").await.status, 204);
    let wrapped = proxied.request("POST", "auth/azure/login").header("x-vault-wrap-ttl", "60").body("{}");
    assert_eq!(fetch(wrapped).await.cache(), "");
    assert_eq!(login("{}").await.cache(), "HIT");
}

#[tokio::test(start_paused = true)]
async fn renewals_are_not_cached_although_their_path_matches_leases() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let cache = Some(caching(&["secret/*"], &["*"]));
    let proxied = Proxied::for_world_with(&world, &session, ApiProxyOptions { cache, ..options() });
    let issued = proxied.get("database/creds/dev").await.json();
    for renewals in 1..=2 {
        let body = json!({ "lease_id": issued["lease_id"] }).to_string();
        let response = fetch(proxied.request("PUT", "sys/leases/renew").body(body)).await;
        assert_eq!((response.status, response.cache()), (200, ""));
        assert_eq!(world.count(Operation::RenewLease), renewals);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_served_after_the_end_of_the_callers_token_that_it_belongs_to() {
    let world = World::new(Role { ttl: Duration::from_mins(5), max_ttl: None, ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    let cache = Some(cache(HOUR, HOUR));
    let proxied = Proxied::for_world_with(&world, &session, ApiProxyOptions { cache, ..options() });
    let body = json!({ "role": "dev", "jwt": "a.b.c" }).to_string();
    let login = fetch(proxied.request("POST", "auth/azure/login").body(body)).await.json();
    let token = login["auth"]["client_token"].as_str().unwrap();
    let creds = async || fetch(proxied.request("GET", "database/creds/dev").header("x-vault-token", token)).await;
    let start = Instant::now();
    assert_eq!((creds().await.cache(), creds().await.cache()), ("MISS", "HIT"));
    // Revoked at the server, which tells nobody. The next renewal of the token finds it dead.
    let revoke = proxied.client.put(format!("{}/v1/auth/token/revoke-self", world.secrets.url()));
    assert_eq!(fetch(revoke.header("x-vault-token", token)).await.status, 204);
    let mut last = creds().await;
    assert_eq!(last.cache(), "HIT");
    while last.status == 200 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        last = creds().await;
    }
    assert_eq!(last.status, 403, "{last:?}");
    // The lease of ten minutes would be served for more than six.
    assert!(start.elapsed() < Duration::from_mins(6), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_token_that_the_cache_did_not_issue_are_not_cached() {
    let world = World::new(Role::default());
    let mut session = world.start();
    session.serving().await;
    let cache = Some(cache(HOUR, HOUR));
    let proxied = Proxied::for_world_with(&world, &session, ApiProxyOptions { cache, ..options() });
    let token = world.secrets.token(&Role::default());
    let token = keyward_machine::secret_string::SecretString::expose_secret(&token).to_owned();
    let fetch_own = async |path: &str| fetch(proxied.request("GET", path).header("x-vault-token", &token)).await;
    for issued in 1..=2 {
        let response = fetch_own("database/creds/dev").await;
        assert_eq!((response.status, response.cache(), world.faults().leases_issued()), (200, "", issued));
    }
    // Values are, as before.
    fetch_own("secret/data/example").await;
    assert_eq!(fetch_own("secret/data/example").await.cache(), "HIT");
}
