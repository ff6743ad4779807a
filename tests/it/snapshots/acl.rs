//! The ACL server's response to one call of each operation, and to some that it refuses: status, headers and body.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keyward_acl::model::azure_identity::{BoundClaims, IssuerConfig};
use keyward_acl::service::issuer_keys::{self, CaSource, KeyDocument};
use keyward_acl::service::login::{LoginRoleOptions, MethodOptions, TokenMethodOptions};
use serde_json::{Value, json};

use super::Transcript;
use super::redact::Redactions;
use crate::harness::issuer::{AUDIENCE, Issuer, Key, PRINCIPAL};
use crate::harness::openid_provider::{OpenIdProvider, REDIRECT};
use crate::harness::{Acl, Answer};

/// The auth method `cloud` of the configuration, for logins by Vault's API.
fn configured_method(issuer: &Issuer) -> MethodOptions {
    let bounds = BoundClaims { principals: vec![PRINCIPAL.to_owned()], ..BoundClaims::default() };
    let role = LoginRoleOptions { bounds, policies: vec!["machine".to_owned()], ttl: Duration::from_mins(10) };
    MethodOptions::Azure(TokenMethodOptions {
        trust: IssuerConfig { issuer: issuer.url.clone(), audience: AUDIENCE.to_owned() },
        keys: issuer_keys::IssuerKeyOptions {
            source: KeyDocument::Jwks(format!("{}keys", issuer.url).parse().unwrap()),
            ca_certificates: CaSource::System,
        },
        roles: BTreeMap::from([("web".to_owned(), role)]),
    })
}

