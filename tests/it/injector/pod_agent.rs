//! `keyward kubernetes agent`: the agent with the configuration of a variable.

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use wiremock::matchers::{body_partial_json, header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::fixture::recorded;
use crate::harness::binary::run;

#[test]
fn without_the_webhooks_variable_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("pod");
    let (code, output, error) = run(&["kubernetes", "agent", "--dir", dir.to_str().unwrap()], &[]);
    assert_eq!((code, output.as_str()), (1, ""));
    assert!(error.contains("KEYWARD_POD_CONFIG is not set: the webhook sets it"), "{error}");
    assert!(!dir.exists());
}

#[test]
fn the_variable_becomes_a_file_that_only_the_agent_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("pod");
    let variables = [("KEYWARD_POD_CONFIG", "[agent]\nwrong = 1\n"), ("KEYWARD_POD_CA", "a bundle")];
    let (code, _, error) = run(&["kubernetes", "agent", "--dir", dir.to_str().unwrap()], &variables);
    assert_eq!(code, 78, "{error}");
    assert!(error.contains("keyward.toml:2:1: agent.wrong"), "{error}");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join("keyward.toml")), mode(&dir.join("ca.pem"))), (0o700, 0o600, 0o600));
    assert_eq!(std::fs::read_to_string(dir.join("ca.pem")).unwrap(), "a bundle");
    // The container starts again with the same variables.
    let (code, ..) = run(&["kubernetes", "agent", "--dir", dir.to_str().unwrap()], &variables);
    assert_eq!(code, 78);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_of_an_injected_pod_logs_in_and_writes_the_files_of_its_annotations() {
    let vault = MockServer::start().await;
    let claims =
        URL_SAFE_NO_PAD.encode(json!({"sub": "system:serviceaccount:team:web", "exp": 4_000_000_000_u64}).to_string());
    let jwt = format!("{}.{claims}.c2lnbmVk", URL_SAFE_NO_PAD.encode("{\"alg\":\"RS256\"}"));
    let auth = json!({
        "client_token": "hvs.injected", "accessor": "a", "policies": ["web"], "lease_duration": 3600, "renewable": true,
    });
    Mock::given(method("POST"))
        .and(path("/v1/auth/kubernetes/login"))
        .and(body_partial_json(json!({"role": "web", "jwt": jwt})))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"auth": auth})))
        .mount(&vault)
        .await;
    let data = json!({"data": {"user": "me", "password": "it is"}, "lease_duration": 0, "renewable": false});
    Mock::given(method("GET"))
        .and(path("/v1/secret/data/db"))
        .and(header("x-vault-token", "hvs.injected"))
        .respond_with(ResponseTemplate::new(200).set_body_json(data))
        .mount(&vault)
        .await;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("token"), jwt).unwrap();
    let config = recorded()["a Job that writes once"]["variables"]["KEYWARD_POD_CONFIG"].as_str().unwrap().to_owned();
    let config = config
        .replace("https://vault.example.com:8200", &vault.uri())
        .replace("/var/run/secrets/keyward/token", &at("token"))
        .replace("/run/keyward", folder.path().to_str().unwrap());
    let dir = at("pod");
    let args = ["kubernetes", "agent", "--exit-after-auth", "--timeout", "30s", "--dir", &dir].map(str::to_owned);
    let (code, _, error) = tokio::task::spawn_blocking(move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(&args, &[("KEYWARD_POD_CONFIG", &config)])
    })
    .await
    .unwrap();
    assert_eq!(code, 0, "{error}");
    assert_eq!(std::fs::read_to_string(at("db.txt")).unwrap(), "password: it is\nuser: me\n");
    assert!(!error.contains("hvs.injected") && !error.contains("it is"), "{error}");
}
