//! Login of a person by stored auth methods of the type `oidc`, over HTTP and by the command.

#[cfg(feature = "dev")]
mod command;
mod faults;
#[cfg(feature = "dev")]
mod third_party;

use std::time::Duration;

use keyward_acl::api::LoginLimit;
use keyward_acl::model::timestamp::Timestamp;
use serde_json::{Value, json};

use crate::harness::issuer::Key;
use crate::harness::openid_provider::{CLIENT, OpenIdProvider, REDIRECT};
use crate::harness::{Acl, Answer, log};

/// Nonce of the client of every login here.
const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// ACL server with an auth method `people` that trusts the provider, and a rule that gives each login the service `web`.
struct World {
    acl: Acl,
    provider: OpenIdProvider,
}

impl World {
    async fn start() -> Self {
        let world = Self { acl: Acl::start().await, provider: OpenIdProvider::start() };
        world.method(json!({})).await;
        let rule = json!({"AuthMethod": "people", "BindType": "service", "BindName": "web"});
        world.acl.make("/v1/acl/binding-rule", rule).await;
        world
    }

    /// Creates or updates the auth method, with changes of its configuration.
    async fn method(&self, config: Value) {
        let mut method =
            json!({"Name": "people", "Type": "oidc", "MaxTokenTTL": "1h", "Config": self.provider.config()});
        method["Config"].as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        let known = self.acl.get("/v1/acl/auth-method/people").await.status == 200;
        self.acl.make(if known { "/v1/acl/auth-method/people" } else { "/v1/acl/auth-method" }, method).await;
    }

    async fn begin(&self, change: Value) -> Answer {
        begin(&self.acl, "", change).await
    }

    /// Begins a login and logs the person in: returns code and state.
    async fn arrive(&self) -> (String, String) {
        arrive(&self.acl, &self.provider).await
    }

    /// Finishes a login.
    async fn finish(&self, code: &str, state: &str) -> Answer {
        finish(&self.acl, "", json!({"Code": code, "State": state})).await
    }

    /// Logs a person in.
    async fn log_in(&self) -> Answer {
        let (code, state) = self.arrive().await;
        self.finish(&code, &state).await
    }
}

async fn begin(acl: &Acl, query: &str, change: Value) -> Answer {
    let mut body = json!({"AuthMethod": "people", "RedirectURI": REDIRECT, "ClientNonce": NONCE});
    body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    acl.call("POST", &format!("/v1/acl/oidc/auth-url{query}"), None, Some(body)).await
}

async fn finish(acl: &Acl, query: &str, change: Value) -> Answer {
    let mut body = json!({"AuthMethod": "people", "ClientNonce": NONCE});
    body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    acl.call("POST", &format!("/v1/acl/oidc/callback{query}"), None, Some(body)).await
}

async fn arrive(acl: &Acl, provider: &OpenIdProvider) -> (String, String) {
    let begun = begin(acl, "", json!({})).await;
    assert_eq!(begun.status, 200, "{begun:?}");
    provider.authorize(begun.json()["AuthURL"].as_str().unwrap())
}

