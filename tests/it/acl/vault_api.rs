//! Vault API of the ACL server: login with an Azure identity, lookup, expiration and revocation.

mod input;
#[cfg(feature = "dev")]
mod agent_client;
#[cfg(feature = "dev")]
mod other_clouds;
mod server;
mod service_accounts;
mod tokens;

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use keyward_acl::{AclOpenError, AclOptions, AclServer};
use keyward_machine::clock::{Clock, TestClock};
use keyward_telemetry::metrics::Metrics;
use serde_json::{Value, json};

use crate::harness::issuer::{Issuer, Key, MACHINE, PRINCIPAL};
use server::{Server, options};

struct World {
    issuer: Issuer,
    server: Server,
    clock: TestClock,
    options: AclOptions,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let issuer = Issuer::start();
        let options = options(folder.path(), &issuer);
        let clock = TestClock::starting_at(SystemTime::now());
        let server = Server::start(&options, Clock::Test(clock.clone())).await;
        Self { issuer, server, clock, options, _folder: folder }
    }

    fn now(&self) -> SystemTime {
        Clock::Test(self.clock.clone()).now().wall
    }

    fn claims(&self) -> Value {
        self.issuer.claims(self.now())
    }

    fn claims_with(&self, name: &str, value: Value) -> Value {
        let mut claims = self.claims();
        claims[name] = value;
        claims
    }

    fn jwt(&self) -> String {
        self.issuer.key.sign(&self.claims())
    }
}

#[tokio::test]
async fn a_method_of_the_configuration_is_listed_for_those_who_ask_for_it() {
    let world = World::start().await;
    let made = world.server.call("PUT", "/v1/acl/bootstrap", None, None).await.json();
    let root = made["SecretID"].as_str();
    let list =
        async |query: &str| world.server.call("GET", &format!("/v1/acl/auth-methods{query}"), root, None).await.json();
    assert_eq!(list("").await, json!([]), "clients of Consul could not read it by its name");
    let listed = list("?configured=true").await;
    assert_eq!(
        (&listed[0]["Name"], &listed[0]["Type"], &listed[0]["Configured"]),
        (&json!("cloud"), &json!("cloud"), &json!(true))
    );
    assert_eq!(listed[0]["Roles"], json!(["elsewhere", "group", "machine", "principal", "set"]));
    assert_eq!(listed[1], Value::Null);
    world.server.call("PUT", "/v1/namespace", root, Some(json!({"Name": "team"}))).await;
    assert_eq!(list("?configured=true&ns=team").await, json!([]));
}

#[tokio::test]
async fn a_machine_logs_in_and_reads_its_token() {
    let world = World::start().await;
    let response = world.server.login("machine", &world.jwt()).await;
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.headers["cache-control"], "no-store");
    let body = response.json();
    let auth = &body["auth"];
    assert_eq!(auth["policies"], json!(["web-read", "web-write"]));
    assert_eq!((&auth["renewable"], &auth["token_type"]), (&json!(false), &json!("service")));
    let left = auth["lease_duration"].as_u64().unwrap();
    assert!((590..=600).contains(&left), "{left}");
    let facts = json!({
        "principal_id": PRINCIPAL, "tenant_id": "tenant", "app_id": "app-1", "role": "machine", "vm_name": "web-1",
        "subscription_id": "sub-1", "resource_group_name": "group-1", "resource_id": MACHINE,
    });
    assert_eq!(auth["metadata"], facts);

    let secret = response.secret();
    let read = world.server.read_self(&secret).await;
    assert_eq!((read.status, &read.headers["content-type"]), (200, &"application/json".parse().unwrap()), "{read:?}");
    let mut token = read.json();
    let mut take = |name: &str| token.as_object_mut().unwrap().remove(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((take("AccessorID"), take("SecretID")), (auth["accessor"].clone(), json!(secret)));
    let links: Vec<Value> = take("Policies").as_array().unwrap().iter().map(|link| link["Name"].clone()).collect();
    assert_eq!(links, ["web-read", "web-write"]);
    assert_eq!((take("AuthMethod"), take("Namespace"), take("Local")), (json!("cloud"), json!("default"), json!(true)));
    assert_eq!((take("AuthMethodNamespace"), take("Partition")), (json!("default"), json!("default")));
    assert_eq!(take("Description"), "token created via login");
    let time = |value: Value| value.as_str().unwrap().parse::<keyward_acl::model::timestamp::Timestamp>().unwrap();
    let (end, created) = (time(take("ExpirationTime")), time(take("CreateTime")));
    assert_eq!(end.since(created), Duration::from_mins(10));
    assert!(take("CreateIndex").as_u64().unwrap() > 0 && take("ModifyIndex").as_u64().unwrap() > 0);
    assert_eq!(take("Hash").as_str().unwrap().len(), 44);
    assert_eq!(token, json!({}), "fields that nobody asked for");

    let looked_up = world.server.look_up(&secret).await.json();
    let data = &looked_up["data"];
    assert_eq!((&data["accessor"], &data["id"]), (&auth["accessor"], &json!(secret)));
    assert_eq!((&data["renewable"], &data["type"]), (&json!(false), &json!("service")));
    assert_eq!((&data["path"], &data["policies"]), (&json!("auth/cloud/login"), &json!(["web-read", "web-write"])));
    assert!(data["ttl"].as_u64().unwrap() <= left && data["ttl"].as_u64().unwrap() > left - 10);
}

