//! `keyward dev`: emulators of a cloud, Vault and HCP Terraform with the ACL server, the gateway and an agent, in one process
//! and only on loopback. They talk to each other over HTTP, as separate processes do.

pub mod faults;
mod clouds;
mod attach;
mod guide;
mod ports;
mod tour;
mod agent_calls;
mod fault_tour;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use keyward_acl::client::{AclClient, AclClientOptions};
use keyward_config::{self as config, Config, Purpose};
use keyward_emulators::cloud::{self, Cloud};
use keyward_emulators::platform::{self, Platform};
use keyward_emulators::secrets::{self, FaultListener, Secrets};
use keyward_http::client::{Client, ClientOptions, ProxyMode, ServerAddress, TlsOptions};
use keyward_machine::atomic_file::{self, Attributes};
use keyward_machine::secret_string::SecretString;
use keyward_machine::secure_dir;
use keyward_machine::tasks::TaskGroup;
use tokio_util::sync::CancellationToken;

use super::{App, ProcessSetup};

pub use agent_calls::DevAgent;
pub use attach::find_running;
pub use clouds::DevCloud;
use ports::Ports;
pub use ports::check_first_port;

/// Uses each part once, then breaks and heals everything once. Returns a line for each step.
pub async fn take_the_tour(endpoints: &DevEndpoints) -> anyhow::Result<Vec<String>> {
    Ok([tour::run(endpoints).await?, fault_tour::run(endpoints).await?].concat())
}

/// Folder for keys, secrets and state, in which no other `keyward dev` runs.
#[derive(Debug)]
pub struct DevDir {
    dir: PathBuf,
    /// Locked for the life of the process.
    lock: File,
}

impl DevDir {
    /// Creates the folder with mode 0700 if it is missing, and keeps others out of it.
    ///
    /// # Errors
    /// Others can access it, or another `keyward dev` runs in it.
    pub fn lock(dir: &Path) -> anyhow::Result<Self> {
        let dir = secure_dir::create_private(dir, 0o077)?;
        let lock = lock_dir(&dir)?;
        Ok(Self { dir, lock })
    }

    /// Path of the log file.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("dev.log")
    }
}

/// All servers of `keyward dev`, built and bound.
#[derive(Debug)]
pub struct Dev {
    /// The agent, the ACL server and the gateway.
    pub app: App,
    /// The emulated servers; they run already.
    pub emulated: TaskGroup,
    /// Addresses and files of all parts.
    pub endpoints: DevEndpoints,
    _lock: File,
}

/// Addresses and files of `keyward dev`.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct DevEndpoints {
    /// The folder.
    pub(crate) dir: PathBuf,
    /// The cloud that is emulated.
    pub cloud: DevCloud,
    /// The file that the agent is configured by.
    pub(crate) config: PathBuf,
    /// The emulated metadata service.
    pub(crate) metadata: String,
    /// The emulated token endpoint.
    pub(crate) authority: String,
    /// The ACL server.
    pub(crate) acl: String,
    /// The emulated Vault.
    pub(crate) secrets: String,
    /// The local API on a unix socket.
    pub(crate) socket: PathBuf,
    /// Vault's API on a unix socket, with the session's token.
    pub(crate) vault: PathBuf,
    /// The local API on loopback.
    pub(crate) local_api: SocketAddr,
    /// File with the key that the loopback listener asks for.
    pub(crate) local_key: PathBuf,
    /// Pages for a browser.
    pub(crate) pages: SocketAddr,
    /// File with the key that opens the pages.
    pub(crate) pages_key: PathBuf,
    /// Health and metrics.
    pub(crate) health: SocketAddr,
    /// Fault injection of the emulated cloud.
    pub(crate) cloud_faults: String,
    /// Fault injection of the emulated Vault.
    pub(crate) secrets_faults: String,
    /// The emulated HCP Terraform.
    pub(crate) platform: String,
    /// Fault injection of the emulated HCP Terraform.
    pub(crate) platform_faults: String,
    /// File with the platform's token, which the gateway reads.
    pub(crate) platform_token: PathBuf,
    /// The gateway in front of the platform.
    pub(crate) gateway: SocketAddr,
    /// File with the local token, which the gateway asks for.
    pub(crate) gateway_token: PathBuf,
    /// File by which Terraform finds the gateway.
    pub(crate) terraform: PathBuf,
    /// File with the key of the fault injection.
    pub(crate) faults_key: PathBuf,
    /// File with the first token of the ACL server.
    pub(crate) acl_token: PathBuf,
    /// CA of the emulated token endpoint.
    pub(crate) authority_ca: PathBuf,
    /// Variables of the cloud that point a session at it; none is secret.
    pub(crate) cloud_variables: BTreeMap<String, String>,
}

