//! Auth methods of type `cloud` with tokens of the emulated Azure over TLS.
#![cfg(feature = "dev")]

use keyward_emulators::cloud::{Cloud, MachineKind};
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};

use crate::harness::Acl;
use crate::harness::cloud::options_with_shared_keys;

const ARM: &str = "https://management.azure.com/";

async fn jwt(cloud: &Cloud) -> String {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let path = format!("metadata/identity/oauth2/token?api-version=2018-02-01&resource={ARM}");
    let url = format!("{}{path}", cloud.metadata_url());
    let body: Value = http.get(url).header("metadata", "true").send().await.unwrap().json().await.unwrap();
    body["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_machine_is_identified_by_signed_claims() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options_with_shared_keys(folder.path().join("cloud"));
    options.machine = MachineKind::VirtualMachine;
    let mut tasks = TaskGroup::default();
    let cloud = Cloud::start(options, &mut tasks).unwrap();
    let acl = Acl::start().await;
    let method = |audience: &str| {
        let authorities = std::fs::read_to_string(cloud.ca_file()).unwrap();
        let config = json!({
            "OIDCDiscoveryURL": cloud.issuer(), "OIDCDiscoveryCACert": authorities, "BoundIssuer": cloud.issuer(),
            "BoundAudiences": [audience],
        });
        json!({"Name": "machines", "Type": "cloud", "MaxTokenTTL": "10m", "Config": config})
    };
    acl.make("/v1/acl/auth-method", method(ARM)).await;
    let names = cloud.identities();
    let rule = json!({
        "AuthMethod": "machines", "BindType": "node", "BindName": "${value.vm_name}",
        "Selector": format!("value.subscription_id == \"{}\" and value.vmss_name is empty", names.subscription),
    });
    acl.make("/v1/acl/binding-rule", rule).await;
    let response = acl.log_in("machines", &jwt(&cloud).await).await;
    assert_eq!(response.status, 200, "{response:?}");
    let token = response.json();
    let name = cloud.machine_id().split('/').next_back().unwrap().to_lowercase();
    assert_eq!(token["NodeIdentities"], json!([{"NodeName": name, "Datacenter": "dc1"}]));

    let header = [("X-Vault-Token", token["SecretID"].as_str().unwrap())];
    let looked_up = acl.send("GET", "/v1/auth/token/lookup-self", &header, b"").await.json();
    assert_eq!(looked_up["data"]["meta"]["principal_id"], json!(names.system.object_id));

    acl.make("/v1/acl/auth-method/machines", method("https://vault.azure.net/")).await;
    let refused = acl.log_in("machines", &jwt(&cloud).await).await;
    assert!(refused.status == 403 && refused.text.contains("expected audience"), "{refused:?}");
    let elsewhere = json!({
        "AuthMethod": "machines", "BindType": "node", "BindName": "x", "Selector": "value.first_name == x",
    });
    let unknown = acl.put("/v1/acl/binding-rule", elsewhere).await;
    assert!(unknown.text.contains("available: value.app_id, value.principal_id, "), "{unknown:?}");
}