#[tokio::test]
async fn a_person_logs_in_and_gets_the_links_of_the_binding_rules() {
    log::keep();
    let world = World::start().await;
    world.method(json!({"OIDCScopes": ["profile", "groups"], "OIDCACRValues": ["mfa"]})).await;
    let rule = json!({
        "AuthMethod": "people", "BindType": "node", "BindName": "n-${value.name}", "Selector": "\"ops\" in list.groups",
    });
    world.acl.make("/v1/acl/binding-rule", rule).await;
    let begun = world.begin(json!({"Meta": {"host": "laptop"}})).await;
    assert_eq!((begun.status, &begun.json()["Issuer"]), (200, &json!(world.provider.url)), "{begun:?}");
    let url = begun.json()["AuthURL"].as_str().unwrap().to_owned();
    assert!(url.contains("&scope=openid+profile+groups&") && url.ends_with("&acr_values=mfa"), "{url}");
    let (code, state) = world.provider.authorize(&url);
    let response = finish(&world.acl, "", json!({"Code": code, "State": state})).await;
    assert_eq!(response.status, 200, "{response:?}");
    let token = response.json();
    assert_eq!(token["ServiceIdentities"], json!([{"ServiceName": "web"}]));
    assert_eq!(token["NodeIdentities"], json!([{"NodeName": "n-alice", "Datacenter": "dc1"}]));
    assert_eq!(token["Description"], "token created via login: {\"host\":\"laptop\"}");
    assert_eq!((&token["AuthMethod"], &token["Local"]), (&json!("people"), &json!(true)));
    let time = |name: &str| token[name].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(time("ExpirationTime").since(time("CreateTime")), Duration::from_hours(1));
    let secret = token["SecretID"].as_str();
    assert_eq!(world.acl.call("GET", "/v1/acl/token/self", secret, None).await.json(), token);

    let exchanges = world.provider.faults.exchanges.lock().clone();
    let fields: Vec<&str> = exchanges[0].keys().map(String::as_str).collect();
    assert_eq!(fields, ["client_id", "code", "code_verifier", "grant_type", "redirect_uri"]);
    assert_eq!((exchanges.len(), exchanges[0]["client_id"].as_str()), (1, CLIENT));
    let metrics = world.acl.metrics.text();
    for operation in ["login.oidc_begin", "login.oidc"] {
        assert!(metrics.contains(&format!("operation=\"{operation}\",code=\"200\"}} 1")), "{operation}: {metrics}");
    }
    // Nothing of the login is in the log, nor are the provider's other tokens.
    let accessor = token["AccessorID"].as_str().unwrap();
    let lines = log::lines();
    let ok = lines.iter().filter(|line| line["fields"]["accessor"] == accessor).count();
    assert_eq!(ok, 1, "acl.login.ok");
    let text = lines.iter().map(Value::to_string).collect::<String>();
    for secret in [&code, &state, &exchanges[0]["code_verifier"], "access-canary", "refresh-canary", NONCE] {
        assert!(!text.contains(secret), "the log has {secret}");
    }

    // It logs out as any token of a login does.
    let out = world.acl.call("POST", "/v1/acl/logout", secret, None).await;
    assert_eq!((out.status, out.text.as_str()), (200, "true"));
}