impl Dev {
    /// Creates missing files in the folder, starts the emulated servers, and builds the agent. Must be called inside a
    /// runtime.
    pub async fn build(
        DevDir { dir, lock }: DevDir,
        first_port: Option<u16>,
        dev_cloud: DevCloud,
    ) -> anyhow::Result<Self> {
        let ports = Ports::choose(first_port)?;
        secure_dir::create_private(&dir.join("state"), 0o077)?;
        remove_owner_record(&dir.join("state/gateway.token.owner"))?;
        let mut emulated = TaskGroup::new(CancellationToken::new());
        let mut cloud = cloud::CloudOptions::in_folder(dir.join("cloud"));
        (cloud.metadata, cloud.authority, cloud.faults) = (ports.get(0), ports.get(1), Some(ports.get(2)));
        cloud.own_user_only = true;
        cloud.provider = dev_cloud.provider();
        let cloud = Cloud::start(cloud, &mut emulated).context("cannot start the emulated cloud")?;
        let faults_key = dir.join("faults.key");
        write_private(&faults_key, cloud.faults_key())?;
        let secrets_faults = FaultListener { address: ports.get(4), key: cloud.faults_key().clone() };
        let secrets =
            secrets::SecretsOptions { address: ports.get(3), faults: Some(secrets_faults), ..dev_cloud.vault(&cloud) };
        let secrets = Secrets::start(secrets, &mut emulated).context("cannot start the emulated Vault")?;
        let local_key = make_key(dir.join("local-api.key"))?;
        let pages_key = make_key(dir.join("pages.key"))?;
        let faults_listener = FaultListener { address: ports.get(9), key: cloud.faults_key().clone() };
        let platform = platform::PlatformOptions {
            address: ports.get(8),
            faults: Some(faults_listener),
            ..platform::PlatformOptions::default()
        };
        let platform = Platform::start(platform, &mut emulated).context("cannot start the emulated HCP Terraform")?;
        let platform_token = dir.join("platform.token");
        write_private(&platform_token, &platform.faults().mint("the gateway of keyward dev").token)?;
        let endpoints = DevEndpoints {
            cloud: dev_cloud,
            config: dir.join("keyward.toml"),
            metadata: cloud.metadata_url().to_string(),
            authority: cloud.authority_url().to_string(),
            acl: format!("http://{}", ports.get(5)),
            secrets: secrets.url().to_owned(),
            socket: dir.join("agent.sock"),
            vault: dir.join("vault.sock"),
            local_api: ports.get(6),
            local_key,
            pages: ports.get(11),
            pages_key,
            health: ports.get(7),
            cloud_faults: cloud.faults_url().unwrap_or_default().to_owned(),
            secrets_faults: secrets.faults_url().unwrap_or_default().to_owned(),
            platform: platform.url().to_owned(),
            platform_faults: platform.faults_url().unwrap_or_default().to_owned(),
            platform_token,
            gateway: ports.get(10),
            gateway_token: dir.join("state/gateway.token"),
            terraform: secure_dir::create_private(&dir.join("terraform"), 0o077)?.join("keyward.tfrc.json"),
            faults_key,
            acl_token: dir.join("acl-root.token"),
            authority_ca: cloud.ca_file(),
            cloud_variables: dev_cloud.variables(&cloud),
            dir,
        };
        atomic_file::replace(&endpoints.dir.join("terraform/main.tf"), guide::TERRAFORM.as_bytes(), &PRIVATE)?;
        let text = guide::config_file(&endpoints, &cloud);
        atomic_file::replace(&endpoints.config, text.as_bytes(), &PRIVATE)?;
        let app = App::build(load(&endpoints)?, ProcessSetup::default()).await?;
        endpoints.publish()?;
        atomic_file::replace(&endpoints.dir.join("guide.txt"), guide::format_guide(&endpoints).as_bytes(), &PRIVATE)?;
        Ok(Self { app, emulated, endpoints, _lock: lock })
    }

