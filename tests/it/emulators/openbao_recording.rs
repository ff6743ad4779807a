//! Recorded answers of a real OpenBao, compared with those of the emulated one: each call is sent in the recorded order, with the
//! tokens and ids of the emulator in place of the recorded ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method};
use keyward_emulators::secrets::{
    AppRoleMethod, CertificateRole, JwtBounds, LoginMethod, Role, Secrets, SecretsOptions, SshRole,
};
use keyward_machine::clock::{Clock, TestClock};
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};

use crate::harness::recording::{RecordedCall, recorded_calls};

/// Calls whose answers the emulator does not have, with the reason.
const DIFFERENT: [(&str, &str); 12] = [
    ("mounts", "its mounts are fixed"),
    ("pki root", "its CA is fixed"),
    ("ssh ca", "its CA is fixed"),
    ("ssh issue", "it signs keys, and makes none"),
    ("transit encrypt", "it has no engine for encryption"),
    ("identity oidc token", "it issues no identity tokens"),
    ("oidc token without an entity", "it issues no identity tokens"),
    ("jwt not configured", "its auth methods are configured when it starts"),
    ("jwt config bad", "its auth methods are configured when it starts"),
    ("namespace create", "it has every namespace"),
    ("in a namespace that is not there", "it has every namespace"),
    ("token of the root in a namespace", "its tokens are of one namespace"),
];

/// Fields whose texts or numbers belong to one server, one time or one random choice. Their types and forms are compared.
const OWN: [&str; 34] = [
    "accessor",
    "ca_chain",
    "certificate",
    "client_id",
    "client_token",
    "cluster_id",
    "cluster_name",
    "created_time",
    "creation_time",
    "deletion_time",
    "description",
    "entity_id",
    "expiration",
    "expire_time",
    "id",
    "issue_time",
    "issuer_id",
    "issuing_ca",
    "last_renewal",
    "last_renewal_time",
    "lease_id",
    "not_before",
    "private_key",
    "request_id",
    "running_plugin_version",
    "secret_id",
    "secret_id_accessor",
    "serial_number",
    "server_time_utc",
    "signed_key",
    "token",
    "updated_time",
    "uuid",
    "wrapped_accessor",
];

/// Fields that count down: a few seconds less are the same.
const COUNTED_DOWN: [&str; 2] = ["lease_duration", "ttl"];

const OTHER_LEASE: &str = "pki/issue/leased/3fhBDTASg6Oj3SkYZ6uWuWQG";

struct Replay {
    secrets: Secrets,
    http: reqwest::Client,
    root: String,
    /// Texts of this server by the recorded ones.
    texts: BTreeMap<String, String>,
    /// Tokens by the name of the call that they are for.
    tokens: BTreeMap<&'static str, String>,
    _tasks: TaskGroup,
}

fn options(calls: &[RecordedCall]) -> SecretsOptions {
    let clock = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_896_159)));
    let role = || Role {
        policies: vec!["app".to_owned(), "default".to_owned()],
        ttl: Duration::from_mins(10),
        ..Role::default()
    };
    let texts = |name: &str, field: &str| {
        let call = calls.iter().find(|call| call.name == name).unwrap();
        SecretString::from(call.body[field].as_str().unwrap())
    };
    let good =
        ["jwt login", "jwt expired", "jwt not yet valid", "jwt wrong audience", "jwt wrong issuer", "jwt wrong role"];
    let jwt = LoginMethod::Jwt {
        believed: good.map(|name| texts(name, "jwt")).to_vec(),
        roles: BTreeMap::from([("web".to_owned(), role())]),
        bounds: JwtBounds { issuer: "https://issuer.example".to_owned(), audiences: vec!["aud".to_owned()] },
    };
    let approle = LoginMethod::AppRole(AppRoleMethod {
        name: "web".to_owned(),
        role_id: texts("approle login", "role_id"),
        secret_ids: vec![SecretString::from("another")],
        secret_id_ttl: Duration::from_hours(1),
        role: role(),
    });
    let users = BTreeMap::from([("me".to_owned(), (SecretString::from("p"), role()))]);
    let methods = [("jwt", jwt), ("approle", approle), ("userpass", LoginMethod::UserPass { users })];
    let paths = ["read secret/*", "read kv/*", "pki/*", "ssh/*", "transit/*", "identity/*", "auth/approle/*"];
    SecretsOptions {
        methods: methods.map(|(mount, method)| (mount.to_owned(), method)).into(),
        policies: BTreeMap::from([("app".to_owned(), paths.map(str::to_owned).to_vec())]),
        certificates: BTreeMap::from([
            ("web".to_owned(), CertificateRole::default()),
            ("leased".to_owned(), CertificateRole { generate_lease: true }),
        ]),
        ssh: BTreeMap::from([("host".to_owned(), SshRole::for_users("me"))]),
        ..SecretsOptions::for_anyone(clock, "dev", Role::default())
    }
}