fn redactions(issuer: &Issuer, provider: &OpenIdProvider) -> Redactions {
    Redactions::default()
        .text(&issuer.url, "http://ISSUER/")
        .text(&provider.url, "http://PROVIDER")
        .pattern(r"state=[A-Za-z0-9_-]+", "state=STATE")
        .pattern(r#"("State":")[A-Za-z0-9_-]+"#, "${1}STATE")
        .pattern(r"code_challenge=[A-Za-z0-9_-]{43}", "code_challenge=CHALLENGE")
        .pattern(r#"-----BEGIN PUBLIC KEY-----[^"]*"#, "PUBLIC KEY")
        .pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME")
        .text(env!("CARGO_PKG_VERSION"), "VERSION")
        .pattern(r#"("ResolvedByAgent": ")[^"]*"#, "${1}HOST")
        .pattern(r#"("KeyID": ")[^"]*"#, "${1}KEY")
        .pattern(r#"("(creation_time|ttl)":)[0-9]+"#, "${1}NUMBER")
        .pattern(r#"("Hash": ")[A-Za-z0-9+/]{43}=""#, r#"${1}HASH""#)
        .numbered(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID")
}

/// The calls of one server and their responses.
struct Calls {
    acl: Acl,
    transcript: Transcript,
}

impl Calls {
    /// Makes a call with this token, or none; adds it and its response.
    async fn call_as(&mut self, token: Option<&str>, method: &str, path: &str, body: Option<Value>) -> Answer {
        // Laid out for people, so that a diff of the snapshot can be read.
        let query = if path.contains('?') { "&pretty" } else { "?pretty" };
        let request = body.as_ref().map(|body| format!(" {body}")).unwrap_or_default();
        let response = self.acl.call(method, &format!("{path}{query}"), token, body).await;
        let caller = if token.is_none() { " (no token)" } else { "" };
        let text = format!("{}\n{}\n{}", response.status, headers(&response), in_order_of_creation(&response.text));
        self.transcript.add(&format!("{method} {path}{request}{caller}"), &text);
        response
    }

    /// The same as the first token, which may do everything.
    async fn call(&mut self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let root = self.acl.root.clone();
        self.call_as(Some(&root), method, path, body).await
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.call("GET", path, None).await
    }

    async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.call("PUT", path, Some(body)).await
    }

    async fn delete(&mut self, path: &str) -> Answer {
        self.call("DELETE", path, None).await
    }
}

/// A list as text with its entries in the order in which they were made: the server's is that of their random ids. Other texts
/// stay as they are.
fn in_order_of_creation(text: &str) -> String {
    const START: &str = "[\n    {\n";
    const BETWEEN: &str = "\n    },\n    {\n";
    const END: &str = "\n    }\n]\n";
    let Some(entries) = text.strip_prefix(START).and_then(|text| text.strip_suffix(END)) else {
        return text.to_owned();
    };
    let mut entries: Vec<&str> = entries.split(BETWEEN).collect();
    entries.sort_by_key(|entry| {
        let line = |start: &str| entry.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
        (line("\"CreateIndex\"").len(), line("\"CreateIndex\""), line("\"Name\""))
    });
    format!("{START}{}{END}", entries.join(BETWEEN))
}

/// The headers in the order of their names, without those with times and lengths. Those of the service under both of their
/// names are one line.
fn headers(response: &Answer) -> String {
    let mut lines = BTreeSet::new();
    for (name, value) in &response.headers {
        let both = name.as_str().strip_prefix("x-consul-").or_else(|| name.as_str().strip_prefix("x-service-"));
        let same = |name: &str| {
            let other = |start: &str| response.headers.get(format!("x-{start}-{name}"));
            other("consul") == other("service")
        };
        let name = match both {
            Some(name) if same(name) => format!("x-{{consul,service}}-{name}"),
            _ => name.to_string(),
        };
        if name != "date" && name != "content-length" {
            lines.insert(format!("{name}: {}\n", value.to_str().unwrap()));
        }
    }
    lines.into_iter().collect()
}

fn field(response: &Answer, name: &str) -> String {
    response.json()[name].as_str().unwrap().to_owned()
}

async fn policies_and_roles(calls: &mut Calls) {
    let policy = json!({"Name": "web", "Description": "of the web", "Rules": "service \"web\" { policy = \"write\" }"});
    let policy = field(&calls.put("/v1/acl/policy", policy).await, "ID");
    let path = format!("/v1/acl/policy/{policy}");
    calls.get(&path).await;
    calls.get("/v1/acl/policy/name/web").await;
    calls.put(&path, json!({"Name": "web", "Rules": "service \"web\" { policy = \"read\" }"})).await;
    calls.get("/v1/acl/policies").await;

    let role = json!({"Name": "web", "Policies": [{"ID": policy}], "ServiceIdentities": [{"ServiceName": "web"}]});
    let role = field(&calls.put("/v1/acl/role", role).await, "ID");
    let path = format!("/v1/acl/role/{role}");
    calls.get(&path).await;
    calls.get("/v1/acl/role/name/web").await;
    calls.put(&path, json!({"Name": "web", "Policies": [{"Name": "web"}], "Description": "more"})).await;
    calls.get("/v1/acl/roles").await;
}

async fn tokens(calls: &mut Calls) {
    let token = json!({"Description": "web", "Roles": [{"Name": "web"}], "Policies": [{"Name": "web"}], "ExpirationTTL": "1h",
        "TemplatedPolicies": [{"TemplateName": "builtin/service", "TemplateVariables": {"Name": "api"}}]});
    let made = calls.put("/v1/acl/token", token).await;
    let (accessor, secret) = (field(&made, "AccessorID"), field(&made, "SecretID"));
    let path = format!("/v1/acl/token/{accessor}");
    calls.get(&path).await;
    calls.get(&format!("{path}?expanded=true")).await;
    calls.put(&path, json!({"Description": "changed", "Policies": [{"Name": "web"}]})).await;
    calls.call_as(Some(&secret), "GET", "/v1/acl/token/self", None).await;
    let copy = field(&calls.put(&format!("{path}/clone"), json!({"Description": "copy"})).await, "AccessorID");
    calls.delete(&format!("/v1/acl/token/{copy}")).await;
    calls.get("/v1/acl/tokens").await;
    let questions = json!([{"Resource": "service", "Segment": "web", "Access": "read"},
        {"Resource": "service", "Segment": "web", "Access": "write"}]);
    calls.call_as(Some(&secret), "POST", "/v1/internal/acl/authorize", Some(questions.clone())).await;
    calls.call_as(Some(&secret), "POST", "/v1/acl/token/self/explain", Some(questions)).await;
    // A request that this token is denied.
    calls.call_as(Some(&secret), "GET", "/v1/acl/roles", None).await;
}

async fn logins(calls: &mut Calls, issuer: &Issuer) {
    let key = Key::shared("k");
    let config = json!({"JWTValidationPubKeys": [key.pem()], "BoundIssuer": "i", "ClaimMappings": {"name": "name"}});
    let method = json!({"Name": "people", "Type": "jwt", "MaxTokenTTL": "5m", "Config": config});
    calls.put("/v1/acl/auth-method", method).await;
    calls.get("/v1/acl/auth-method/people").await;
    let config = json!({"JWTValidationPubKeys": [key.pem()], "ClaimMappings": {"name": "name"}});
    calls.put("/v1/acl/auth-method/people", json!({"Type": "jwt", "Description": "all", "Config": config})).await;
    calls.get("/v1/acl/auth-methods").await;
    let rule = json!({"AuthMethod": "people", "BindType": "service", "BindName": "${value.name}", "Selector": "value.name != \"\""});
    let rule = field(&calls.put("/v1/acl/binding-rule", rule).await, "ID");
    let path = format!("/v1/acl/binding-rule/{rule}");
    calls.get(&path).await;
    calls.put(&path, json!({"AuthMethod": "people", "BindType": "role", "BindName": "web"})).await;
    calls.get("/v1/acl/binding-rules?authmethod=people").await;

    let proof = calls.acl.proof(&key);
    calls.transcript.redact(&proof, "PROOF");
    let login = json!({"AuthMethod": "people", "BearerToken": proof, "Meta": {"host": "a"}});
    let secret = field(&calls.call_as(None, "POST", "/v1/acl/login", Some(login)).await, "SecretID");
    let wrong = json!({"AuthMethod": "people", "BearerToken": "a.b.c"});
    calls.call_as(None, "POST", "/v1/acl/login", Some(wrong)).await;
    calls.call_as(Some(&secret), "POST", "/v1/acl/logout", None).await;

    // The same by Vault's API.
    let proof = issuer.key.sign(&issuer.claims(calls.acl.now()));
    calls.transcript.redact(&proof, "PROOF");
    let login = json!({"role": "web", "jwt": proof});
    let response = calls.call_as(None, "POST", "/v1/auth/cloud/login", Some(login)).await;
    let secret = response.secret();
    calls.call_as(None, "POST", "/v1/auth/cloud/login", Some(json!({"role": "none", "jwt": proof}))).await;
    calls.call_as(Some(&secret), "GET", "/v1/auth/token/lookup-self", None).await;
    calls.call_as(Some(&secret), "POST", "/v1/auth/token/renew-self", Some(json!({}))).await;
    calls.call_as(Some(&secret), "POST", "/v1/auth/token/revoke-self", None).await;
    calls.call_as(Some(&secret), "GET", "/v1/auth/token/lookup-self", None).await;
    calls.call_as(None, "GET", "/v1/sys/health", None).await;

    calls.delete(&path).await;
    calls.delete("/v1/acl/auth-method/people").await;
}

async fn oidc_logins(calls: &mut Calls, provider: &OpenIdProvider) {
    let method = json!({"Name": "staff", "Type": "oidc", "MaxTokenTTL": "8h", "Config": provider.config()});
    calls.put("/v1/acl/auth-method", method).await;
    calls.put("/v1/acl/binding-rule", json!({"AuthMethod": "staff", "BindType": "role", "BindName": "web"})).await;
    let nonce = "a5d2c4e0-9f1b-4b1e-8d06-2f6a9c1be7f3";
    let begin = json!({"AuthMethod": "staff", "ClientNonce": nonce, "RedirectURI": REDIRECT});
    let begun = calls.call_as(None, "POST", "/v1/acl/oidc/auth-url", Some(begin)).await;
    let (code, state) = provider.authorize(begun.json()["AuthURL"].as_str().unwrap());
    let elsewhere = json!({"AuthMethod": "staff", "ClientNonce": nonce, "RedirectURI": "https://elsewhere.example/"});
    calls.call_as(None, "POST", "/v1/acl/oidc/auth-url", Some(elsewhere)).await;
    let finish = json!({"AuthMethod": "staff", "ClientNonce": nonce, "Code": code, "State": state});
    calls.call_as(None, "POST", "/v1/acl/oidc/callback", Some(finish.clone())).await;
    calls.call_as(None, "POST", "/v1/acl/oidc/callback", Some(finish)).await;
    calls.delete("/v1/acl/auth-method/staff").await;
}

async fn namespaces(calls: &mut Calls) {
    calls.put("/v1/namespace", json!({"Name": "team", "Description": "a team"})).await;
    calls.get("/v1/namespace/team").await;
    calls.put("/v1/namespace/team", json!({"Description": "the team"})).await;
    calls.get("/v1/namespaces").await;
    calls.delete("/v1/namespace/team").await;
}

async fn templated_policies(calls: &mut Calls) {
    calls.get("/v1/acl/templated-policies").await;
    calls.get("/v1/acl/templated-policy/name/builtin/service").await;
    calls.call("POST", "/v1/acl/templated-policy/preview/builtin/service", Some(json!({"Name": "api"}))).await;
}

async fn refusals(calls: &mut Calls) {
    let nobody = "11111111-1111-1111-1111-111111111111";
    calls.call_as(None, "GET", "/v1/acl/tokens", None).await;
    calls.call_as(Some(nobody), "GET", "/v1/acl/token/self", None).await;
    for path in ["token", "role", "policy", "binding-rule"] {
        calls.get(&format!("/v1/acl/{path}/{nobody}")).await;
    }
    for path in ["acl/role/name/none", "acl/policy/name/none", "acl/auth-method/none", "namespace/none", "none"] {
        calls.get(&format!("/v1/{path}")).await;
    }
    calls.call("POST", "/v1/acl/tokens", None).await;
    calls.put("/v1/acl/policy", json!({"Name": "web"})).await;
    calls.put("/v1/acl/policy", json!({"Name": "a b"})).await;
    calls.put("/v1/acl/policy", json!({"Name": "broken", "Rules": "service \"web\" {"})).await;
    calls.put("/v1/acl/role", json!({"Name": "other", "Colour": "green"})).await;
    calls.put("/v1/acl/role", json!({"Name": "other", "Policies": [{"Name": "none"}]})).await;
    calls.put("/v1/acl/token", json!({"ExpirationTTL": "1s"})).await;
    calls.put("/v1/acl/auth-method", json!({"Name": "x", "Type": "kerberos"})).await;
    calls.put("/v1/acl/binding-rule", json!({"AuthMethod": "none", "BindType": "service", "BindName": "x"})).await;
    calls.put("/v1/acl/bootstrap", json!({})).await;
}

#[tokio::test]
async fn answers_to_each_operation() {
    let issuer = Issuer::start();
    let provider = OpenIdProvider::start();
    let acl = Acl::start_with(|options| {
        options.methods.insert("cloud".to_owned(), configured_method(&issuer));
    })
    .await;
    let mut calls = Calls { transcript: Transcript::new(redactions(&issuer, &provider)), acl };
    policies_and_roles(&mut calls).await;
    tokens(&mut calls).await;
    logins(&mut calls, &issuer).await;
    oidc_logins(&mut calls, &provider).await;
    templated_policies(&mut calls).await;
    refusals(&mut calls).await;
    for path in ["role", "policy"] {
        let id = field(&calls.acl.get(&format!("/v1/acl/{path}/name/web")).await, "ID");
        calls.delete(&format!("/v1/acl/{path}/{id}")).await;
    }
    calls.get("/v1/operator/verify").await;
    calls.put("/v1/operator/rekey", json!({"Generate": true})).await;

    let snapshot = calls.acl.snapshot().await;
    let head = snapshot.split(|byte| *byte == b'\n').next().unwrap();
    calls.transcript.add("GET /v1/snapshot, the first line", &String::from_utf8_lossy(head));
    let restored = calls.acl.restore(&calls.acl.root, &snapshot).await;
    calls.transcript.add("PUT /v1/snapshot", &format!("{}\n\n{}", restored.status, restored.text));

    // Last, as a namespace's records are deleted after the response.
    namespaces(&mut calls).await;

    // Each operation is among the calls above: those that were not would lack here.
    let metrics = calls.acl.metrics.text();
    let counted: BTreeSet<_> = metrics.lines().filter(|line| line.contains("operation=")).collect();
    let counted: Vec<String> = counted.into_iter().map(|line| format!("{line}\n")).collect();
    calls.transcript.add("requests by operation and status", &counted.concat());
    calls.transcript.compare("acl");
}
