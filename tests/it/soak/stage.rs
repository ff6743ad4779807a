//! The servers of a run, with proxies in front of them, and the program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use keyward_emulators::platform::{Platform, PlatformOptions};
use keyward_emulators::secrets::{LeaseTerms, LoginMethod, Role, Secrets, SecretsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::client::client;
use super::log::{Log, tail};
use super::plan::{LEASE, TOKEN, VAULT_SESSIONS, session};
use super::setup::{ACL, METHOD, PLATFORM, VAULT, acl_config, child, config};
use super::truth::Truth;
use crate::harness::binary::{Binary, ask, eventually};
use crate::harness::certificates::{Authority, Presented};
use crate::harness::chaos::ChaosProxy;
use crate::harness::issuer::Key;

pub(super) const JWT: &str = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYW5hcnkifQ.c2ln";

/// Everything but the callers.
pub(super) struct Stage {
    pub(super) truth: Truth,
    pub(super) vault_network: ChaosProxy,
    pub(super) platform: Platform,
    /// Id of its current token.
    pub(super) platform_token: String,
    pub(super) platform_network: ChaosProxy,
    /// Secrets of the ACL server's tokens, with their accessors.
    pub(super) acl_tokens: Vec<(String, String)>,
    pub(super) acl_jwt: String,
    pub(super) log: Log,
    pub(super) agent: Option<Binary>,
    /// Its process id, for those that watch it.
    pub(super) process: Arc<AtomicU32>,
    pub(super) runtime: Runtime,
    _tasks: TaskGroup,
    folder: tempfile::TempDir,
}

/// Roles, policies and credentials of the sessions: each reads only its own.
fn secrets_options(tls: Arc<rustls::ServerConfig>) -> SecretsOptions {
    let names: Vec<String> = (0..VAULT_SESSIONS).map(session).collect();
    let role = |name: &String| {
        let max_ttl = Some(Duration::from_mins(10));
        (name.clone(), Role { policies: vec![name.clone()], ttl: TOKEN, max_ttl, ..Role::default() })
    };
    let roles = names.iter().map(role).collect();
    let method = LoginMethod::jwt(vec![SecretString::from(JWT)], roles);
    let policy = |name: &String| {
        let paths = [format!("secret/data/{name}/*"), format!("database/creds/{name}"), "sys/leases/renew".to_owned()];
        (name.clone(), paths.to_vec())
    };
    let terms = LeaseTerms { ttl: LEASE, max_ttl: Duration::from_mins(3), renewable: true };
    SecretsOptions {
        tls: Some(tls),
        methods: BTreeMap::from([("jwt".to_owned(), method)]),
        policies: names.iter().map(policy).collect(),
        database: names.iter().map(|name| (name.clone(), terms)).collect(),
        ..SecretsOptions::for_anyone(Clock::System, "nobody", Role::default())
    }
}

/// A disk of its own, so that a fault can fill it.
fn mount(folder: &Path) {
    let disk = folder.join("disk");
    std::fs::create_dir(&disk).unwrap();
    let status = Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0700,size=8m", "tmpfs"]).arg(&disk).status();
    assert!(status.unwrap().success(), "mount {}", disk.display());
    std::fs::create_dir(disk.join("state")).unwrap();
}

fn put(folder: &Path, name: &str, text: &str) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::write(folder.join(name), text).unwrap();
    std::fs::set_permissions(folder.join(name), mode).unwrap();
}

fn start_process(folder: &Path) -> Binary {
    let (config, pipe) = (folder.join("keyward.toml"), folder.join("log.pipe"));
    let setup = format!("exec >'{}' 2>&1", pipe.display());
    let variables = [("PATH", "/usr/local/bin:/usr/bin:/bin")];
    Binary::start_after(&setup, &["run", "--config", &config.display().to_string()], &variables, folder)
}

/// Bootstraps the ACL server, with an auth method, and tokens of its own for five callers.
async fn fill_acl(key: &Key) -> Vec<(String, String)> {
    let http = client(None);
    let url = |path: &str| format!("http://{ACL}/v1/acl/{path}");
    let root: Value = fetch_json(http.put(url("bootstrap"))).await;
    let root = root["SecretID"].as_str().unwrap().to_owned();
    let put = async |path: &str, body: Value| {
        fetch_json(http.put(url(path)).header("x-consul-token", &root).json(&body)).await
    };
    let trust = json!({"JWTValidationPubKeys": [key.pem()]});
    let method = json!({"Name": METHOD, "Type": "jwt", "MaxTokenTTL": "2m", "Config": trust});
    put("auth-method", method).await;
    put("binding-rule", json!({"AuthMethod": METHOD, "BindType": "service", "BindName": "web"})).await;
    let mut tokens = Vec::new();
    for number in 0..5 {
        let token = put("token", json!({"Description": format!("caller {number}")})).await;
        let field = |name: &str| token[name].as_str().unwrap().to_owned();
        tokens.push((field("SecretID"), field("AccessorID")));
    }
    tokens
}