    /// One screen: what runs where, and what to try.
    pub fn guide(&self) -> String {
        guide::format_overview(&self.endpoints)
    }
}

impl DevEndpoints {
    /// Creates the first token of the ACL server unless it exists. Waits until the server answers.
    ///
    /// # Errors
    /// The server refuses, for example because someone has already bootstrapped it.
    pub async fn bootstrap_acl(&self) -> anyhow::Result<()> {
        if self.acl_token.exists() {
            return Ok(());
        }
        let http = loopback_options(ServerAddress::Url(self.acl.parse()?));
        let client = AclClient::new(&AclClientOptions { http, token: None, namespace: None })?;
        let token = client.bootstrap(None).await.context("the ACL server gives no first token")?;
        let secret = token.secret_id.context("the ACL server does not tell the first token's secret")?;
        write_private(&self.acl_token, &secret)
    }
}

/// Loads the configuration, with the cloud's endpoints replaced by the emulated ones.
fn load(endpoints: &DevEndpoints) -> anyhow::Result<Config> {
    let outcome = config::load(std::slice::from_ref(&endpoints.config), &endpoints.environment(), Purpose::Run);
    let errors: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
    let mut config = outcome.config.with_context(|| errors.join("\n"))?;
    endpoints.move_endpoints(&mut config)?;
    Ok(config)
}

fn loopback_options(address: ServerAddress) -> ClientOptions {
    ClientOptions {
        address,
        tls: TlsOptions::default(),
        proxy: ProxyMode::Direct,
        connect_timeout: Duration::from_secs(5),
        response_timeout: Duration::from_secs(40),
    }
}

fn loopback_client(address: ServerAddress) -> anyhow::Result<Client> {
    Ok(loopback_options(address).build()?)
}

const PRIVATE: Attributes = Attributes { mode: 0o600, owner: None, group: None };

/// Locks the folder against a second `keyward dev`, which would overwrite keys and files.
fn lock_dir(dir: &Path) -> anyhow::Result<File> {
    let path = dir.join(".lock");
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
    let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            anyhow::anyhow!("another keyward dev runs in {}; stop it, or choose another --dir", dir.display())
        }
        TryLockError::Error(error) => anyhow::Error::new(error).context(format!("cannot lock {}", path.display())),
    })?;
    Ok(lock)
}

/// Removes the owner record of the local token: the emulated platform has another port at each start. The lock protects
/// against other gateways.
fn remove_owner_record(owner: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(owner) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(anyhow::Error::new(error).context(format!("cannot remove {}", owner.display())))
        }
        _ => Ok(()),
    }
}

fn write_private(path: &Path, secret: &SecretString) -> anyhow::Result<()> {
    atomic_file::replace(path, secret.expose_secret().as_bytes(), &PRIVATE)?;
    Ok(())
}

/// Creates a key file unless it exists.
fn make_key(path: PathBuf) -> anyhow::Result<PathBuf> {
    if !path.exists() {
        write_private(&path, &random_key()?)?;
    }
    Ok(path)
}

fn random_key() -> anyhow::Result<SecretString> {
    use base64::Engine as _;
    let mut bytes = [0_u8; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow::anyhow!("the kernel returned no random bytes"))?;
    Ok(SecretString::from(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)))
}
