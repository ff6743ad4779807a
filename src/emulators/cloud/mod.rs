//! Emulated cloud of one provider. Azure: metadata service, identity endpoints, token endpoint, signing keys, and a projected token
//! file. AWS: metadata service version 2 and STS. Google Cloud: metadata server, and the APIs that a login needs.
//!
//! It speaks the real services' HTTP with real TLS and real signatures, but every response says in its `Server` header that it is
//! emulated. The issuer of Azure's tokens is its own address; Google's have the real name, and only its own keys verify them. It does
//! not cache tokens, unlike Azure's real metadata service, which does for about a day. Keys and ids are generated at the first start
//! in the given folder.

mod app_service;
mod arc;
mod assertion;
mod authority;
mod aws_account;
mod aws_metadata;
mod aws_signature;
mod aws_sts;
mod certificates;
mod faults;
mod faults_api;
mod federated;
mod folder;
mod google_apis;
mod google_metadata;
mod google_project;
mod keys;
mod metadata;
mod identities;
mod own_user;
mod serve;
mod tokens;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::secure_dir::DirError;
use keyward_machine::tasks::TaskGroup;
use url::Url;

use crate::control_listener::{self, BindError, FaultListener};
use aws_account::AwsAccount;
use folder::PrivateDir;
use google_project::GoogleProject;
use keys::SigningKey;
use serve::{EmulatedListener, bind, url};

pub use aws_account::AwsNames;
pub(crate) use faults::FaultInjector;
pub use faults::{Failure, FaultTarget};
pub use faults_api::Fault;
pub use google_project::GcpNames;
pub use identities::CloudIdentities;
pub(crate) use identities::Identity;

/// Settings of the emulated cloud.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// Folder for keys, ids and the projected token; created with mode 0700.
    pub(crate) dir: PathBuf,
    /// Address of the metadata service and of the App Service and Arc endpoints, over plain HTTP. Loopback or
    /// 169.254.169.254; port 0 picks a free one.
    pub metadata: SocketAddr,
    /// Address of the token endpoint, discovery and keys, over TLS. Loopback; port 0 picks a free one.
    pub authority: SocketAddr,
    /// Address of the fault injection over plain HTTP; `None` for in-process use only. Loopback; port 0 picks a free
    /// one.
    pub faults: Option<SocketAddr>,
    /// Provider whose services are emulated.
    pub provider: CloudProvider,
    /// Kind of machine that Azure's metadata service reports.
    pub machine: MachineKind,
    /// Lifetime of Azure's tokens.
    pub(crate) token_life: Duration,
    /// Lifetime of a projected federated token; it is replaced after four fifths of that.
    pub(crate) federated_life: Duration,
    /// Clock that tokens are dated by.
    pub clock: Clock,
    /// The metadata service serves only root and the user of this process, where the kernel tells whose a connection is. A real one
    /// serves every process of its machine.
    pub own_user_only: bool,
}

impl CloudOptions {
    /// Creates settings for a virtual machine on free loopback ports, with the real cloud's lifetimes.
    pub fn in_folder(dir: PathBuf) -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            dir,
            metadata: free,
            authority: free,
            faults: None,
            provider: CloudProvider::Azure,
            machine: MachineKind::VirtualMachine,
            token_life: Duration::from_hours(24),
            federated_life: Duration::from_hours(1),
            clock: Clock::System,
            own_user_only: false,
        }
    }
}

/// Provider of an emulated cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudProvider {
    /// Microsoft Azure.
    Azure,
    /// Amazon Web Services.
    Aws,
    /// Google Cloud.
    Gcp,
}

impl CloudProvider {
    /// Returns the names of the services that the TLS listener stands for, beside its address.
    const fn hosts(self) -> &'static [&'static str] {
        match self {
            Self::Azure => &[],
            Self::Aws => &["sts.amazonaws.com", "sts.eu-west-1.amazonaws.com"],
            Self::Gcp => &[
                "www.googleapis.com",
                "oauth2.googleapis.com",
                "iam.googleapis.com",
                "iamcredentials.googleapis.com",
                "compute.googleapis.com",
            ],
        }
    }
}

/// Kind of the emulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineKind {
    /// A standalone virtual machine.
    VirtualMachine,
    /// A member of a scale set with uniform orchestration.
    ScaleSet,
    /// An app of App Service.
    App,
}

/// A running emulated cloud. It stops with its task group.
#[derive(Debug)]
pub struct Cloud {
    state: Arc<State>,
    metadata_url: Url,
    faults_url: Option<String>,
    folder: PrivateDir,
}

