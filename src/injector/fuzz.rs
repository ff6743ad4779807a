//! Entry point of the fuzz target for reviews.

use super::options::{InjectorOptions, LoginMethod, ServerDefaults};

/// Settings of an operator who allows some overrides.
#[expect(clippy::unwrap_used, reason = "constants that parse")]
pub fn options() -> InjectorOptions {
    let allowed = ["address=https://b.example.com", "namespace=*", "method=*", "mount=*"];
    InjectorOptions {
        server: ServerDefaults {
            kind: "vault".to_owned(),
            address: "https://vault.example.com:8200".to_owned(),
            ca_file: None,
            server_name: None,
            allow_http: false,
            namespace: None,
            method: LoginMethod::Kubernetes,
            mount: None,
            role: Some("web".to_owned()),
            audience: None,
            azure_tenant: Some("11111111-1111-1111-1111-111111111111".to_owned()),
            azure_resource: "https://management.azure.com/".to_owned(),
        },
        allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
        image: "registry.example.com/keyward:0.1.0".to_owned(),
        image_pull_policy: None,
        vault_annotations: true,
    }
}