#[tokio::test]
async fn each_type_of_auth_method_has_its_own_way_to_log_in() {
    let world = World::start().await;
    let bearer = world.acl.log_in("people", &world.acl.proof(&world.provider.key)).await;
    assert!(bearer.status == 400 && bearer.text.contains("run `keyward acl login --oidc`"), "{bearer:?}");
    world.acl.jwt_method("machines", &Key::shared("k")).await;
    let other = begin(&world.acl, "", json!({"AuthMethod": "machines"})).await;
    assert!(other.status == 400 && other.text.contains("is not of the type \"oidc\""), "{other:?}");
    let (code, state) = world.arrive().await;
    let other = finish(&world.acl, "", json!({"AuthMethod": "machines", "Code": code, "State": state})).await;
    assert!(other.status == 400 && other.text.contains("is not of the type \"oidc\""), "{other:?}");
    for name in ["nobody", "a/b", ""] {
        for answer in [
            begin(&world.acl, "", json!({ "AuthMethod": name })).await,
            finish(&world.acl, "", json!({ "AuthMethod": name })).await,
        ] {
            assert_eq!((answer.status, answer.text.contains("ACL not found: auth method")), (403, true), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_method_with_a_client_secret_is_refused_with_what_to_do() {
    let world = World::start().await;
    let mut config = world.provider.config();
    config["OIDCClientSecret"] = json!("hush");
    let method = json!({"Name": "more", "Type": "oidc", "Config": config});
    let refused = world.acl.put("/v1/acl/auth-method", method).await;
    assert!(refused.status == 400 && refused.text.contains("as a public client with PKCE"), "{refused:?}");
    assert!(!refused.text.contains("hush"), "{refused:?}");
    let read = world.acl.get("/v1/acl/auth-method/people").await.json();
    assert_eq!((&read["Type"], &read["Config"]["OIDCClientID"]), (&json!("oidc"), &json!(CLIENT)));
    let list = world.acl.get("/v1/acl/auth-methods").await.json();
    assert_eq!((&list[0]["Type"], list[0].get("Config")), (&json!("oidc"), None));
}

#[tokio::test]
async fn a_login_is_finished_by_another_server_of_the_store_and_after_a_change_of_its_keys() {
    let World { acl, provider } = World::start().await;
    let (code, state) = arrive(&acl, &provider).await;
    let acl = acl.restarted().await;
    let restarted = finish(&acl, "", json!({"Code": code, "State": state})).await;
    assert_eq!(restarted.status, 200, "{restarted:?}");

    let (code, state) = arrive(&acl, &provider).await;
    acl.make("/v1/operator/rekey", json!({"Generate": true})).await;
    let rekeyed = finish(&acl, "", json!({"Code": code, "State": state})).await;
    assert_eq!(rekeyed.status, 200, "{rekeyed:?}");
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_one_server_on_etcd_begins_the_other_finishes() {
    use crate::acl::store::etcd_process::shared;

    let server = shared();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("seal.key");
    let one = Acl::start_with(|options| {
        options.store = keyward_acl::store::StoreOptions::Etcd(server.options());
        options.key_file = Some(key);
    });
    let world = World { acl: Box::pin(one).await, provider: OpenIdProvider::start() };
    world.method(json!({})).await;
    world
        .acl
        .make("/v1/acl/binding-rule", json!({"AuthMethod": "people", "BindType": "service", "BindName": "web"}))
        .await;
    let other = Box::pin(world.acl.start_second()).await;
    let (code, state) = world.arrive().await;
    let finished = finish(&other, "", json!({"Code": code, "State": state})).await;
    assert_eq!(finished.status, 200, "{finished:?}");
}

#[tokio::test]
async fn the_auth_method_is_looked_up_in_the_named_namespace() {
    let world = World::start().await;
    world.acl.make("/v1/namespace", json!({"Name": "team"})).await;
    let method = json!({"Name": "own", "Type": "oidc", "Config": world.provider.config(), "Namespace": "team"});
    world.acl.make("/v1/acl/auth-method", method).await;
    let rule = json!({"AuthMethod": "own", "BindType": "service", "BindName": "web"});
    world.acl.make("/v1/acl/binding-rule?ns=team", rule).await;
    for (query, namespace) in [("?authmethod-ns=team", json!(null)), ("?ns=TEAM", json!(null)), ("", json!("team"))] {
        let begun = begin(&world.acl, query, json!({"AuthMethod": "own", "Namespace": namespace})).await;
        let (code, state) = world.provider.authorize(begun.json()["AuthURL"].as_str().unwrap());
        let body = json!({"AuthMethod": "own", "Namespace": namespace, "Code": code, "State": state});
        let token = finish(&world.acl, query, body).await.json();
        assert_eq!((&token["Namespace"], &token["AuthMethodNamespace"]), (&json!("team"), &json!("team")), "{query}");
    }
    let missing = begin(&world.acl, "", json!({"AuthMethod": "own"})).await;
    assert_eq!(missing.status, 403, "{missing:?}");
}

#[tokio::test]
async fn both_calls_count_as_logins_of_their_source_and_have_the_limits_of_a_login() {
    let acl = Acl::start_with(|options| options.api.login_limit = LoginLimit { burst: 6, per_second: 1 }).await;
    let world = World { acl, provider: OpenIdProvider::start() };
    world.method(json!({})).await;
    for path in ["/v1/acl/oidc/auth-url", "/v1/acl/oidc/callback"] {
        let large = format!("{{\"AuthMethod\": \"{}\"}}", "x".repeat(70_000));
        assert_eq!(world.acl.send("POST", path, &[], large.as_bytes()).await.status, 413, "{path}");
        assert_eq!(world.acl.send("GET", path, &[], b"").await.status, 405, "{path}");
        let unknown = world.acl.send("POST", path, &[], b"{\"Other\": \"hush\"}").await;
        assert!(unknown.status == 400 && unknown.text.contains("unknown field \"Other\""), "{unknown:?}");
    }
    assert_eq!(world.begin(json!({"Meta": {"a": 7}})).await.status, 400);
    let refused = finish(&world.acl, "", json!({"Code": "c", "State": "s"})).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    for limited in [world.begin(json!({})).await, finish(&world.acl, "", json!({})).await] {
        assert_eq!((limited.status, limited.text.starts_with("too many logins")), (429, true), "{limited:?}");
    }
    // A web page cannot begin or finish a login.
    world.acl.clock.suspend(Duration::from_secs(5));
    let page = world.acl.send("POST", "/v1/acl/oidc/auth-url", &[("Origin", "https://evil.example")], b"{}").await;
    assert_eq!(page.status, 403, "{page:?}");
}
