//! Login and logout by stored auth methods, over HTTP.

mod cloud;
mod signatures;
mod sources;

use std::time::Duration;

use keyward_acl::api::LoginLimit;
use keyward_acl::model::timestamp::Timestamp;
use serde_json::{Value, json};

use crate::harness::Acl;
use crate::harness::issuer::Key;
use crate::harness::log;

/// ACL server with an auth method `people` that trusts `key`, and matching claims.
struct World {
    acl: Acl,
    key: Key,
}

impl World {
    async fn start() -> Self {
        let world = Self { acl: Acl::start().await, key: Key::shared("k") };
        world.method(json!({})).await;
        world
    }

    /// Creates or updates the auth method.
    async fn method(&self, change: Value) {
        let mut method = json!({
            "Name": "people", "Type": "jwt",
            "Config": {
                "JWTValidationPubKeys": [self.key.pem()], "BoundIssuer": "i", "BoundAudiences": ["a"],
                "ClaimMappings": {"first_name": "name", "/org/primary": "primary_org"},
                "ListClaimMappings": {"groups": "groups"},
            },
        });
        method.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let known = self.acl.get("/v1/acl/auth-method/people").await.status == 200;
        self.acl.make(if known { "/v1/acl/auth-method/people" } else { "/v1/acl/auth-method" }, method).await;
    }

    async fn rule(&self, kind: &str, name: &str, selector: &str) {
        let rule = json!({"AuthMethod": "people", "BindType": kind, "BindName": name, "Selector": selector});
        self.acl.make("/v1/acl/binding-rule", rule).await;
    }

    fn claims(&self) -> Value {
        let now = Timestamp::from_system_time(self.acl.now()).unix_seconds();
        json!({
            "iss": "i", "aud": "a", "exp": now + 600, "iat": now, "first_name": "Jeff2",
            "org": {"primary": "Engineering"}, "groups": ["foo", "bar"],
        })
    }

    fn jwt(&self) -> String {
        self.key.sign(&self.claims())
    }
}

#[tokio::test]
async fn a_login_creates_a_token_that_names_its_auth_method() {
    let world = World::start().await;
    world.rule("service", "web", "").await;
    let body = json!({"AuthMethod": "people", "BearerToken": world.jwt(), "Meta": {"foo": "bar", "a": "<b>"}});
    let response = world.acl.call("POST", "/v1/acl/login", Some("no-such-token"), Some(body)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let token = response.json();
    assert_eq!(token["Description"], "token created via login: {\"a\":\"<b>\",\"foo\":\"bar\"}");
    assert_eq!((&token["Local"], &token["AuthMethod"]), (&json!(true), &json!("people")));
    assert_eq!(token["ServiceIdentities"], json!([{"ServiceName": "web"}]));
    assert_eq!(token.get("ExpirationTime"), None);
    let read = world.acl.call("GET", "/v1/acl/token/self", token["SecretID"].as_str(), None).await;
    assert_eq!(read.json(), token);
    let plain = world.acl.log_in("people", &world.jwt()).await.json();
    assert_eq!(plain["Description"], "token created via login");
    assert_ne!(plain["SecretID"], token["SecretID"]);

    // It cannot be cloned, nor turned into the token of another method.
    let path = format!("/v1/acl/token/{}", plain["AccessorID"].as_str().unwrap());
    assert_eq!(world.acl.put(&format!("{path}/clone"), json!({})).await.status, 400);
    let mut moved = plain.clone();
    moved["AuthMethod"] = json!("other");
    let moved = world.acl.put(&path, moved).await;
    assert!(moved.status == 400 && moved.text.contains("Cannot change AuthMethod"), "{moved:?}");
}

#[tokio::test]
async fn a_token_gets_the_links_of_the_matching_binding_rules() {
    let world = World::start().await;
    let login = async || world.acl.log_in("people", &world.jwt()).await;
    let denied = login().await;
    assert_eq!((denied.status, denied.text.as_str()), (403, "Permission denied"));
    world.rule("service", "x", "value.name == nobody").await;
    world.rule("role", "no-such-role", "").await;
    assert_eq!(login().await.text, "Permission denied");

    world.rule("service", "test--${value.name}--${value.primary_org}", "value.name == Jeff2").await;
    world.rule("node", "n-${value.name}", "foo in list.groups and value.primary_org matches `^Eng`").await;
    world.rule("templated-policy", "builtin/dns", "list.groups is not empty").await;
    let role = world.acl.make("/v1/acl/role", json!({"Name": "r-jeff2"})).await;
    let policy = world.acl.make("/v1/acl/policy", json!({"Name": "p", "Rules": "acl = \"read\""})).await;
    world.rule("role", "r-${value.name}", "").await;
    world.rule("policy", "p", "").await;
    world.rule("policy", "p", "not value.name is empty").await;
    let token = login().await.json();
    assert_eq!(token["ServiceIdentities"], json!([{"ServiceName": "test--jeff2--engineering"}]));
    assert_eq!(token["NodeIdentities"], json!([{"NodeName": "n-jeff2", "Datacenter": "dc1"}]));
    assert_eq!(token["TemplatedPolicies"], json!([{"TemplateName": "builtin/dns"}]));
    assert_eq!(token["Roles"], json!([{"ID": role["ID"], "Name": "r-jeff2"}]));
    assert_eq!(token["Policies"], json!([{"ID": policy["ID"], "Name": "p"}]));
    let secret = token["SecretID"].as_str();
    assert_eq!(world.acl.call("GET", "/v1/acl/roles", secret, None).await.status, 200);

    // A rule whose bind name cannot be built refuses the login, and the error names the rule.
    world.rule("service", "${value.primary_org}", "").await;
    let mut claims = world.claims();
    claims["org"] = json!({"primary": "R & D"});
    let refused = world.acl.log_in("people", &world.key.sign(&claims)).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.text.contains("r & d\" is not a valid name for this BindType"), "{refused:?}");
}

