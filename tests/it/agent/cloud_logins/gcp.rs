//! Google Cloud: roles of the types `gce` and `iam`.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_emulators::cloud::{CloudProvider, GcpNames};
use keyward_emulators::secrets::{CloudMethod, GcpMethod, GcpRole, GcpRoleKind, Role};
use serde_json::{Value, json};

use super::Scene;

fn emulated_role(kind: GcpRoleKind, project: &str, account: &str) -> GcpRole {
    GcpRole {
        kind,
        bound_projects: if kind == GcpRoleKind::Gce { vec![project.to_owned()] } else { Vec::new() },
        bound_zones: if kind == GcpRoleKind::Gce { vec![GcpNames::ZONE.to_owned()] } else { Vec::new() },
        bound_service_accounts: vec![account.to_owned()],
        role: Role { policies: vec!["machines".to_owned()], ..Role::default() },
    }
}

impl Scene {
    fn gcp() -> Self {
        let roles = [
            ("web", emulated_role(GcpRoleKind::Gce, GcpNames::PROJECT, GcpNames::ACCOUNT)),
            ("other-project", emulated_role(GcpRoleKind::Gce, "another", GcpNames::ACCOUNT)),
            ("other-account", emulated_role(GcpRoleKind::Gce, GcpNames::PROJECT, GcpNames::KEY_ACCOUNT)),
            ("job", emulated_role(GcpRoleKind::Iam, "", GcpNames::ACCOUNT)),
            ("robot", emulated_role(GcpRoleKind::Iam, "", GcpNames::KEY_ACCOUNT)),
        ];
        let roles: BTreeMap<String, GcpRole> = roles.map(|(name, role)| (name.to_owned(), role)).into();
        let real_roles = roles.clone();
        let scene = Self::start(CloudProvider::Gcp, |apis| ("gcp", CloudMethod::Gcp(GcpMethod { apis, roles })));
        let key = scene.cloud.google_service_account_key().unwrap();
        scene.configure("auth/gcp/config", &json!({ "credentials": key.expose_secret() }));
        for (name, role) in real_roles {
            let mut body = json!({
                "type": if role.kind == GcpRoleKind::Gce { "gce" } else { "iam" }, "token_policies": role.role.policies,
                "bound_service_accounts": role.bound_service_accounts, "token_ttl": 3600,
            });
            if role.kind == GcpRoleKind::Gce {
                body["bound_projects"] = json!(role.bound_projects);
                body["bound_zones"] = json!(role.bound_zones);
            }
            scene.configure(&format!("auth/gcp/role/{name}"), &body);
        }
        scene
    }

    /// Returns an identity token for the role `web`, of a clock that is this far ahead.
    fn identity_token(&self, skew_seconds: i64) -> String {
        self.cloud.faults().skew(skew_seconds);
        let token = self.runtime.block_on(async {
            let path = "computeMetadata/v1/instance/service-accounts/default/identity";
            let url = self.cloud.metadata_url().join(path).unwrap();
            let request =
                reqwest::Client::new().get(url).query(&[("audience", "http://vault/web"), ("format", "full")]);
            request.header("metadata-flavor", "Google").send().await.unwrap().text().await.unwrap()
        });
        self.cloud.faults().reset();
        token
    }
}

#[test]
fn the_methods_of_vault_admit_machines_and_service_accounts_of_google_cloud() {
    let scene = Scene::gcp();
    let key_file = scene.folder.path().join("key.json");
    let key = scene.cloud.google_service_account_key().unwrap();
    std::fs::write(&key_file, key.expose_secret()).unwrap();
    std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
    for server in scene.servers() {
        scene.admits(server, "gcp]\nrole = \"web\"", "machines");
        scene.admits(server, "gcp]\nrole = \"job\"\ntype = \"iam\"", "machines");
        let file = key_file.display();
        scene.admits(
            server,
            &format!("gcp]\nrole = \"robot\"\ntype = \"iam\"\ncredentials_file = \"{file}\""),
            "machines",
        );
    }
    let signed = scene.tunnel.heads().iter().any(|head| head.starts_with("CONNECT iamcredentials.googleapis.com:443 "));
    assert!(signed, "Google signs for the machine's account");
}

#[test]
fn the_methods_of_vault_refuse_other_machines_audiences_and_times_of_google_cloud() {
    let scene = Scene::gcp();
    let web = "gcp]\nrole = \"web\"";
    let job = "gcp]\nrole = \"job\"\ntype = \"iam\"";
    for server in scene.servers() {
        scene.refuses(server, "gcp]\nrole = \"other-project\"", "not in bound projects [another]");
        scene.refuses(server, "gcp]\nrole = \"other-account\"", "is not in bound service accounts");
        // An identity token lives for an hour, and may not here.
        scene.refuses(server, "gcp]\nrole = \"job\"", "service account JWTs expire within 900 seconds");
        scene.refuses(
            server,
            "gcp]\nrole = \"web\"\ntype = \"iam\"",
            "no Google OAuth2 provider key found for GCE role",
        );
        scene.refuses(server, "gcp]\nrole = \"robot\"\ntype = \"iam\"", "is not authorized for role");
        scene.refuses(server, "gcp]\nrole = \"missing\"", "not found");
        let faults = scene.cloud.faults();
        faults.audience(Some("http://vault/other".to_owned()));
        scene.refuses(server, web, "must end in");
        faults.reset();
        faults.skew(-7200);
        scene.refuses(server, web, "the identity token expired");
        faults.reset();
        faults.skew(7200);
        scene.refuses(server, web, "JWT must expire in 60 minutes");
        faults.reset();
        let ended = json!({ "role": "web", "jwt": scene.identity_token(-7200) });
        let (status, text) = scene.post(server, "auth/gcp/login", &ended);
        assert!(status == 400 && text.contains("JWT is expired"), "{status} {text}");
        scene.admits(server, web, "machines");
        scene.admits(server, job, "machines");
    }
}

#[test]
fn a_changed_token_of_google_cloud_is_refused() {
    let scene = Scene::gcp();
    let token = scene.identity_token(0);
    let parts: Vec<&str> = token.split('.').collect();
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    claims["google"]["compute_engine"]["instance_name"] = "another".into();
    let changed = URL_SAFE_NO_PAD.encode(claims.to_string());
    for server in scene.servers() {
        let log_in = |jwt: &str| scene.post(server, "auth/gcp/login", &json!({ "role": "web", "jwt": jwt }));
        assert_eq!(log_in(&token).0, 200);
        let (status, text) = log_in(&format!("{}.{changed}.{}", parts[0], parts[2]));
        assert!(status == 400 && text.contains("cryptographic primitive"), "{status} {text}");
        assert_eq!(log_in(&format!("{}.{}", parts[0], parts[1])).0, 400);
    }
}