/// State shared by all endpoints.
#[derive(Debug)]
struct State {
    identities: CloudIdentities,
    provider: CloudProvider,
    machine: MachineKind,
    authority: Url,
    token_life: Duration,
    clock: Clock,
    faults: FaultInjector,
    signing_key: SigningKey,
    cluster_key: SigningKey,
    certificate: certificates::AppCertificate,
    arc_tokens: PathBuf,
    aws: AwsAccount,
    google: GoogleProject,
}

impl Cloud {
    /// Creates missing files, binds the listeners and serves in `tasks`. Must be called inside a runtime.
    pub fn start(options: CloudOptions, tasks: &mut TaskGroup) -> Result<Self, StartError> {
        for address in [options.metadata, options.authority] {
            if !address.ip().is_loopback() && address.ip() != METADATA_ADDRESS {
                return Err(StartError::NotLoopback(address));
            }
        }
        let folder = PrivateDir::open(&options.dir)?;
        let identities = CloudIdentities::load_or_make(&folder)?;
        let certificate = certificates::AppCertificate::load_or_make(&folder)?;
        let (metadata, metadata_port) = bind(options.metadata)?;
        let (authority, authority_port) = bind(options.authority)?;
        let metadata_address = metadata_port.address();
        let authority_address = authority_port.address();
        let tls = certificates::server(&folder, authority_address.ip(), options.provider.hosts())?;
        let signing_key = SigningKey::load_or_make(&folder, "signing-key.der")?;
        let cluster_key = SigningKey::load_or_make(&folder, "cluster-key.der")?;
        let google = match options.provider {
            CloudProvider::Gcp => GoogleProject::new(&signing_key, &cluster_key, &certificate.key)?,
            CloudProvider::Azure | CloudProvider::Aws => GoogleProject::default(),
        };
        let state = Arc::new(State {
            provider: options.provider,
            machine: options.machine,
            authority: url("https", authority_address),
            token_life: options.token_life,
            clock: options.clock,
            faults: FaultInjector::default(),
            signing_key,
            cluster_key,
            certificate,
            arc_tokens: folder.create_subfolder("arc-tokens")?,
            aws: AwsAccount::default(),
            google,
            identities,
        });
        let (plain, secure) = match options.provider {
            CloudProvider::Azure => {
                (metadata::routes().merge(app_service::routes()).merge(arc::routes()), authority::routes())
            }
            CloudProvider::Aws => (aws_metadata::routes(), aws_sts::routes()),
            CloudProvider::Gcp => (google_metadata::routes(), google_apis::routes()),
        };
        let (plain, secure) = (plain.with_state(state.clone()), secure.with_state(state.clone()));
        let stop = tasks.stop_token();
        let (plain, peer_reader) = if options.own_user_only { own_user::restrict(plain) } else { (plain, None) };
        let (listener, port) = (metadata, metadata_port);
        let metadata = EmulatedListener { listener, port, router: plain, tls: None, peer_reader };
        let (listener, port) = (authority, authority_port);
        let authority = EmulatedListener { listener, port, router: secure, tls: Some(tls), peer_reader: None };
        tasks.start("emulated metadata service", metadata.serve(state.faults.clone(), stop.clone()));
        tasks.start("emulated authority", authority.serve(state.faults.clone(), stop.clone()));
        let serve_faults = |address| {
            let listener = FaultListener { address, key: state.identities.faults_key.clone() };
            let faults = state.faults.clone();
            control_listener::serve_faults(listener, faults, "fault injection of the emulated cloud", tasks)
        };
        let faults_url = options.faults.map(serve_faults).transpose()?;
        let projection = federated::Projection::start(&folder, state.clone(), options.federated_life)?;
        tasks.start("emulated projected token", projection.keep_fresh(stop));
        Ok(Self { state, metadata_url: url("http", metadata_address), faults_url, folder })
    }

    /// Base URL of the metadata service, such as `http://127.0.0.1:40001/`.
    pub fn metadata_url(&self) -> &Url {
        &self.metadata_url
    }

    /// Provider that is emulated.
    pub fn provider(&self) -> CloudProvider {
        self.state.provider
    }

    /// Base URL of the authority, such as `https://127.0.0.1:40002/`, for `AZURE_AUTHORITY_HOST`. With AWS it is STS's, with Google
    /// Cloud that of all its APIs.
    pub fn authority_url(&self) -> &Url {
        &self.state.authority
    }

    /// Issuer of the tokens (`iss`); discovery is below it at `.well-known/openid-configuration`.
    pub fn issuer(&self) -> String {
        self.state.issuer()
    }

    /// URL of the fault injection over HTTP, if enabled.
    pub fn faults_url(&self) -> Option<&str> {
        self.faults_url.as_deref()
    }

    /// Key of the fault injection over HTTP, sent as `X-Faults-Key`.
    pub fn faults_key(&self) -> &SecretString {
        &self.state.identities.faults_key
    }