#[tokio::test]
async fn the_binding_rules_that_nomad_sets_up_tell_services_from_tasks() {
    let world = World::start().await;
    let mappings = json!({
        "nomad_namespace": "nomad_namespace", "nomad_job_id": "nomad_job_id", "nomad_task": "nomad_task",
        "nomad_service": "nomad_service",
    });
    let config = json!({
        "JWTValidationPubKeys": [world.key.pem()], "BoundAudiences": ["a"], "JWTSupportedAlgs": ["RS256"],
        "ClaimMappings": mappings,
    });
    world.method(json!({"Config": config, "NamespaceRules": null})).await;
    world.acl.make("/v1/acl/role", json!({"Name": "nomad-tasks-default"})).await;
    world.rule("service", "${value.nomad_service}", "\"nomad_service\" in value").await;
    world.rule("role", "nomad-tasks-${value.nomad_namespace}", "\"nomad_service\" not in value").await;
    let login = async |name: &str, value: &str| {
        let mut claims = world.claims();
        claims["nomad_namespace"] = json!("default");
        claims[name] = json!(value);
        world.acl.log_in("people", &world.key.sign(&claims)).await.json()
    };
    let service = login("nomad_service", "web").await;
    assert_eq!((&service["ServiceIdentities"], service.get("Roles")), (&json!([{"ServiceName": "web"}]), None));
    let task = login("nomad_task", "app").await;
    assert_eq!((&task["Roles"][0]["Name"], task.get("ServiceIdentities")), (&json!("nomad-tasks-default"), None));
}

