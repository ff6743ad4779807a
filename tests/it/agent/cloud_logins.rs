//! Logins of AWS and Google Cloud at servers that decide by the code of Vault: its auth methods, which `tests/clients/vault-logins`
//! serves. The real binary proves itself by emulated clouds under the names of the real ones. The emulated Vault has to decide the same.

mod aws;
mod gcp;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use keyward_emulators::cloud::{Cloud, CloudProvider};
use keyward_emulators::secrets::{CloudMethod, CloudServices, Secrets, SecretsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::tasks::TaskGroup;
use serde_json::Value;

use crate::harness::binary::run;
use crate::harness::cloud::options_with_shared_keys;
use crate::harness::tunnel::Tunnel;

/// An emulated cloud, and two servers that ask it about logins.
struct Scene {
    runtime: tokio::runtime::Runtime,
    cloud: Cloud,
    /// Leads to the cloud under the names of its services.
    tunnel: Tunnel,
    real: RealMethods,
    emulated: Secrets,
    folder: tempfile::TempDir,
    _tasks: TaskGroup,
}

/// The auth methods of Vault, in a process of their own.
pub(crate) struct RealMethods {
    child: Child,
    pub(crate) url: String,
}

impl Drop for RealMethods {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RealMethods {
    /// Starts it with a certificate and its key, or without TLS.
    pub(crate) fn start(tls: &[&Path], variables: &[(&str, String)]) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/clients/bin/go-vault-logins");
        let mut command = Command::new(&program);
        let command = command.args(tls).env_clear().envs(variables.iter().map(|(name, value)| (*name, value)));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{}: {error}; run tests/run --tools", program.display()));
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }
}

impl Scene {
    /// `method` gives the mount of the emulated Vault's method, and the method.
    fn start(provider: CloudProvider, method: impl FnOnce(CloudServices) -> (&'static str, CloudMethod)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut tasks = TaskGroup::default();
        let mut options = options_with_shared_keys(folder.path().join("cloud"));
        options.provider = provider;
        let (cloud, tunnel, emulated) = runtime.block_on(async {
            let cloud = Cloud::start(options, &mut tasks).unwrap();
            let address = cloud.authority_url().socket_addrs(|| None).unwrap()[0];
            let services = CloudServices { url: cloud.authority_url().clone(), ca_file: cloud.ca_file() };
            let (mount, method) = method(services);
            let mut options =
                SecretsOptions::for_anyone(Clock::System, "unused", keyward_emulators::secrets::Role::default());
            options.cloud_methods.insert(mount.to_owned(), method);
            (cloud, Tunnel::to(address).await, Secrets::start(options, &mut tasks).unwrap())
        });
        let ca_file = cloud.ca_file().display().to_string();
        let proxy = format!("http://{}", tunnel.address);
        let real = RealMethods::start(&[], &[("HTTPS_PROXY", proxy), ("SSL_CERT_FILE", ca_file)]);
        Self { runtime, cloud, tunnel, real, emulated, folder, _tasks: tasks }
    }

    /// Both servers.
    fn servers(&self) -> [&str; 2] {
        [&self.real.url, self.emulated.url()]
    }

    /// Sends a body to a path of a server; returns status and response.
    fn post(&self, server: &str, path: &str, body: &Value) -> (u16, String) {
        self.runtime.block_on(async {
            let response = reqwest::Client::new().post(format!("{server}/v1/{path}")).json(body).send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        })
    }

    /// Configures the real methods.
    #[track_caller]
    fn configure(&self, path: &str, body: &Value) {
        let (status, text) = self.post(&self.real.url, path, body);
        assert!(status < 300, "{path}: {status} {text}");
    }

    /// Logs in by the real binary with this method of a session; returns what it prints, or its error.
    fn log_in(&self, server: &str, method: &str) -> Result<String, String> {
        let file = self.folder.path().join("keyward.toml");
        let text = format!(
            "[server.vault]\nkind = \"vault\"\naddress = \"{server}\"\n\n[session.web]\nserver = \"vault\"\n\n\
             [session.web.{method}"
        );
        std::fs::write(&file, text).unwrap();
        let metadata = self.cloud.metadata_url();
        let host = format!("{}:{}", metadata.host_str().unwrap(), metadata.port().unwrap());
        let ca_file = self.cloud.ca_file().display().to_string();
        let variables = [
            ("HTTPS_PROXY", format!("http://{}", self.tunnel.address)),
            ("SSL_CERT_FILE", ca_file),
            ("GCE_METADATA_HOST", host),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.to_string()),
        ];
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (code, output, errors) =
            run(&["login", "--config", file.to_str().unwrap(), "--reveal", "-o", "json"], &variables);
        assert!(code != 0 || errors.is_empty(), "a warning about a good proof: {errors}");
        if code == 0 { Ok(output) } else { Err(format!("{output}{errors}")) }
    }

    #[track_caller]
    fn admits(&self, server: &str, method: &str, policy: &str) {
        let output = self.log_in(server, method).unwrap_or_else(|error| panic!("{server} {method}: {error}"));
        let fields: Value = serde_json::from_str(&output).unwrap();
        assert!(fields["policies"].to_string().contains(policy), "{output}");
    }

    #[track_caller]
    fn refuses(&self, server: &str, method: &str, expected: &str) {
        let error = self.log_in(server, method).unwrap_err();
        assert!(error.contains(expected), "{server} {method}: {error}");
    }
}
