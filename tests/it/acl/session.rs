//! A session by the ACL API's login: the real agent and the real ACL server.

use std::time::Duration;

use keyward_emulators::cloud::Cloud;
use keyward_machine::tasks::TaskGroup;
use serde_json::json;

use crate::harness::Acl;
use crate::harness::binary::{Binary, ask, eventually};
use crate::harness::cloud::options_with_shared_keys;
use crate::harness::issuer::Key;
use crate::harness::world::{RESOURCE, run_in_network_namespace};

/// Creates a `jwt` auth method with a binding rule; returns its signing key.
async fn method(acl: &Acl) -> Key {
    let key = Key::shared("one");
    let config = json!({
        "JWTValidationPubKeys": [key.pem()], "BoundIssuer": "https://issuer.example",
        "BoundAudiences": ["machines"], "ClaimMappings": {"name": "name"},
    });
    acl.make("/v1/acl/auth-method", json!({"Name": "fleet", "Type": "jwt", "MaxTokenTTL": "10m", "Config": config}))
        .await;
    acl.make("/v1/acl/policy", json!({"Name": "web-read", "Rules": "service_prefix \"web\" { policy = \"read\" }"}))
        .await;
    acl.make("/v1/acl/role", json!({"Name": "web", "Policies": [{"Name": "web-read"}]})).await;
    acl.make("/v1/acl/binding-rule", json!({"AuthMethod": "fleet", "BindType": "role", "BindName": "${value.name}"}))
        .await;
    key
}

fn jwt(acl: &Acl, key: &Key, name: &str) -> String {
    let now = acl.now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "iss": "https://issuer.example", "aud": ["machines"], "sub": name, "name": name, "iat": now, "nbf": now - 5,
        "exp": now + 3600,
    });
    key.sign(&claims)
}

async fn tokens_of_logins(acl: &Acl) -> usize {
    acl.get("/v1/acl/tokens?authmethod=fleet").await.json().as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_logs_in_by_the_acl_login_and_logs_out_at_the_end() {
    let acl = Acl::start().await;
    let key = method(&acl).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("jwt"), jwt(&acl, &key, "nobody")).unwrap();
    let text = format!(
        "[agent]\nstate_dir = \"{folder}\"\n[server.acl]\nkind = \"consul\"\naddress = \"{url}\"\n\
         [session.web]\nauth_method = \"fleet\"\n\
         [session.web.jwt]\nfile = \"{folder}/jwt\"\n[sink.web]\npath = \"{folder}/token\"\n\
         [listener.local]\naddress = \"unix://{folder}/api.sock\"\n",
        folder = folder.path().display(),
        url = acl.url
    );
    std::fs::write(path("keyward.toml"), text).unwrap();
    let config = path("keyward.toml").display().to_string();

    let agent = Binary::start(&["run", "--config", &config], &[], folder.path());
    let wait = |expected: &dyn Fn() -> Result<String, String>| {
        tokio::task::block_in_place(|| eventually(Duration::from_secs(30), expected))
    };
    let check_output = |text: &str| if agent.output().contains(text) { Ok(String::new()) } else { Err(agent.output()) };
    // No role has that name, so no rule matches.
    wait(&|| check_output("token.login.failed"));
    assert_eq!(tokens_of_logins(&acl).await, 0);
    assert!(!path("token").exists());
    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");

    std::fs::write(path("jwt"), jwt(&acl, &key, "web")).unwrap();
    std::fs::remove_file(path("web.state")).unwrap();
    let agent = Binary::start(&["run", "--config", &config], &[], folder.path());
    let token =
        wait(&|| std::fs::read_to_string(path("token")).map_err(|error| format!("{error}: {}", agent.output())));
    let me = acl.call("GET", "/v1/acl/token/self", Some(&token), None).await;
    assert_eq!((me.status, &me.json()["AuthMethod"]), (200, &json!("fleet")), "{me:?}");
    assert_eq!(tokens_of_logins(&acl).await, 1);

    // A lookup detects a deleted token, and the session replaces it.
    let accessor = me.json()["AccessorID"].as_str().unwrap().to_owned();
    acl.call("DELETE", &format!("/v1/acl/token/{accessor}"), Some(&acl.root), None).await;
    let (status, body) = tokio::task::block_in_place(|| ask(&path("api.sock"), "POST", "/agent/v1/check")).unwrap();
    assert_eq!(status, 200, "{body}");
    let next = wait(&|| match std::fs::read_to_string(path("token")) {
        Ok(next) if !next.is_empty() && next != token => Ok(next),
        other => Err(format!("{other:?}: {}", agent.output())),
    });
    assert_eq!(acl.call("GET", "/v1/acl/token/self", Some(&next), None).await.status, 200);

    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");
    assert!(!output.contains(&next) && !output.contains("eyJ"), "a credential stands in the log: {output}");
    let deleted = acl.call("GET", "/v1/acl/token/self", Some(&next), None).await;
    assert!(deleted.status == 404 && deleted.text.contains("token does not exist"), "{deleted:?}");
    assert_eq!(tokens_of_logins(&acl).await, 0, "it logged out");
}