impl Replay {
    async fn start(calls: &[RecordedCall]) -> Self {
        let mut tasks = TaskGroup::default();
        let secrets = Secrets::start(options(calls), &mut tasks).unwrap();
        let token = |policy: &str| {
            let role = Role {
                policies: vec![policy.to_owned()],
                ttl: Duration::ZERO,
                max_ttl: None,
                renewable: false,
                ..Role::default()
            };
            secrets.token(&role).expose_secret().to_owned()
        };
        let (root, revoked) = (token("root"), token("app"));
        let tokens = BTreeMap::from([("revoked", revoked)]);
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let replay = Self { secrets, http, root, texts: BTreeMap::new(), tokens, _tasks: tasks };
        // The recording leaves out how its server was set up.
        replay.put("kv/plain", &json!({ "user": "me" })).await;
        replay.send("DELETE", "kv/example", "root", &json!({}), &Value::Null).await;
        replay.send("DELETE", "secret/metadata/example", "root", &json!({}), &Value::Null).await;
        replay.send("PUT", "auth/token/revoke-self", &replay.tokens["revoked"], &json!({}), &Value::Null).await;
        replay
    }

    async fn put(&self, path: &str, value: &Value) {
        self.send("POST", path, "root", &json!({}), value).await;
    }

    /// Sends a call with this server's texts; returns status, headers and body.
    async fn send(
        &self,
        method: &str,
        path: &str,
        token: &str,
        headers: &Value,
        body: &Value,
    ) -> (u16, HeaderMap, String) {
        let url = format!("{}/v1/{}", self.secrets.url(), self.translate(path).replace("kv1", "kv"));
        let mut request = self.http.request(Method::from_bytes(method.as_bytes()).unwrap(), url);
        for (name, value) in headers.as_object().unwrap() {
            request = request.header(name, value.as_str().unwrap());
        }
        let token = if token == "root" { &self.root } else { token };
        if !token.is_empty() {
            request = request.header("x-vault-token", token);
        }
        let request = match body {
            Value::Null => request,
            Value::String(text) => request.body(text.clone()),
            body => request.body(self.translate(&body.to_string())),
        };
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        (status, headers, response.text().await.unwrap())
    }

    fn translate(&self, text: &str) -> String {
        self.texts.iter().fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs.as_str(), ours))
    }

    /// Returns the token of a call: the recording says only whose it was.
    fn token(&self, call: &RecordedCall) -> String {
        let of =
            |name: &str| self.tokens.get(name).unwrap_or_else(|| panic!("{}: no token of {name}", call.name)).clone();
        match (call.token.as_str(), call.name.as_str()) {
            ("none", _) => String::new(),
            ("root", _) => "root".to_owned(),
            (_, "batch lookup-self" | "batch renew-self" | "batch revoke-self") => of("batch token create"),
            (_, "unwrap" | "unwrap again") => of("wrapped token create"),
            (_, name) if name.contains("garbage") => "s.garbage".to_owned(),
            (_, "revoked token") => of("revoked"),
            (_, "identity oidc token") => of("userpass login"),
            (_, "revoke-self" | "used after revoke-self") => of("approle login"),
            _ => of("token create"),
        }
    }

    /// Keeps the token of an answer, and its ids by the recorded ones.
    fn learn(&mut self, call: &RecordedCall, recorded: &Value, found: &Value) {
        if call.name == "pki issue with a lease" {
            // The calls about a lease were recorded with another one of this role.
            self.texts.insert(OTHER_LEASE.to_owned(), found["lease_id"].as_str().unwrap().to_owned());
        }
        let names = ["token create", "batch token create", "wrapped token create", "userpass login", "approle login"];
        let token = found.pointer("/auth/client_token").or_else(|| found.pointer("/wrap_info/token"));
        if let (Some(name), Some(token)) = (names.into_iter().find(|name| *name == call.name), token) {
            self.tokens.insert(name, token.as_str().unwrap().to_owned());
        }
        let ids = ["/auth/client_token", "/auth/accessor", "/wrap_info/token", "/lease_id", "/data/secret_id"];
        for at in ids {
            if let (Some(Value::String(theirs)), Some(Value::String(ours))) = (recorded.pointer(at), found.pointer(at))
                && !theirs.is_empty()
            {
                self.texts.insert(theirs.clone(), ours.clone());
            }
        }
    }
}