#[tokio::test]
async fn identities_outside_the_bounds_are_refused_with_the_reason() {
    let world = World::start().await;
    let now = world.now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let check = async |name: &str, value: Value, role: &str, status: u16, reason: &str| {
        let claims = world.claims_with(name, value.clone());
        let response = world.server.login(role, &world.issuer.key.sign(&claims)).await;
        assert_eq!(response.status, status, "{name} {value} {response:?}");
        if status != 200 {
            assert!(response.error().contains(reason), "{name} {value} {response:?}");
        }
    };
    check("aud", json!("https://management.example"), "principal", 403, "expected audience").await;
    check("aud", json!(["other", "https://management.example/"]), "principal", 200, "").await;
    check("aud", Value::Null, "principal", 400, "claims have wrong types").await;
    check("aud", json!(7), "principal", 400, "claims have wrong types").await;
    check("iss", json!("https://sts.example/"), "principal", 403, "issued by a different provider").await;
    check("iss", json!(["a"]), "principal", 400, "claims have wrong types").await;
    check("exp", json!(now - 1), "principal", 403, "token is expired").await;
    check("exp", Value::Null, "principal", 403, "without expiration").await;
    check("exp", json!("tomorrow"), "principal", 400, "claims have wrong types").await;
    check("exp", json!(-1), "principal", 400, "claims have wrong types").await;
    check("nbf", json!(now + 60), "principal", 403, "before the nbf (not before) time").await;
    check("oid", Value::Null, "principal", 403, "names the principal").await;
    check("oid", json!("other"), "principal", 403, "service principal not authorized").await;
    check("oid", json!("other"), "machine", 200, "").await;
    check("xms_mirid", Value::Null, "machine", 403, "claims are missing").await;
    check("xms_mirid", json!(MACHINE.replace("web-1", "web-2")), "machine", 403, "machine not authorized").await;
    check("xms_mirid", json!(MACHINE), "set", 403, "scale set not authorized").await;
    check("xms_mirid", json!(MACHINE), "group", 403, "resource group not authorized").await;
    check("xms_mirid", json!(MACHINE), "elsewhere", 403, "subscription not authorized").await;
    check("xms_az_rid", json!(MACHINE.replace("web-1", "web-2")), "machine", 403, "two different machines").await;
}

#[tokio::test]
async fn login_fields_may_only_repeat_signed_claims() {
    let world = World::start().await;
    let check = async |role: &str, fields: Value, status: u16| {
        let response = world.server.login_stating(role, &world.jwt(), &fields).await;
        assert_eq!(response.status, status, "{fields} {response:?}");
        if status == 400 {
            assert!(response.error().contains("differs from the token's claim"), "{response:?}");
        }
    };
    check("machine", json!({"vm_name": "WEB-1", "subscription_id": "sub-1", "resource_group_name": "group-1"}), 200)
        .await;
    check("machine", json!({"vm_name": null, "vmss_name": "", "resource_id": MACHINE}), 200).await;
    check("machine", json!({"vm_name": "web-2"}), 400).await;
    check("principal", json!({"vm_name": "web-2"}), 400).await;
    check("principal", json!({"subscription_id": "sub-2"}), 400).await;
    check("principal", json!({"resource_group_name": "group-2"}), 400).await;
    check("principal", json!({"resource_id": "/subscriptions/sub-2"}), 400).await;
    // Unsigned fields give no access and are not recorded.
    check("set", json!({"vmss_name": "pool"}), 403).await;
    let nameless = world.issuer.key.sign(&world.claims_with("xms_mirid", Value::Null));
    let fields = json!({"vm_name": "web-1", "subscription_id": "sub-1", "resource_group_name": "group-1"});
    assert_eq!(world.server.login_stating("machine", &nameless, &fields).await.status, 403);
    let response = world.server.login_stating("principal", &nameless, &fields).await;
    assert_eq!(response.json()["auth"]["metadata"].get("vm_name"), None);
}