#[tokio::test]
async fn a_namespace_rule_puts_the_token_and_its_links_into_another_namespace() {
    let world = World::start().await;
    let rules = json!([
        {"Selector": "value.name == nobody", "BindNamespace": "none"},
        {"Selector": "value.name == Jeff2", "BindNamespace": "team-${value.primary_org}"},
        {"Selector": "value.name == lost", "BindNamespace": "gone"},
    ]);
    world.method(json!({"NamespaceRules": rules, "TokenNameFormat": "${auth_method}/${identity.name}"})).await;
    let read = world.acl.get("/v1/acl/auth-method/people").await.json();
    assert_eq!(
        (&read["NamespaceRules"], &read["TokenNameFormat"]),
        (&rules, &json!("${auth_method}/${identity.name}"))
    );
    world.acl.make("/v1/namespace", json!({"Name": "team-engineering"})).await;
    let role = json!({"Name": "r", "Namespace": "team-engineering"});
    let role = world.acl.make("/v1/acl/role", role).await;
    world.acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    world.rule("role", "r", "").await;
    let token = world.acl.log_in("people", &world.jwt()).await.json();
    assert_eq!((&token["Namespace"], &token["Roles"][0]["ID"]), (&json!("team-engineering"), &role["ID"]));
    assert_eq!((&token["AuthMethod"], &token["AuthMethodNamespace"]), (&json!("people"), &json!("default")));
    assert_eq!(token["Description"], "people/Jeff2");
    let own = world.acl.call("GET", "/v1/acl/token/self", token["SecretID"].as_str(), None).await;
    assert_eq!(own.status, 200, "{own:?}");

    // No rule matches: the namespace of the method. A namespace that is not there: no token.
    let login = async |name: &str| {
        let mut claims = world.claims();
        claims["first_name"] = json!(name);
        world.acl.log_in("people", &world.key.sign(&claims)).await
    };
    assert_eq!(login("other").await.json()["Namespace"], "default");
    let lost = login("lost").await;
    assert_eq!(lost.status, 403, "{lost:?}");
    assert!(lost.text.contains("a namespace rule cannot bind: namespace \"gone\" does not exist"), "{lost:?}");

    // Its tokens end with the method, wherever they are.
    assert_eq!(world.acl.delete("/v1/acl/auth-method/people").await.status, 200);
    let own = world.acl.call("GET", "/v1/acl/token/self", token["SecretID"].as_str(), None).await;
    assert_eq!(own.status, 404, "{own:?}");

    let config = json!({"JWTValidationPubKeys": [world.key.pem()]});
    let inner = json!({
        "Name": "inner", "Type": "jwt", "Config": config, "Namespace": "team-engineering",
        "NamespaceRules": [{"BindNamespace": "default"}],
    });
    let refused = world.acl.put("/v1/acl/auth-method", inner).await;
    assert!(refused.status == 400 && refused.text.contains("only an auth method in the namespace"), "{refused:?}");
}

#[tokio::test]
async fn a_claim_cannot_supply_the_slash_of_a_policy_name() {
    let world = World::start().await;
    world.acl.make("/v1/acl/policy", json!({"Name": "team/a", "Rules": "acl = \"read\""})).await;
    world.rule("policy", "team/${value.name}", "value.name == a").await;
    world.rule("policy", "${value.name}-read-only", "value.name != a").await;
    let login = async |name: &str| {
        let mut claims = world.claims();
        claims["first_name"] = json!(name);
        world.acl.log_in("people", &world.key.sign(&claims)).await
    };
    let refused = login("builtin/global").await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.text.contains("must be in BindName, not in the claim value \"builtin/global\""), "{refused:?}");
    assert_eq!(login("a").await.json()["Policies"][0]["Name"], "team/a");
}

#[tokio::test]
async fn a_letter_beyond_ascii_does_not_become_an_ascii_one() {
    let world = World::start().await;
    world.rule("service", "${value.name}", "").await;
    let login = async |name: &str| {
        let mut claims = world.claims();
        claims["first_name"] = json!(name);
        world.acl.log_in("people", &world.key.sign(&claims)).await
    };
    assert_eq!(login("Kim").await.json()["ServiceIdentities"], json!([{"ServiceName": "kim"}]));
    // U+212A, whose lower-case form is `k`.
    let refused = login("\u{212a}im").await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.text.contains("is not a valid name for this BindType"), "{refused:?}");
}

