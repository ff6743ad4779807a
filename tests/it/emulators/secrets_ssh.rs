//! The emulated SSH engine: it allows no more than the real one.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_emulators::secrets::{Role, Secrets, SecretsOptions, SshRole};
use keyward_machine::clock::Clock;
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPbPh2DzbqKF5YIGvF1wbTTD0c0+3bZ8vR2FMBssNNje me";

fn roles() -> BTreeMap<String, SshRole> {
    let users = SshRole::for_users("deploy,admin");
    let hosts = SshRole::for_hosts("example.com");
    let roles = [
        ("nothing", SshRole::default()),
        ("users", users.clone()),
        ("any-user", SshRole { allowed_users: "*".to_owned(), default_user: String::new(), ..users.clone() }),
        ("no-user", SshRole { allowed_users: String::new(), ..users.clone() }),
        ("no-default", SshRole { default_user: String::new(), ..users.clone() }),
        ("hosts", hosts.clone()),
        ("bare", SshRole { allow_subdomains: false, ..hosts.clone() }),
        ("below", SshRole { allow_bare_domains: false, ..hosts }),
        ("options", SshRole { allowed_critical_options: "source-address".to_owned(), ..users.clone() }),
        ("extensions", SshRole { allowed_extensions: "*".to_owned(), ..users.clone() }),
        ("ids", SshRole { allow_user_key_ids: true, ..users.clone() }),
        ("short", SshRole { max_ttl: Duration::from_hours(1), ttl: Duration::from_hours(2), ..users }),
    ];
    roles.into_iter().map(|(name, role)| (name.to_owned(), role)).collect()
}

#[tokio::test]
async fn a_request_gets_what_its_role_allows_and_is_refused_in_the_words_of_openbao() {
    let mut tasks = TaskGroup::default();
    let options =
        SecretsOptions { ssh: roles(), ..SecretsOptions::for_anyone(Clock::default(), "dev", Role::default()) };
    let secrets = Secrets::start(options, &mut tasks).unwrap();
    let token = secrets.token(&Role::default());
    let send = async |role: &str, body: &Value| -> Value {
        let request = reqwest::Client::new().post(format!("{}/v1/ssh/sign/{role}", secrets.url()));
        let request = request.header("x-vault-token", token.expose_secret()).json(body);
        request.send().await.unwrap().json().await.unwrap()
    };
    let no_principals = "refusing to issue unsafe, globally-valid certificate with no principals specified; set valid_principals or default_user";
    let cases: [(&str, Value, Result<(), &str>); 28] = [
        ("none", json!({}), Err("Unknown role: none")),
        ("users", json!({ "public_key": "" }), Err("missing public_key")),
        ("users", json!({ "public_key": "ssh-ed25519 AAAA" }), Err("failed to parse public_key as SSH key")),
        ("nothing", json!({}), Err("cert_type 'user' is not allowed by role")),
        ("nothing", json!({ "cert_type": "host" }), Err("cert_type 'host' is not allowed by role")),
        ("users", json!({ "cert_type": "" }), Err("cert_type must be either 'user' or 'host'")),
        ("users", json!({ "cert_type": "host", "valid_principals": "a" }), Err("cert_type 'host' is not allowed")),
        ("users", json!({}), Ok(())),
        ("users", json!({ "valid_principals": "admin,deploy" }), Ok(())),
        ("users", json!({ "valid_principals": "admin,root" }), Err("root is not a valid value for valid_principals")),
        ("users", json!({ "valid_principals": "" }), Err(no_principals)),
        ("users", json!({ "valid_principals": ["admin"] }), Err("error converting input for field")),
        ("any-user", json!({ "valid_principals": "root" }), Ok(())),
        ("no-user", json!({ "valid_principals": "deploy" }), Err("role is not configured to allow any principals")),
        ("no-default", json!({}), Err(no_principals)),
        ("hosts", json!({ "cert_type": "host" }), Err(no_principals)),
        ("hosts", json!({ "cert_type": "host", "valid_principals": "example.com,a.example.com" }), Ok(())),
        ("hosts", json!({ "cert_type": "host", "valid_principals": "badexample.com" }), Err("badexample.com is not")),
        ("bare", json!({ "cert_type": "host", "valid_principals": "a.example.com" }), Err("a.example.com is not")),
        ("below", json!({ "cert_type": "host", "valid_principals": "example.com" }), Err("example.com is not")),
        ("users", json!({ "key_id": "me" }), Err("setting key_id is not allowed by role")),
        ("ids", json!({ "key_id": "me" }), Ok(())),
        (
            "users",
            json!({ "extensions": { "permit-x11": "" } }),
            Err("extensions [permit-x11] are not on allowed list"),
        ),
        ("users", json!({ "extensions": "permit-pty" }), Err("error converting input for field")),
        ("extensions", json!({ "extensions": { "login@example.com": "me" } }), Ok(())),
        (
            "options",
            json!({ "critical_options": { "force-command": "x" } }),
            Err("critical options not on allowed list"),
        ),
        ("short", json!({}), Ok(())),
        ("short", json!({ "ttl": "2h" }), Err("ttl is larger than maximum allowed 3600")),
    ];
    for (role, mut body, expected) in cases {
        if body.get("public_key").is_none() {
            body["public_key"] = KEY.into();
        }
        let answer = send(role, &body).await;
        match expected {
            Ok(()) => assert!(answer["data"]["signed_key"].is_string(), "{role} {body}: {answer}"),
            Err(text) => {
                let error = answer["errors"][0].as_str().unwrap_or_default();
                assert!(error.contains(text), "{role} {body}: {answer}");
            }
        }
    }
    // The name of the token stands in the log of an SSH server, as from the real one.
    let answer = send("users", &json!({ "public_key": KEY })).await;
    let certificate = answer["data"]["signed_key"].as_str().unwrap().split(' ').nth(1).unwrap().trim();
    let certificate = String::from_utf8_lossy(&STANDARD.decode(certificate).unwrap()).into_owned();
    assert!(certificate.contains("vault-token-"), "{certificate}");
    let public = reqwest::get(format!("{}/v1/ssh/public_key", secrets.url())).await.unwrap().text().await.unwrap();
    assert!(public.starts_with("ssh-ed25519 "), "it needs no token: {public}");
}