/// Form of a text that belongs to one server: the labels of PEM, a time, or a text that is empty or not.
fn form(text: &str) -> String {
    if text.contains("-----BEGIN") {
        let labels: Vec<&str> = text.split("-----").skip(1).step_by(2).collect();
        let ends = if text.ends_with('\n') { " and a line break" } else { "" };
        return labels.join(", ") + ends;
    }
    let is_date = text.get(..10).is_some_and(|date| date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'));
    let is_time = is_date && text.len() > 18 && text.ends_with('Z') && text.as_bytes()[10] == b'T';
    let id = text.rsplit_once('/').map_or("", |(path, _)| path).strip_prefix("pki/").unwrap_or_default();
    format!("{}{id}{}", if is_time { "time" } else { "text" }, if text.is_empty() { ", empty" } else { "" })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Notes what differs. `field` is the nearest field's name.
fn compare(at: &str, field: &str, recorded: &Value, found: &Value, differences: &mut Vec<String>) {
    match (recorded, found) {
        (Value::Object(recorded), Value::Object(found)) => {
            let names = |fields: &serde_json::Map<String, Value>| fields.keys().cloned().collect::<BTreeSet<_>>();
            for name in names(recorded).symmetric_difference(&names(found)) {
                differences.push(format!("{at}.{name} is only in one"));
            }
            for (name, recorded) in recorded {
                if let Some(found) = found.get(name) {
                    compare(&format!("{at}.{name}"), name, recorded, found, differences);
                }
            }
        }
        (Value::Array(recorded), Value::Array(found)) if recorded.len() == found.len() => {
            for (recorded, found) in recorded.iter().zip(found) {
                compare(at, field, recorded, found, differences);
            }
        }
        (Value::String(recorded), Value::String(found))
            if OWN.contains(&field) || (field, at) == ("version", ".version") =>
        {
            if form(recorded) != form(found) {
                differences.push(format!("{at}: {} instead of {}", form(found), form(recorded)));
            }
        }
        (Value::Number(_), Value::Number(_)) if OWN.contains(&field) => {}
        (Value::Number(recorded), Value::Number(found)) if COUNTED_DOWN.contains(&field) => {
            let far = recorded.as_f64().unwrap() - found.as_f64().unwrap();
            if far.abs() > 5.0 {
                differences.push(format!("{at}: {found} instead of {recorded}"));
            }
        }
        (recorded, found) if recorded == found => {}
        (recorded, found) => {
            let (recorded, found) = (format!("{} {recorded}", kind(recorded)), format!("{} {found}", kind(found)));
            differences.push(format!("{at}: {found:.300} instead of {recorded:.300}"));
        }
    }
}

/// Notes what differs in status, headers, framing and body.
fn compare_answers(call: &RecordedCall, (status, headers, body): &(u16, HeaderMap, String)) -> Vec<String> {
    let mut differences = Vec::new();
    let mut check = |name: &str, recorded: &str, found: &str| {
        if recorded != found {
            differences.push(format!("{name}: {found:?} instead of {recorded:?}"));
        }
    };
    check("status", &call.status.to_string(), &status.to_string());
    let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
    for name in ["content-type", "cache-control", "strict-transport-security", "transfer-encoding"] {
        check(name, call.header(name), header(name));
    }
    let has_length = |length: &str| if length.is_empty() { "none" } else { "some" };
    check("content-length", has_length(call.header("content-length")), has_length(header("content-length")));
    check("line break", &call.response.ends_with('\n').to_string(), &body.ends_with('\n').to_string());
    match (serde_json::from_str(&call.response.replace("kv1/", "kv/")), serde_json::from_str(body)) {
        (Ok(recorded), Ok(found)) => compare("", "", &recorded, &found, &mut differences),
        _ => check("body", &form(&call.response), &form(body)),
    }
    differences
}

#[tokio::test]
async fn the_emulated_vault_answers_as_a_recorded_openbao() {
    let calls = recorded_calls();
    assert_eq!(calls.len(), 115);
    let mut replay = Replay::start(&calls).await;
    let mut failures = Vec::new();
    for call in &calls {
        if call.name == "kv1 read of 5000 bytes" {
            replay.put("kv/big", &json!({ "v": "x".repeat(5000) })).await;
        }
        let answer = replay.send(&call.method, &call.path, &replay.token(call), &call.headers, &call.body).await;
        let differences = compare_answers(call, &answer);
        match DIFFERENT.iter().find(|(name, _)| *name == call.name) {
            Some((_, reason)) if differences.is_empty() => {
                failures.push(format!("{}: is the same now, although {reason}; delete its row", call.name));
            }
            None if !differences.is_empty() => failures.push(format!("{}: {}", call.name, differences.join("\n    "))),
            _ => {}
        }
        let (recorded, found) = (serde_json::from_str(&call.response), serde_json::from_str(&answer.2));
        if let (Ok(recorded), Ok(found)) = (recorded, found) {
            replay.learn(call, &recorded, &found);
        }
    }
    for (name, _) in DIFFERENT {
        assert!(calls.iter().any(|call| call.name == name), "the recording has no call {name}");
    }
    assert!(failures.is_empty(), "{} calls differ:\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test]
async fn numbers_and_texts_of_a_secret_are_written_as_by_the_recorded_server() {
    let calls = recorded_calls();
    let replay = Replay::start(&calls).await;
    let value = |text: &str| {
        let start = text.find("\"data\":{\"data\":").unwrap();
        text[start..text.find(",\"metadata\"").unwrap()].to_owned()
    };
    let call = |name: &str| calls.iter().find(|call| call.name == name).unwrap();
    let write = call("kv2 write");
    replay.send("POST", &write.path, "root", &json!({}), &write.body).await;
    let (_, _, body) = replay.send("GET", &write.path, "root", &json!({}), &Value::Null).await;
    assert_eq!(value(&body), value(&call("kv2 read").response));
}
