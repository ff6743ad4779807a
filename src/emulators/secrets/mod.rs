//! Emulated Vault or OpenBao: logins, tokens and child tokens, wrapping, leases, key-value stores of both versions, and
//! engines for credentials of HCP Terraform, databases, and certificates.
//!
//! It speaks Vault's HTTP API as far as clients of these use it, and keeps everything in memory. Policies are lists of
//! paths, mounts are fixed, and nothing that depends on a real server's storage is checked. For trials and tests, never
//! for real secrets.

mod aws_login;
mod bounds;
mod cloud_method;
mod cloud_services;
mod faults;
mod faults_api;
mod gcp_login;
mod go_json;
mod jwt_bounds;
mod kv;
mod leases;
mod leases_api;
mod login;
mod login_method;
mod pki;
mod policies;
mod reply;
mod route;
mod sec1;
mod secret_ids;
mod serve;
mod ssh;
mod system;
pub mod terraform;
mod token_api;
mod token_roles;
mod tokens;
mod verify;
mod handler;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyward_http::client::BuildError;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use url::Url;

use crate::control_listener;

pub(crate) use crate::control_listener::BindError;
pub use crate::control_listener::FaultListener;
pub use aws_login::{AwsMethod, AwsRole};
pub use bounds::Bounds;
pub use cloud_method::CloudMethod;
pub use cloud_services::CloudServices;
pub use faults::{CannedResponse, FaultInjector, Operation, OperationCounts};
pub use faults_api::Fault;
pub use gcp_login::{GcpMethod, GcpRole, GcpRoleKind};
pub use jwt_bounds::JwtBounds;
pub use leases::LeaseTerms;
pub use login_method::{AppRoleMethod, LoginMethod};
pub use pki::CertificateRole;
pub(crate) use policies::Policies;
pub use ssh::SshRole;
pub use token_roles::TokenRole;
pub use tokens::TokenType;

/// Settings of an emulated Vault.
#[derive(Debug, Clone)]
pub struct SecretsOptions {
    /// Address; port 0 picks a free one.
    pub address: SocketAddr,
    /// TLS configuration; `None` for plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Clock of tokens and leases.
    pub clock: Clock,
    /// Path of the Azure auth method, such as `azure`.
    pub mount: String,
    /// Other auth methods, by path.
    pub methods: BTreeMap<String, LoginMethod>,
    /// Auth methods of AWS and Google Cloud, by path. Their roles are theirs.
    pub cloud_methods: BTreeMap<String, CloudMethod>,
    /// Verification of login proofs by the Azure auth method.
    pub verification: Verification,
    /// Roles by name.
    pub roles: BTreeMap<String, Role>,
    /// Policies by name; names without an entry allow everything.
    pub policies: Policies,
    /// Roles of the token method, by name: `auth/token/create/ROLE`.
    pub token_roles: BTreeMap<String, TokenRole>,
    /// Settings of the `terraform` engine.
    pub terraform: terraform::TerraformEngineOptions,
    /// Roles of `database/creds/ROLE`, which returns a name and a password.
    pub database: BTreeMap<String, LeaseTerms>,
    /// Roles of `pki/issue/ROLE` and `pki/sign/ROLE`.
    pub certificates: BTreeMap<String, CertificateRole>,
    /// Roles of `ssh/sign/ROLE`.
    pub ssh: BTreeMap<String, SshRole>,
    /// Fault injection over HTTP; `None` for in-process use only.
    pub faults: Option<FaultListener>,
}

impl SecretsOptions {
    /// Creates settings for a free loopback port that admit every login as `role`, for tests of later steps. Certificates
    /// have the role `web`, and those of SSH the roles `user` and `host`.
    pub fn for_anyone(clock: Clock, role: &str, settings: Role) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            clock,
            mount: "azure".to_owned(),
            methods: BTreeMap::new(),
            cloud_methods: BTreeMap::new(),
            verification: Verification::Anyone,
            roles: BTreeMap::from([(role.to_owned(), settings)]),
            policies: Policies::new(),
            token_roles: BTreeMap::new(),
            terraform: terraform::TerraformEngineOptions::default(),
            database: BTreeMap::new(),
            certificates: BTreeMap::from([("web".to_owned(), CertificateRole::default())]),
            ssh: BTreeMap::from([
                ("user".to_owned(), SshRole::for_users("deploy,admin")),
                ("host".to_owned(), SshRole::for_hosts("example.com,localhost")),
            ]),
            faults: None,
        }
    }
}