#[test]
fn a_machine_logs_in_with_its_azure_identity_and_logs_out_at_the_end() {
    run_in_network_namespace(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let mut options = options_with_shared_keys(path("cloud"));
            options.metadata = "169.254.169.254:80".parse().unwrap();
            let mut tasks = TaskGroup::default();
            let cloud = Cloud::start(options, &mut tasks).unwrap();
            let acl = Acl::start().await;
            let config = json!({
                "OIDCDiscoveryURL": cloud.issuer(), "BoundIssuer": cloud.issuer(), "BoundAudiences": [RESOURCE],
                "OIDCDiscoveryCACert": std::fs::read_to_string(cloud.ca_file()).unwrap(),
            });
            let method = json!({"Name": "fleet", "Type": "cloud", "MaxTokenTTL": "10m", "Config": config});
            acl.make("/v1/acl/auth-method", method).await;
            let rule = json!({
                "AuthMethod": "fleet", "BindType": "node", "BindName": "${value.vm_name}",
                "Selector": format!("value.principal_id == \"{}\"", cloud.identities().system.object_id),
            });
            acl.make("/v1/acl/binding-rule", rule).await;
            let text = format!(
                "[agent]\nstate_dir = \"{folder}\"\n[server.acl]\nkind = \"consul\"\naddress = \"{url}\"\n\
                 [session.web]\nauth_method = \"fleet\"\n[session.web.cloud]\nresource = \"{RESOURCE}\"\n\
                 [sink.web]\npath = \"{folder}/token\"\n",
                folder = folder.path().display(),
                url = acl.url
            );
            std::fs::write(path("keyward.toml"), text).unwrap();
            let config = path("keyward.toml").display().to_string();
            let agent = Binary::start(&["run", "--config", &config], &[], folder.path());
            let token = tokio::task::block_in_place(|| {
                eventually(Duration::from_secs(30), || {
                    std::fs::read_to_string(path("token")).map_err(|error| format!("{error}: {}", agent.output()))
                })
            });
            let me = acl.call("GET", "/v1/acl/token/self", Some(&token), None).await;
            let machine = cloud.machine_id().split('/').next_back().unwrap().to_lowercase();
            assert_eq!((me.status, &me.json()["AuthMethod"]), (200, &json!("fleet")), "{me:?}");
            assert_eq!(me.json()["NodeIdentities"], json!([{"NodeName": machine, "Datacenter": "dc1"}]));
            assert_eq!(tokens_of_logins(&acl).await, 1);

            let (ended, output) = tokio::task::block_in_place(|| agent.stop());
            assert!(ended.success(), "{output}");
            assert!(!output.contains(&token) && !output.contains("eyJ"), "a credential stands in the log: {output}");
            assert_eq!(acl.call("GET", "/v1/acl/token/self", Some(&token), None).await.status, 404);
            assert_eq!(tokens_of_logins(&acl).await, 0, "it logged out");
        });
    });
}