async fn fetch_json(request: reqwest::RequestBuilder) -> Value {
    let response = request.send().await.unwrap().error_for_status().unwrap();
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

impl Stage {
    /// Sets everything up; with `openbao` the emulated Vault refuses dead tokens in OpenBao's words.
    pub(super) fn start(openbao: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        mount(folder.path());
        let mut tasks = TaskGroup::default();
        let authority = Authority::new();
        let presented = Presented::new(authority.issue("127.0.0.1", 2090));
        let entered = runtime.enter();
        let secrets = Secrets::start(secrets_options(presented.server()), &mut tasks).unwrap();
        secrets.faults().respond_as_openbao(openbao);
        let platform = Platform::start(PlatformOptions::default(), &mut tasks).unwrap();
        drop(entered);
        let proxy = |address: &str, url: &str| {
            let upstream = url.split_once("://").unwrap().1.parse().unwrap();
            ChaosProxy::start(runtime.handle(), address.parse().unwrap(), upstream)
        };
        let vault_network = proxy(VAULT, secrets.url());
        let platform_network = proxy(PLATFORM, platform.url());
        let ca = reqwest::Certificate::from_pem(authority.pem.as_bytes()).unwrap();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).timeout(Duration::from_secs(20)).build();
        let truth = Truth::new(secrets, http.unwrap(), openbao);
        runtime.block_on(truth.write_all());
        let key = Key::shared("soak");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let acl_jwt = key.sign(&json!({"iat": now, "exp": now + 86_400}));
        let first = platform.faults().mint("first");
        for (name, text) in [
            ("ca.pem", authority.pem.as_str()),
            ("disk/jwt", JWT),
            ("acl.jwt", &acl_jwt),
            ("seal.key", "0123456789abcdef0123456789abcdef"),
            ("platform.token", first.token.expose_secret()),
            ("child.sh", &child(folder.path())),
        ] {
            put(folder.path(), name, text);
        }
        let log = Log::start(folder.path());
        put(folder.path(), "keyward.toml", &acl_config(folder.path()));
        let acl = start_process(folder.path());
        eventually(Duration::from_mins(1), || std::net::TcpStream::connect(ACL).map_err(|_| tail(folder.path())));
        let acl_tokens = runtime.block_on(fill_acl(&key));
        let (status, output) = acl.stop();
        assert!(status.success(), "{status}: {output}");
        put(folder.path(), "keyward.toml", &config(folder.path()));
        Self {
            truth,
            vault_network,
            platform,
            platform_token: first.id,
            platform_network,
            acl_tokens,
            acl_jwt,
            log,
            agent: None,
            process: Arc::default(),
            runtime,
            _tasks: tasks,
            folder,
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn put(&self, name: &str, text: &str) {
        put(self.folder.path(), name, text);
    }

    /// Starts the program.
    pub(super) fn run(&mut self) {
        let agent = start_process(self.folder.path());
        self.process.store(agent.id(), Ordering::Relaxed);
        self.agent = Some(agent);
    }

    pub(super) fn agent(&self) -> &Binary {
        self.agent.as_ref().unwrap()
    }

    /// Error unless every component is ready, and no session still waits to repeat a call that failed.
    pub(super) fn recovered(&self) -> Result<(), String> {
        self.ready()?;
        let (_, body) = ask(&self.path("api.sock"), "GET", "/agent/v1/status")?;
        let body: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        let sessions = body["sessions"].as_object().ok_or("no sessions")?;
        let failing = sessions.iter().filter(|(_, session)| session["failures"] != 0);
        let failing: Vec<_> = failing.map(|(name, session)| format!("{name}: {}", session["last_error"])).collect();
        if failing.is_empty() { Ok(()) } else { Err(format!("{failing:?}")) }
    }

    /// Error unless every component is ready.
    pub(super) fn ready(&self) -> Result<(), String> {
        match ask(&self.path("api.sock"), "GET", "/readyz")? {
            (200, _) => Ok(()),
            (status, body) => {
                let body: Value = serde_json::from_str(&body).unwrap_or_default();
                let components = body["components"].as_object().cloned().unwrap_or_default();
                let not = components.iter().filter(|(_, component)| component["ready"] != true);
                let not: Vec<_> = not.map(|(name, component)| format!("{name}: {}", component["reason"])).collect();
                Err(format!("{status}: {not:?}"))
            }
        }
    }

    pub(super) fn tail(&self) -> String {
        tail(self.folder.path())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The program holds files of the disk.
        self.agent = None;
        let _ = Command::new("umount").arg("--lazy").arg(self.path("disk")).status();
    }
}