#[tokio::test]
async fn only_rs256_signatures_of_the_issuer_are_accepted() {
    let world = World::start().await;
    let key = &world.issuer.key;
    let claims = world.claims();
    let good = world.jwt();
    let (input, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = input.split_once('.').unwrap();
    let other_claims = world.claims_with("oid", json!("other"));
    let swapped = key.sign(&other_claims).split('.').nth(1).unwrap().to_owned();
    let hmac_with_public_key = {
        use base64::Engine as _;
        let input = keyward_credentials::jwt::signing_input(&json!({"alg": "HS256", "kid": key.id}), &claims);
        let public = key.jwk().to_string();
        let tag = aws_lc_rs::hmac::sign(
            &aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, public.as_bytes()),
            input.as_bytes(),
        );
        format!("{input}.{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(tag))
    };
    let none = keyward_credentials::jwt::signing_input(&json!({"alg": "none", "kid": key.id}), &claims);
    let stranger = Key::new("key-1");
    let own_key = stranger.sign_as(&json!({"alg": "RS256", "kid": "key-1", "jwk": stranger.jwk()}), &claims);
    for (jwt, status, reason) in [
        (good.clone(), 200, ""),
        (format!("{none}."), 403, "unsupported algorithm"),
        (format!("{none}.{signature}"), 403, "unsupported algorithm"),
        (key.sign_as(&json!({"alg": "None", "kid": key.id}), &claims), 403, "unsupported algorithm"),
        (hmac_with_public_key, 403, "unsupported algorithm"),
        (key.sign_rs512(&claims), 403, "unsupported algorithm"),
        (key.sign_as(&json!({"alg": "RS256"}), &claims), 403, "names no key"),
        (key.sign_as(&json!({"kid": key.id}), &claims), 400, "malformed jwt"),
        (key.sign_as(&json!({"alg": "RS256", "kid": key.id, "crit": ["x"]}), &claims), 400, "malformed jwt"),
        (key.sign_as(&json!({"alg": "RS256", "kid": 7}), &claims), 400, "malformed jwt"),
        (stranger.sign(&claims), 403, "failed to verify signature"),
        (own_key, 403, "failed to verify signature"),
        (format!("{header}.{swapped}.{signature}"), 403, "failed to verify signature"),
        (format!("{input}."), 403, "failed to verify signature"),
        (format!("{input}.!"), 403, "failed to verify signature"),
        (key.sign(&json!("text")), 400, "malformed jwt"),
        (input.to_owned(), 400, "malformed jwt"),
        (format!("{good}.x"), 400, "malformed jwt"),
        ("x".to_owned(), 400, "malformed jwt"),
        ("..".to_owned(), 400, "malformed jwt"),
        ("é.é.é".to_owned(), 400, "malformed jwt"),
    ] {
        let response = world.server.login("principal", &jwt).await;
        assert_eq!(response.status, status, "{jwt} {response:?}");
        assert!(status == 200 || response.error().contains(reason), "{jwt} {response:?}");
    }
    assert_eq!(world.issuer.fetches(), 1);
}

#[tokio::test]
async fn unknown_signing_keys_are_refetched_at_most_once_a_minute() {
    let world = World::start().await;
    assert_eq!(world.server.login("principal", &world.jwt()).await.status, 200);
    let next = Key::new("key-2");
    let new = next.sign(&world.claims());
    world.issuer.faults.keys.lock().push(next.jwk());
    for _ in 0..5 {
        let response = world.server.login("principal", &new).await;
        assert_eq!(response.status, 403);
        assert!(response.error().contains("no key \"key-2\""), "{response:?}");
    }
    assert_eq!(world.issuer.fetches(), 1);

    world.clock.suspend(Duration::from_secs(61));
    let logins = (0..8).map(|_| world.server.login("principal", &new));
    let responses = join_all(logins).await;
    assert!(responses.iter().all(|response| response.status == 200), "{responses:?}");
    assert_eq!(world.issuer.fetches(), 2, "many callers, one fetch");

    // An outage of the issuer keeps the keys and causes no more fetches.
    world.issuer.faults.failing.store(true, Ordering::Relaxed);
    world.clock.suspend(Duration::from_secs(61));
    let unknown = Key::new("key-3").sign(&world.claims());
    for _ in 0..5 {
        let response = world.server.login("principal", &unknown).await;
        assert_eq!((response.status, &response.headers["retry-after"]), (503, &"5".parse().unwrap()));
        assert!(response.error().contains("fetching keys failed"), "{response:?}");
        assert_eq!(world.server.login("principal", &world.jwt()).await.status, 200);
    }
    assert_eq!(world.issuer.fetches(), 3);

    // A withdrawn key is trusted for an hour at most.
    world.issuer.faults.failing.store(false, Ordering::Relaxed);
    *world.issuer.faults.keys.lock() = vec![next.jwk()];
    world.clock.suspend(Duration::from_mins(61));
    let response = world.server.login("principal", &world.jwt()).await;
    assert!(response.error().contains("no key \"key-1\""), "{response:?}");
}

async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs = Vec::new();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => {
                outputs.push(output);
                false
            }
            std::task::Poll::Pending => true,
        });
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    outputs
}