#[tokio::test]
async fn invalid_jwts_are_refused() {
    let world = World::start().await;
    world.rule("service", "web", "").await;
    let now = Timestamp::from_system_time(world.acl.now()).unix_seconds();
    let check = async |name: &str, value: Value, status: u16, reason: &str| {
        let mut claims = world.claims();
        claims[name] = value;
        let response = world.acl.log_in("people", &world.key.sign(&claims)).await;
        assert_eq!(response.status, status, "{name} {claims} {response:?}");
        assert!(
            status == 200 || response.text.starts_with("Permission denied: ") && response.text.contains(reason),
            "{response:?}"
        );
    };
    check("iss", json!("j"), 403, "issued by a different provider").await;
    check("aud", json!(["b", "c"]), 403, "expected audience \"a\" got [\"b\", \"c\"]").await;
    check("aud", json!("zz"), 403, "expected audience \"a\" got \"zz\"").await;
    check("aud", json!(["b", "a"]), 200, "").await;
    check("exp", json!(now - 61), 403, "token is expired").await;
    check("exp", json!(now - 50), 200, "").await;
    check("nbf", json!(now + 100), 403, "before the nbf").await;
    check("groups", json!({}), 403, "\"groups\" has the wrong type").await;
    check("first_name", Value::Null, 200, "").await;

    let check = async |body: Value, status: u16, reason: &str| {
        let response = world.acl.call("POST", "/v1/acl/login", None, Some(body.clone())).await;
        assert_eq!((response.status, response.text.contains(reason)), (status, true), "{body} {response:?}");
        assert!(!response.text.contains("hush"), "{response:?}");
    };
    let jwt = world.jwt();
    let unknown = "ACL not found: auth method \"nobody\" not found";
    check(json!({"AuthMethod": "nobody", "BearerToken": jwt}), 403, unknown).await;
    check(json!({"AuthMethod": "a/b", "BearerToken": jwt}), 403, "ACL not found").await;
    check(json!({"BearerToken": jwt}), 403, "ACL not found").await;
    check(json!({"AuthMethod": "people"}), 400, "malformed jwt").await;
    check(json!({"AuthMethod": "people", "BearerToken": "hush"}), 400, "malformed jwt").await;
    let start = "Failed to decode request body: ";
    check(json!({"AuthMethod": "people", "BearerToken": ["hush"]}), 400, start).await;
    check(json!({"AuthMethod": "people", "BearerToken": jwt, "Meta": {"a": 7}}), 400, start).await;
    check(json!({"AuthMethod": "people", "BearerToken": jwt, "Other": "hush"}), 400, "unknown field \"Other\"").await;
    let empty = world.acl.send("POST", "/v1/acl/login", &[], b"").await;
    assert_eq!((empty.status, empty.text.as_str()), (400, "Failed to decode request body: EOF"));
    let large = format!("{{\"BearerToken\": \"{}\"}}", "x".repeat(70_000));
    assert_eq!(world.acl.send("POST", "/v1/acl/login", &[], large.as_bytes()).await.status, 413);
    assert_eq!(world.acl.send("PUT", "/v1/acl/login", &[], b"{}").await.status, 405);
    assert_eq!(world.acl.log_in("people", &jwt).await.status, 200);
}

#[tokio::test]
async fn an_auth_method_sets_ttl_and_locality_of_its_tokens() {
    let world = World::start().await;
    world.rule("service", "web", "").await;
    world.method(json!({"MaxTokenTTL": "5m", "TokenLocality": "global"})).await;
    let token = world.acl.log_in("people", &world.jwt()).await.json();
    assert_eq!(token["Local"], false);
    let time = |name: &str| token[name].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert_eq!(time("ExpirationTime").since(time("CreateTime")), Duration::from_mins(5));
    let secret = token["SecretID"].as_str();
    let read = async || world.acl.call("GET", "/v1/acl/token/self", secret, None).await.status;
    assert_eq!(read().await, 200);
    world.acl.clock.set_wall_by(301);
    assert_eq!(read().await, 404);
}

#[tokio::test]
async fn logout_deletes_tokens_of_logins_only() {
    let world = World::start().await;
    world.rule("service", "web", "").await;
    let token = world.acl.log_in("people", &world.jwt()).await.json();
    let secret = token["SecretID"].as_str();
    let log_out = async |token: Option<&str>| world.acl.call("POST", "/v1/acl/logout", token, None).await;
    let out = log_out(secret).await;
    assert_eq!((out.status, out.text.as_str()), (200, "true"));
    let again = log_out(secret).await;
    assert_eq!((again.status, again.text.as_str()), (403, "ACL not found"));
    let accessor = format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap());
    assert_eq!(world.acl.get(&accessor).await.status, 404);
    let nobody = log_out(None).await;
    assert_eq!((nobody.status, nobody.text.as_str()), (401, "Supplied token does not exist"));
    let other = log_out(Some(&world.acl.root)).await;
    assert_eq!((other.status, other.text.as_str()), (403, "Permission denied: token wasn't created via login"));
    assert_eq!(world.acl.get("/v1/acl/roles").await.status, 200);
}

