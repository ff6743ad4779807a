//! Sources of an auth method's signing keys.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::World;
use crate::harness::issuer::{Issuer, Key};

/// World with an auth method whose keys are fetched.
async fn fetching(config: impl Fn(&Issuer) -> Value) -> (World, Issuer) {
    let (world, issuer) = (World::start().await, Issuer::start());
    world.rule("service", "web", "").await;
    world.method(json!({"Config": config(&issuer)})).await;
    (world, issuer)
}

fn claims(world: &World, issuer: &Issuer) -> Value {
    let mut claims = world.claims();
    claims["iss"] = json!(issuer.url);
    claims
}

#[tokio::test]
async fn signing_keys_are_fetched_once_and_again_when_stale() {
    let jwks = |issuer: &Issuer| json!({"JWKSURL": format!("{}keys", issuer.url), "BoundAudiences": ["a"]});
    let (world, issuer) = fetching(jwks).await;
    let jwt = issuer.key.sign(&claims(&world, &issuer));
    assert_eq!(issuer.fetches(), 0);
    let login = async |jwt: &str| world.acl.log_in("people", jwt).await;
    let many = tokio::join!(login(&jwt), login(&jwt), login(&jwt));
    assert_eq!((many.0.status, many.1.status, many.2.status, issuer.fetches()), (200, 200, 200, 1));

    // A JWT without `kid` is accepted; an unknown `kid` refetches at most once a minute.
    let nameless = issuer.key.sign_as(&json!({"alg": "RS256"}), &claims(&world, &issuer));
    assert_eq!(login(&nameless).await.status, 200);
    let next = Key::new("key-2");
    issuer.faults.keys.lock().push(next.jwk());
    let unknown = next.sign(&claims(&world, &issuer));
    for _ in 0..3 {
        let refused = login(&unknown).await;
        assert!(refused.status == 403 && refused.text.contains("has no key \"key-2\""), "{refused:?}");
    }
    assert_eq!(issuer.fetches(), 1);
    world.acl.clock.suspend(Duration::from_secs(61));
    assert_eq!((login(&unknown).await.status, issuer.fetches()), (200, 2));

    // An outage of the issuer keeps the keys; a withdrawn key is refused within the hour.
    issuer.faults.failing.store(true, Ordering::Relaxed);
    world.acl.clock.suspend(Duration::from_mins(61));
    let jwt = issuer.key.sign(&claims(&world, &issuer));
    assert_eq!((login(&jwt).await.status, issuer.fetches()), (200, 3));
    assert_eq!((login(&jwt).await.status, issuer.fetches()), (200, 3));
    issuer.faults.failing.store(false, Ordering::Relaxed);
    *issuer.faults.keys.lock() = vec![next.jwk()];
    world.acl.clock.suspend(Duration::from_secs(61));
    assert_eq!((login(&jwt).await.status, issuer.fetches()), (403, 4));

    // An updated method does not use its previous keys.
    world.method(json!({"Config": jwks(&Issuer::start())})).await;
    let refused = login(&unknown).await;
    assert_eq!((refused.status, &refused.headers["retry-after"]), (503, &"5".parse().unwrap()), "{refused:?}");
}

#[tokio::test]
async fn a_discovery_document_names_keys_and_issuer() {
    let (world, issuer) = fetching(|issuer| json!({"OIDCDiscoveryURL": issuer.url, "BoundAudiences": ["a"]})).await;
    let jwt = issuer.key.sign(&claims(&world, &issuer));
    assert_eq!(world.acl.log_in("people", &jwt).await.status, 200);
    let other = issuer.key.sign(&world.claims());
    let refused = world.acl.log_in("people", &other).await;
    assert!(refused.status == 403 && refused.text.contains("issued by a different provider"), "{refused:?}");

    let (world, issuer) = fetching(|issuer| json!({"OIDCDiscoveryURL": issuer.url, "BoundAudiences": ["a"]})).await;
    *issuer.faults.claimed.lock() = "https://other.example/".to_owned();
    let refused = world.acl.log_in("people", &issuer.key.sign(&claims(&world, &issuer))).await;
    assert!(refused.status == 503 && refused.text.contains("the discovery document is of issuer"), "{refused:?}");
    assert_eq!(issuer.fetches(), 0);
}
