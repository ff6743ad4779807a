//! Key-value stores of the emulated Vault over HTTP.

use std::time::Duration;

use http::Method;
use keyward_emulators::secrets::{Role, Secrets, SecretsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};

#[tokio::test]
async fn a_secret_without_versions_has_the_default_lease_duration_or_its_own_and_no_lease() {
    let mut tasks = TaskGroup::default();
    let secrets =
        Secrets::start(SecretsOptions::for_anyone(Clock::System, "dev", Role::default()), &mut tasks).unwrap();
    let token = secrets.token(&Role { policies: vec!["root".to_owned()], ttl: Duration::ZERO, ..Role::default() });
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = async |method: Method, path: &str, body: Option<&Value>| {
        let request = http.request(method, format!("{}/v1/{path}", secrets.url()));
        let request = body.into_iter().fold(request, reqwest::RequestBuilder::json);
        let response = request.header("x-vault-token", token.expose_secret()).send().await.unwrap();
        response.error_for_status().unwrap().json::<Value>().await.unwrap_or_default()
    };
    // Expectations as of the passthrough backend of vault-plugin-secrets-kv.
    for (value, seconds) in [
        (json!({"a": "b"}), 2_764_800),
        (json!({"ttl": "1h"}), 3600),
        (json!({"ttl": 90}), 90),
        (json!({"ttl": "90"}), 90),
        (json!({"lease": "1h30m"}), 5400),
        (json!({"ttl": "10m", "lease": "1h"}), 600),
        (json!({"ttl": "soon", "lease": "1h"}), 2_764_800),
        (json!({"ttl": {"x": 1}}), 2_764_800),
    ] {
        send(Method::PUT, "kv/leased", Some(&value)).await;
        let read = send(Method::GET, "kv/leased", None).await;
        let found = ["data", "lease_duration", "lease_id", "renewable"].map(|name| read[name].clone());
        assert_eq!(found, [value, json!(seconds), json!(""), json!(false)], "{read}");
    }
    let listed = send(Method::from_bytes(b"LIST").unwrap(), "kv/", None).await;
    assert_eq!((&listed["data"]["keys"], &listed["lease_duration"]), (&json!(["example", "leased"]), &json!(0)));
    let versioned = send(Method::GET, "secret/data/example", None).await;
    assert_eq!(versioned["lease_duration"], 0);
}