    /// Handle for injecting faults in process.
    pub fn faults(&self) -> &FaultInjector {
        &self.state.faults
    }

    /// PEM file of the CA that signed the authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path(certificates::CA_FILE)
    }

    /// Ids of the tenant, the subscription, the machine and its identities.
    pub fn identities(&self) -> &CloudIdentities {
        &self.state.identities
    }

    /// Resource id of the machine.
    pub fn machine_id(&self) -> String {
        self.state.identities.machine_id(self.state.machine)
    }

    /// Folder of the Arc challenge files.
    pub fn arc_tokens(&self) -> &Path {
        &self.state.arc_tokens
    }

    /// Variables that the workload-identity webhook puts into a pod's environment.
    pub fn variables_for_workload_identity(&self) -> BTreeMap<String, String> {
        let token = self.folder.path(federated::TOKEN_FILE).display().to_string();
        let more = [("AZURE_FEDERATED_TOKEN_FILE", token)];
        self.variables(&self.state.identities.workload, more)
    }

    /// Variables of a service principal with a client secret.
    pub fn variables_for_client_secret(&self) -> BTreeMap<String, String> {
        let secret = self.state.identities.client_secret.expose_secret().to_owned();
        self.variables(&self.state.identities.application, [("AZURE_CLIENT_SECRET", secret)])
    }

    /// Variables of a service principal with a client certificate.
    pub fn variables_for_client_certificate(&self) -> BTreeMap<String, String> {
        let path = self.folder.path(certificates::APP_FILE).display().to_string();
        self.variables(&self.state.identities.application, [("AZURE_CLIENT_CERTIFICATE_PATH", path)])
    }

    /// JSON file content of the key of [`GcpNames::KEY_ACCOUNT`].
    ///
    /// # Errors
    /// The file of the key cannot be read.
    pub fn google_service_account_key(&self) -> std::io::Result<SecretString> {
        let pem = std::fs::read_to_string(self.folder.path(certificates::APP_FILE))?;
        let end = pem.find("-----BEGIN CERTIFICATE").unwrap_or(pem.len());
        let key = serde_json::json!({
            "type": "service_account", "project_id": GcpNames::PROJECT, "client_email": GcpNames::KEY_ACCOUNT,
            "client_id": GcpNames::KEY_ACCOUNT_ID, "private_key_id": self.state.certificate.key.id(),
            "private_key": pem.get(..end), "token_uri": "https://oauth2.googleapis.com/token",
        });
        Ok(key.to_string().into())
    }

    /// Variables that App Service puts into an app's environment.
    pub fn variables_for_app_service(&self) -> BTreeMap<String, String> {
        let header = self.state.identities.identity_header.expose_secret().to_owned();
        let endpoint = format!("{}msi/token", self.metadata_url);
        [("IDENTITY_ENDPOINT", endpoint), ("IDENTITY_HEADER", header)].map(|(name, value)| (name.into(), value)).into()
    }

    /// Variables that the Arc agent puts into a machine's environment.
    pub fn variables_for_arc(&self) -> BTreeMap<String, String> {
        let endpoint = format!("{}arc/metadata/identity/oauth2/token", self.metadata_url);
        let imds = format!("{}arc", self.metadata_url);
        [("IDENTITY_ENDPOINT", endpoint), ("IMDS_ENDPOINT", imds)].map(|(name, value)| (name.into(), value)).into()
    }

    fn variables<const N: usize>(&self, principal: &Identity, more: [(&str, String); N]) -> BTreeMap<String, String> {
        let shared = [
            ("AZURE_TENANT_ID", self.state.identities.tenant.clone()),
            ("AZURE_CLIENT_ID", principal.client_id.clone()),
            ("AZURE_AUTHORITY_HOST", self.state.authority.to_string()),
        ];
        shared.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

const METADATA_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));

/// Error of starting the emulated cloud.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder cannot be used.
    #[error(transparent)]
    PrivateDir(#[from] DirError),
    /// A file in the folder cannot be used.
    #[error("cannot use {}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        #[source]
        cause: std::io::Error,
    },
    /// An address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// Requested address.
        address: SocketAddr,
        /// Underlying error.
        #[source]
        cause: std::io::Error,
    },
    /// The address of the fault injection cannot be bound.
    #[error(transparent)]
    Faults(#[from] BindError),
    /// A key or certificate cannot be created or read.
    #[error("cannot make or read {what} (delete the emulated cloud's folder to begin anew)")]
    Key {
        /// Name of the key or certificate.
        what: &'static str,
    },
    /// An address is reachable from other machines.
    #[error("the emulated cloud listens on loopback or 169.254.169.254 only, not on {0}")]
    NotLoopback(SocketAddr),
}