/// Verification of login proofs.
#[derive(Debug, Clone)]
pub enum Verification {
    /// None: every login is admitted. For tests of token lifetimes.
    Anyone,
    /// As in the real auth method: signature, issuer, audience, times, and the role's bounds.
    Cloud {
        /// Discovery document of the issuer: `https://.../.well-known/openid-configuration`.
        discovery: Url,
        /// PEM file of the CA to trust for that.
        ca_file: PathBuf,
        /// Required audience, compared byte for byte.
        audience: String,
    },
}

/// Properties of tokens for a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Names of policies.
    pub policies: Vec<String>,
    /// Lifetime of a token, and of each renewal; zero for no expiry.
    pub ttl: Duration,
    /// Maximum lifetime over all renewals; `None` for no maximum.
    pub max_ttl: Option<Duration>,
    /// Type of the tokens.
    pub token_type: TokenType,
    /// True if tokens may be renewed.
    pub renewable: bool,
    /// Number of uses after which a token ends; 0 for no limit.
    pub num_uses: u64,
    /// Identities that are admitted, if proofs are verified.
    pub bounds: Bounds,
}

impl Default for Role {
    /// Creates a role with renewable service tokens of one hour, at most four.
    fn default() -> Self {
        Self {
            policies: vec!["default".to_owned()],
            ttl: Duration::from_hours(1),
            max_ttl: Some(Duration::from_hours(4)),
            token_type: TokenType::Service,
            renewable: true,
            num_uses: 0,
            bounds: Bounds::default(),
        }
    }
}

/// A running emulated Vault. It stops with its task group.
#[derive(Debug, Clone)]
pub struct Secrets {
    url: String,
    faults_url: Option<String>,
    faults: FaultInjector,
    clock: Clock,
}

impl Secrets {
    /// Binds the addresses and serves in `tasks`. Must be called inside a runtime.
    pub fn start(options: SecretsOptions, tasks: &mut TaskGroup) -> Result<Self, StartError> {
        let (listener, port) = control_listener::bind_reserved_loopback(options.address)?;
        let url = format!("{}://{}", if options.tls.is_some() { "https" } else { "http" }, port.address());
        let stop = tasks.stop_token();
        let faults = FaultInjector::default();
        let serve_faults = |listener| {
            control_listener::serve_faults(listener, faults.clone(), "fault injection of the emulated Vault", tasks)
        };
        let faults_url = options.faults.clone().map(serve_faults).transpose()?;
        let tls = options.tls.clone();
        let clock = options.clock.clone();
        let handler = Arc::new(handler::RequestHandler::new(options, faults.clone())?);
        tasks.start("emulated Vault", serve::serve(listener, port, tls, handler, stop));
        Ok(Self { url, faults_url, faults, clock })
    }

    /// Base URL, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// URL of the fault injection over HTTP, if enabled.
    pub fn faults_url(&self) -> Option<&str> {
        self.faults_url.as_deref()
    }

    /// Issues a token without a login.
    pub fn token(&self, role: &Role) -> SecretString {
        let origin = tokens::Origin {
            path: "auth/token/create".to_owned(),
            display_name: "token".to_owned(),
            ..tokens::Origin::default()
        };
        let now = self.clock.now();
        let auth = self.faults.with_tokens(|tokens| tokens.issue(role, origin, None, now));
        auth["client_token"].as_str().unwrap_or_default().into()
    }

    /// Returns the remaining lifetime of a token: `None` if it is not valid, [`Duration::MAX`] if it never expires.
    pub fn remaining(&self, token: &str) -> Option<Duration> {
        self.faults.with_tokens(|tokens| tokens.remaining(token, self.clock.now()))
    }

    /// Handle for injecting faults and reading counters.
    pub const fn faults(&self) -> &FaultInjector {
        &self.faults
    }
}

/// Error of starting the emulated Vault.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The client of the issuer or the platform cannot be built.
    #[error("cannot build a client of the issuer or of the platform")]
    Client(#[from] BuildError),
    /// The kernel returned no random bytes.
    #[error("cannot make the emulated authority")]
    Authority,
}
