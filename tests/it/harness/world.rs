//! A small world for the real binary: a network namespace with an emulated cloud at the real metadata address, and an
//! emulated Vault that trusts it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use keyward_emulators::cloud::{self, Cloud, CloudIdentities};
use keyward_emulators::platform::{self, Platform};
use keyward_emulators::secrets::terraform::{self, Credential};
use keyward_emulators::secrets::{self, Bounds, LeaseTerms, Role, Secrets, Verification};
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::cloud::options_with_shared_keys;
use super::not_run;

pub(crate) const RESOURCE: &str = "https://management.azure.com/";

/// Runs `test` in a network namespace with the metadata service's address on its loopback, and in a mount namespace: this test
/// process starts itself again in there, for the one test that calls this with its own closure.
pub(crate) fn run_in_network_namespace<T: FnOnce()>(test: T) {
    run_in_network_namespace_of(test_of::<T>(), test);
}

/// Name of the test whose closure `T` is: closures are named by their function, `it::app::reload::the_test::{{closure}}`.
pub(crate) fn test_of<T>() -> &'static str {
    let closure = std::any::type_name::<T>();
    closure.split("::{{closure}}").next().and_then(|path| path.split_once("::")).expect("a test's name").1
}

/// As [`run_in_network_namespace`], for the test with this name.
pub(crate) fn run_in_network_namespace_of(name: &str, test: impl FnOnce()) {
    const INSIDE: &str = "KEYWARD_TEST_INSIDE";
    if std::env::vars_os().any(|(key, _)| key == INSIDE) {
        for command in ["link set lo up", "addr add 169.254.169.254/32 dev lo"] {
            let status = Command::new("ip").args(command.split(' ')).status().expect("ip, of iproute2");
            assert!(status.success(), "ip {command}");
        }
        return test();
    }
    let root = rustix::process::geteuid().is_root();
    let namespaces: &[&str] =
        if root { &["--net", "--mount"] } else { &["--user", "--map-root-user", "--net", "--mount"] };
    let output = Command::new("unshare")
        .args(namespaces)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare, of util-linux");
    let output_text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Indented, as tests/run counts results at the beginning of a line.
    assert!(output.status.success() && output_text.contains("1 passed"), "    {}", output_text.replace('\n', "\n    "));
    not_run::repeat(&output_text);
}

/// The emulated Azure at the real metadata address, a Vault that trusts it, and a Terraform Enterprise whose tokens
/// that server lends.
pub(crate) struct World {
    pub(crate) cloud: Cloud,
    pub(crate) platform: Platform,
    pub(crate) secrets: Secrets,
    runtime: tokio::runtime::Runtime,
    _tasks: TaskGroup,
    _folder: tempfile::TempDir,
}

/// Lends tokens of a team of the platform for seconds, as the role `deploy`.
async fn with_terraform_engine(platform: &Platform) -> terraform::TerraformEngineOptions {
    let parent = platform.faults().mint("of Vault").token;
    let url = format!("{}/api/v2/organizations/example/teams", platform.url());
    let team = json!({"data": {"type": "teams", "attributes": {"name": "deploy"}}});
    let request = reqwest::Client::new().post(url).bearer_auth(parent.expose_secret());
    let response =
        request.header("content-type", "application/vnd.api+json").body(team.to_string()).send().await.unwrap();
    let team: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    // A third of the lease is left when it is renewed or replaced: enough for a machine that runs other tests too.
    let terms = LeaseTerms { ttl: Duration::from_secs(6), max_ttl: Duration::from_secs(8), renewable: true };
    terraform::TerraformEngineOptions {
        roles: BTreeMap::from([("deploy".to_owned(), Credential::Team(terms))]),
        platform: Some(terraform::Platform {
            address: platform.url().parse().unwrap(),
            token: parent,
            team: team["data"]["id"].as_str().unwrap().to_owned(),
        }),
    }
}