#[tokio::test]
async fn logins_fail_if_the_issuer_is_unreachable_or_another_one() {
    let world = World::start().await;
    *world.issuer.faults.claimed.lock() = "https://other.example/".to_owned();
    let response = world.server.login("principal", &world.jwt()).await;
    assert_eq!(response.status, 503);
    assert!(response.error().contains("the discovery document is of issuer"), "{response:?}");
    assert_eq!(world.issuer.fetches(), 0);
    world.issuer.faults.claimed.lock().clear();
    world.clock.suspend(Duration::from_secs(6));
    assert_eq!(world.server.login("principal", &world.jwt()).await.status, 200);
}

#[tokio::test]
async fn a_token_expires_on_time_and_cannot_be_renewed() {
    let world = World::start().await;
    let secret = world.server.login("principal", &world.jwt()).await.secret();
    let renew = world.server.send("POST", "/v1/auth/token/renew-self", &[("X-Vault-Token", &secret)], b"{}").await;
    assert_eq!(renew.status, 400);
    assert!(renew.error().contains("lease is not renewable"), "{renew:?}");

    world.clock.suspend(Duration::from_mins(9));
    let left = world.server.look_up(&secret).await.json()["data"]["ttl"].as_u64().unwrap();
    assert!((50..=60).contains(&left), "{left}");
    world.clock.set_wall_by(61);
    let response = world.server.look_up(&secret).await;
    assert_eq!((response.status, response.error().as_str()), (403, "permission denied: invalid token"));
    let response = world.server.read_self(&secret).await;
    assert_eq!((response.status, response.text.as_str()), (404, "Supplied token does not exist"));
    // Until the sweep, setting the wall clock back revives the token: expiration is by the wall clock.
    world.clock.set_wall_by(-120);
    assert_eq!(world.server.look_up(&secret).await.status, 200);
    world.clock.set_wall_by(120);
    world.clock.suspend(Duration::from_secs(61));
    for _ in 0..1500 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.clock.set_wall_by(-600);
        let swept = world.server.look_up(&secret).await.status == 403;
        world.clock.set_wall_by(600);
        if swept {
            return;
        }
    }
    panic!("the token was not destroyed");
}

#[tokio::test]
async fn revoking_a_token_leaves_others() {
    let world = World::start().await;
    let secret = world.server.login("principal", &world.jwt()).await.secret();
    let other = world.server.login("principal", &world.jwt()).await.secret();
    assert_ne!(secret, other);
    let revoke =
        async || world.server.send("PUT", "/v1/auth/token/revoke-self", &[("X-Vault-Token", &secret)], b"").await;
    let response = revoke().await;
    assert_eq!((response.status, response.text.as_str()), (204, ""));
    assert_eq!(revoke().await.status, 403);
    assert_eq!(world.server.look_up(&secret).await.status, 403);
    assert_eq!(world.server.read_self(&secret).await.status, 404);
    assert_eq!(world.server.look_up(&other).await.status, 200);
}

#[tokio::test]
async fn tokens_survive_a_restart_and_no_file_holds_their_secrets() {
    let world = World::start().await;
    let secret = world.server.login("principal", &world.jwt()).await.secret();
    let before = world.server.read_self(&secret).await.json();
    world.server.stop().await;
    let folder = world.options.store.folder().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "the secret is in a file");
    }
    let clock = Clock::Test(world.clock.clone());
    let server = Server::start(&world.options, clock.clone()).await;
    assert_eq!(server.read_self(&secret).await.json(), before);
    server.stop().await;

    // The store opens neither with another key nor with a new one.
    let key = folder.join("seal.key");
    let saved = std::fs::read(&key).unwrap();
    std::fs::write(&key, "0".repeat(64)).unwrap();
    let error = AclServer::open(&world.options, clock.clone(), Metrics::default()).await.unwrap_err();
    assert!(matches!(error, AclOpenError::Key(_)) && error.to_string().contains("but the store requires"), "{error}");
    std::fs::remove_file(&key).unwrap();
    let error = AclServer::open(&world.options, clock.clone(), Metrics::default()).await.unwrap_err();
    assert!(error.to_string().contains("seal.key is missing"), "{error}");
    std::fs::write(&key, saved).unwrap();
    AclServer::open(&world.options, clock, Metrics::default()).await.unwrap();
}