#[tokio::test]
async fn an_auth_method_is_looked_up_in_the_named_namespace() {
    let world = World::start().await;
    world.rule("service", "web", "").await;
    world.acl.make("/v1/namespace", json!({"Name": "Team"})).await;
    let config = json!({"JWTValidationPubKeys": [world.key.pem()], "BoundAudiences": ["a"]});
    let method = json!({"Name": "own", "Type": "jwt", "Config": config, "Namespace": "team"});
    acl_in_team(&world, method).await;
    let login = async |query: &str, headers: &[(&str, &str)], body: Value| {
        let mut login = json!({"AuthMethod": "own", "BearerToken": world.jwt()});
        login.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let path = format!("/v1/acl/login{query}");
        world.acl.send("POST", &path, headers, login.to_string().as_bytes()).await
    };
    let none = json!({});
    for response in [
        login("?authmethod-ns=team", &[], none.clone()).await,
        login("?authmethod-ns=TEAM&ns=default", &[("X-Service-Namespace", "default")], none.clone()).await,
        login("?ns=team", &[], none.clone()).await,
        login("", &[("X-Consul-Namespace", "team")], none.clone()).await,
        login("?ns=default", &[], json!({"Namespace": "team"})).await,
    ] {
        assert_eq!(response.status, 200, "{response:?}");
        let token = response.json();
        let spaces = (&token["Namespace"], &token["AuthMethodNamespace"]);
        assert_eq!(spaces, (&json!("Team"), &json!("Team")));
        assert_eq!(token["ServiceIdentities"], json!([{"ServiceName": "team-web"}]));
    }
    assert_eq!(login("", &[], none.clone()).await.status, 403);
    assert_eq!(login("?ns=*", &[], none.clone()).await.status, 400);

    // Deleting the namespace ends the method's tokens.
    let token = login("?ns=team", &[], none.clone()).await.json();
    assert_eq!(world.acl.delete("/v1/namespace/team").await.status, 200);
    let read = world.acl.call("GET", "/v1/acl/token/self", token["SecretID"].as_str(), None).await;
    assert_eq!(read.status, 404);
    assert_ne!(login("?ns=team", &[], none).await.status, 200);
}

async fn acl_in_team(world: &World, method: Value) {
    world.acl.make("/v1/acl/auth-method", method).await;
    let rule = json!({"AuthMethod": "own", "BindType": "service", "BindName": "team-web"});
    let there = world.acl.put("/v1/acl/binding-rule", rule.clone()).await;
    assert!(there.status == 400 && there.text.contains("cannot find auth method"), "{there:?}");
    world.acl.make("/v1/acl/binding-rule?ns=team", rule).await;
}

#[tokio::test]
async fn logins_of_one_source_are_rate_limited() {
    let limit = LoginLimit { burst: 3, per_second: 1 };
    let acl = Acl::start_with(|options| options.api.login_limit = limit).await;
    let key = Key::shared("k");
    acl.jwt_method("people", &key).await;
    for _ in 0..2 {
        assert_eq!(acl.log_in("people", &acl.proof(&key)).await.status, 200);
    }
    // Failed logins and logins at the Vault API count too.
    assert_eq!(acl.send("POST", "/v1/auth/nowhere/login", &[], b"{}").await.status, 404);
    let refused = acl.log_in("people", &acl.proof(&key)).await;
    assert_eq!((refused.status, &refused.headers["retry-after"]), (429, &"1".parse().unwrap()), "{refused:?}");
    assert!(refused.text.starts_with("too many logins"), "{refused:?}");
    let refused = acl.send("POST", "/v1/auth/nowhere/login", &[], b"{}").await;
    assert!(refused.status == 429 && refused.error().starts_with("too many logins"), "{refused:?}");
    // Other operations are not limited.
    assert_eq!(acl.get("/v1/acl/roles").await.status, 200);
    assert_eq!(acl.call("POST", "/v1/acl/logout", None, None).await.status, 401);
    acl.clock.suspend(Duration::from_secs(1));
    assert_eq!(acl.log_in("people", &acl.proof(&key)).await.status, 200);
}

#[tokio::test]
async fn callers_without_a_token_cannot_write_long_names_to_the_log() {
    log::keep();
    let acl = Acl::start().await;
    let name = "m".repeat(5000);
    assert_eq!(acl.log_in(&name, "a.b.c").await.status, 403);
    let body = json!({"role": "r", "jwt": "a.b.c"});
    assert_eq!(acl.call("POST", &format!("/v1/auth/{name}/login"), None, Some(body)).await.status, 404);
    let lines = log::lines();
    let refused = lines.iter().filter(|line| line["fields"]["event"] == "acl.login.refused");
    let lengths: Vec<usize> = refused.map(|line| line["fields"]["method"].as_str().unwrap().len()).collect();
    assert_eq!(lengths, [300, 300]);
}