impl World {
    pub(crate) fn start() -> Self {
        Self::with(|_| (), |_, _| ())
    }

    /// The same, with another cloud, and a server with other roles.
    pub(crate) fn with(
        change_cloud: impl FnOnce(&mut cloud::CloudOptions),
        change_secrets: impl FnOnce(&Cloud, &mut secrets::SecretsOptions),
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut tasks = TaskGroup::new(CancellationToken::new());
        let (cloud, secrets, platform) = runtime.block_on(async {
            let platform = Platform::start(platform::PlatformOptions::default(), &mut tasks).unwrap();
            let mut options = options_with_shared_keys(folder.path().join("cloud"));
            options.metadata = "169.254.169.254:80".parse().unwrap();
            change_cloud(&mut options);
            let cloud = Cloud::start(options, &mut tasks).unwrap();
            // Bound to the machine too, so that the login's fields must be right.
            let bounds = Bounds {
                service_principal_ids: vec![cloud.identities().system.object_id.clone()],
                subscription_ids: vec![cloud.identities().subscription.clone()],
                resource_groups: vec![CloudIdentities::RESOURCE_GROUP.to_owned()],
                ..Bounds::default()
            };
            let mut options = secrets::SecretsOptions::for_anyone(
                keyward_machine::clock::Clock::System,
                "web",
                Role { policies: vec!["web".to_owned()], bounds, ..Role::default() },
            );
            options.verification = Verification::Cloud {
                discovery: format!("{}.well-known/openid-configuration", cloud.issuer()).parse().unwrap(),
                ca_file: cloud.ca_file(),
                audience: RESOURCE.to_owned(),
            };
            options.terraform = with_terraform_engine(&platform).await;
            change_secrets(&cloud, &mut options);
            let secrets = Secrets::start(options, &mut tasks).unwrap();
            // By Vault's texts, which say of a dead token that it is invalid; tests of OpenBao's choose those.
            secrets.faults().respond_as_openbao(false);
            (cloud, secrets, platform)
        });
        Self { cloud, secrets, platform, runtime, _tasks: tasks, _folder: folder }
    }

    /// Does something in the world's own runtime.
    pub(crate) fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Writes a value to the key-value store as another client.
    pub(crate) fn put(&self, path: &str, fields: &Value) {
        let token = self.secrets.token(&Role::default());
        let url = format!("{}/v1/secret/data/{path}", self.secrets.url());
        let status = self.block_on(async {
            let request = reqwest::Client::new().post(url).header("x-vault-token", token.expose_secret());
            request.json(&json!({ "data": fields })).send().await.unwrap().status()
        });
        assert!(status.is_success(), "{status}");
    }

    /// Makes the emulated Vault unreachable, or reachable again.
    pub(crate) fn set_vault_offline(&self, offline: bool) {
        let faults = self.secrets.faults();
        self.block_on(async { if offline { faults.go_away().await } else { faults.come_back().await } });
    }

    /// A configuration as an operator would write it; gives its path.
    pub(crate) fn config(&self, folder: &Path, more: &str) -> String {
        let path = folder.join("keyward.toml");
        std::fs::create_dir(folder.join("state")).unwrap();
        std::fs::write(&path, self.config_text(folder, "token", more)).unwrap();
        path.display().to_string()
    }

    /// Its text, with this name of the token's file below the folder.
    pub(crate) fn config_text(&self, folder: &Path, token: &str, more: &str) -> String {
        format!(
            r#"
[server.main]
kind = "vault"
address = "{server}"

[session.web]
mount = "azure"

[session.web.cloud]
role = "web"
resource = "{RESOURCE}"

[sink.token]
path = "{folder}/{token}"
mode = "0640"

[listener.local]
address = "unix://{folder}/api.sock"

[agent]
state_dir = "{folder}/state"
{more}
"#,
            server = self.secrets.url(),
            folder = folder.display(),
        )
    }
}
