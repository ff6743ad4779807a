//! The emulated secrets server: logins, tokens and their children, wrapping, leases, key-value stores of both versions, and
//! engines that lend credentials of the provisioning platform, names and passwords, and certificates.
//!
//! It speaks Vault's wire as far as clients of these use it, and keeps everything in memory. What it says is emulated: its
//! policies are lists of paths, its mounts are fixed, and it checks nothing that a real server's storage would. It is for
//! trials and tests, never for real secrets.

mod bounds;
mod faults;
mod faults_api;
mod kv;
mod leases;
mod leases_api;
mod login;
mod pki;
mod policies;
mod reply;
mod route;
mod serve;
mod system;
pub mod terraform;
mod token_api;
mod tokens;
mod verify;
mod handler;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::clock::Clock;
use crate::emulators::control_listener;
use crate::http::client::BuildError;
use crate::tasks::TaskGroup;

pub use crate::emulators::control_listener::{BindError, FaultListener};
pub use bounds::Bounds;
pub use faults::{CannedResponse, Operation, OperationCounts, SecretsFaultInjector};
pub use leases::LeaseTerms;
pub use login::LoginMethod;
pub use policies::Policies;
pub use tokens::TokenType;

/// What an emulated secrets server is made from.
#[derive(Debug, Clone)]
pub struct SecretsOptions {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// TLS, where it is to be spoken.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The time that tokens live by.
    pub clock: Clock,
    /// Path of its auth method for clouds, such as `azure`.
    pub mount: String,
    /// Other auth methods, by their path.
    pub methods: BTreeMap<String, LoginMethod>,
    /// How a login's proof is checked.
    pub verification: Verification,
    /// The roles, by name.
    pub roles: BTreeMap<String, Role>,
    /// What the policies of tokens allow, for those that are not to allow everything.
    pub policies: Policies,
    /// Credentials of the provisioning platform.
    pub terraform: terraform::TerraformEngineOptions,
    /// The roles of `database/creds/ROLE`, which gives names and passwords.
    pub database: BTreeMap<String, LeaseTerms>,
    /// The dials over HTTP; `None` leaves them to the process.
    pub faults: Option<FaultListener>,
}

impl SecretsOptions {
    /// A server on a free loopback port that lets anyone in as `role`, for tests of what comes after a login.
    pub fn for_anyone(clock: Clock, role: &str, settings: Role) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            clock,
            mount: "azure".to_owned(),
            methods: BTreeMap::new(),
            verification: Verification::Anyone,
            roles: BTreeMap::from([(role.to_owned(), settings)]),
            policies: Policies::new(),
            terraform: terraform::TerraformEngineOptions::default(),
            database: BTreeMap::new(),
            faults: None,
        }
    }
}

/// How a login's proof is checked.
#[derive(Debug, Clone)]
pub enum Verification {
    /// Not at all: whatever is there is let in. For tests of the token's life, which are not about the proof.
    Anyone,
    /// As the real auth method does: signature, issuer, audience, times, and the role's bounds.
    Cloud {
        /// Where the issuer tells its name and keys: `https://.../.well-known/openid-configuration`.
        discovery: Url,
        /// PEM file with the certificate to trust for that.
        ca_file: PathBuf,
        /// The audience that a proof must have, byte for byte.
        audience: String,
    },
}

/// What a role gives to those who log in to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Names of policies.
    pub policies: Vec<String>,
    /// Life of a token, and of each renewal; zero for a token without an end.
    pub ttl: Duration,
    /// No renewal leads past this life; `None` for no such end.
    pub max_ttl: Option<Duration>,
    /// What kind of token.
    pub token_type: TokenType,
    /// Whether the token may be renewed.
    pub renewable: bool,
    /// Number of uses after which a token ends; 0 for no such end.
    pub num_uses: u64,
    /// Whom it lets in, where proofs are checked.
    pub bounds: Bounds,
}

impl Default for Role {
    /// Renewable service tokens of an hour, at most four.
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

/// A running emulated secrets server. It ends with the tasks that it was started in.
#[derive(Debug, Clone)]
pub struct Secrets {
    url: String,
    faults_url: Option<String>,
    faults: SecretsFaultInjector,
    clock: Clock,
}

impl Secrets {
    /// Binds the addresses and serves in `tasks`. Must be called inside a runtime.
    ///
    /// # Errors
    /// An address cannot be had or is open to other machines, or the CA file cannot be used.
    pub fn start(options: SecretsOptions, tasks: &mut TaskGroup) -> Result<Self, SecretsStartError> {
        let (listener, address) = control_listener::bind_loopback(options.address)?;
        let url = format!("{}://{address}", if options.tls.is_some() { "https" } else { "http" });
        let stop = tasks.stop_token();
        let faults = SecretsFaultInjector::default();
        let mut faults_url = None;
        if let Some(door) = options.faults.clone() {
            let (listener, address) = control_listener::bind_loopback(door.address)?;
            faults_url = Some(format!("http://{address}/dials"));
            let routes = faults_api::routes(faults.clone(), door.key);
            tasks
                .start("dials of the emulated secrets server", control_listener::serve(listener, routes, stop.clone()));
        }
        let (tls, clock) = (options.tls.clone(), options.clock.clone());
        let handler = Arc::new(handler::RequestHandler::new(options, faults.clone())?);
        tasks.start("emulated secrets server", serve::serve(listener, address, tls, handler, stop));
        Ok(Self { url, faults_url, faults, clock })
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the dials are over HTTP, if they are.
    pub fn faults_url(&self) -> Option<&str> {
        self.faults_url.as_deref()
    }

    /// A new token that nobody logged in for.
    pub fn token(&self, role: &Role) -> SecretString {
        let origin = tokens::Origin { path: "auth/token/create".to_owned(), ..tokens::Origin::default() };
        let now = self.clock.now();
        let auth = self.faults.with_tokens(|tokens| tokens.issue(role, origin, None, now));
        auth["client_token"].as_str().unwrap_or_default().into()
    }

    /// What makes it fail, and counts what it is asked.
    pub const fn faults(&self) -> &SecretsFaultInjector {
        &self.faults
    }
}

/// Why the emulated secrets server did not start.
#[derive(Debug, thiserror::Error)]
pub enum SecretsStartError {
    /// An address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No client of the issuer, or of the provisioning platform, could be made.
    #[error("cannot ask the issuer of proofs, or the provisioning platform")]
    Client(#[from] BuildError),
    /// The system's random generator failed.
    #[error("cannot make the emulated authority")]
    Authority,
}
