//! Sections of the configuration as the other crates take them, each with the options that it is converted to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use keyward_agent::api_proxy::ApiProxyOptions;
use keyward_agent::callers::CallerPolicy;
use keyward_agent::certificates::{CertificateOptions, CertificateRequest, RenewalPolicy};
use keyward_agent::identity::X509SvidOptions;
use keyward_agent::secrets::{DerivedTokenKind, DerivedTokenOptions, OfflineOptions, SecretRequest};
use keyward_agent::sinks::SinkOptions;
use keyward_agent::systemd_credentials::GrantRule;
use keyward_agent::templates::TemplateOptions;
use keyward_agent::{identity, login, server_client, token_lifecycle};
use keyward_http::guard;
use keyward_http::server::Endpoint;
use keyward_http::tls::ServerCertificate;
use tracing::level_filters::LevelFilter;

/// One chain of identity, login and token.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Name of letters, digits, `-` and `_`.
    pub name: String,
    /// The server that it logs in to.
    pub upstream: server_client::ServerClientOptions,
    /// Login to the server.
    pub login: login::LoginOptions,
    /// Source of the identity that it logs in with.
    pub identity: identity::IdentityMethod,
    /// Settings for renewal, checks and state of its token.
    pub lifecycle: token_lifecycle::TokenLifecycleOptions,
}

/// User name and password in a secret, for the credential helpers of Docker and git. The helpers read the secret through the
/// running agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Name of the section.
    pub name: String,
    /// Name of the session that reads the secret.
    pub session: String,
    /// The hosts that it is for, each with its port where that is not the usual one; in lower case.
    pub hosts: Vec<String>,
    /// The secret's path, without `/v1/`.
    pub path: String,
    /// The user's name, unless the secret holds it.
    pub username: Option<String>,
    /// The field that holds the user's name otherwise.
    pub username_field: String,
    /// The field that holds the password.
    pub password_field: String,
}

/// A file that holds a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// Origin of the token.
    pub origin: SinkOrigin,
    /// Options of the sink, with its name.
    pub options: SinkOptions,
    /// Derived or wrapped token to write; `None` writes the session's token itself.
    pub derive: Option<DerivedTokenKind>,
}

/// Origin of the token in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkOrigin {
    /// The session of this name.
    Session(String),
    /// An identity for tools.
    Identity(IdentityTokenName),
}

/// A token of an identity for tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityTokenName {
    /// Name of the identity.
    pub identity: String,
    /// One of its resources.
    pub resource: String,
}

impl Sink {
    /// Returns the session whose token the file holds; `None` for a token of an identity.
    pub fn session(&self) -> Option<&str> {
        match &self.origin {
            SinkOrigin::Session(session) => Some(session),
            SinkOrigin::Identity(_) => None,
        }
    }
}

/// File or variable rendered from secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Name of the session that reads its secrets.
    pub session: String,
    /// Options of the template, with its name.
    pub options: TemplateOptions,
    /// Settings of its session's secrets.
    pub secrets: SecretSettings,
}

/// A certificate in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Its issuer.
    pub issuer: CertificateIssuer,
    /// Options of the certificate, with its name.
    pub options: CertificateOptions,
}

/// Issuer of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateIssuer {
    /// An engine of a session's server.
    Engine(Box<EngineCertificate>),
    /// SPIFFE's Workload API.
    WorkloadApi(X509SvidOptions),
}

/// Requests of a certificate to an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCertificate {
    /// Name of the session that requests it.
    pub session: String,
    /// Settings of its session's secrets.
    pub secrets: SecretSettings,
    /// The request that issues it.
    pub request: CertificateRequest,
    /// Times at which it is replaced.
    pub renewal: RenewalPolicy,
}

impl Certificate {
    /// Returns the requests to an engine; `None` for a certificate of another issuer.
    pub fn engine(&self) -> Option<&EngineCertificate> {
        match &self.issuer {
            CertificateIssuer::Engine(engine) => Some(engine),
            CertificateIssuer::WorkloadApi(_) => None,
        }
    }
}

/// Settings of the secrets of a session, which all that read them share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSettings {
    /// Time between reads of a secret without a lease.
    pub interval: Duration,
    /// Time between writes whose result tells no end; `None` for never.
    pub rewrite_interval: Option<Duration>,
    /// Time between polls of the versions of secrets in key-value version 2; `None` for never.
    pub version_interval: Option<Duration>,
    /// True if the server's events are followed.
    pub events: bool,
    /// File that keeps the secrets across restarts; `None` if they are not saved.
    pub offline: Option<OfflineOptions>,
}

/// A socket that is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// Name of the section.
    pub name: String,
    /// API that it serves.
    pub serves: Serves,
    /// Address that it listens on.
    pub endpoint: Endpoint,
    /// Certificate of an API proxy that callers reach by TLS; that of pages is in `serves`.
    pub tls: Option<ServerCertificate>,
    /// Checks that decide which requests are served.
    pub guard: guard::GuardOptions,
    /// Names of the sessions that it may serve.
    pub sessions: Vec<String>,
    /// Derived token that is served instead of each session's token; `None` serves the session's token.
    pub derived_token: Option<DerivedTokenOptions>,
    /// Threads that serve it; more than one only for an API proxy.
    pub threads: usize,
    /// Callers and their rights, on listeners that serve tokens; `None` without any.
    pub callers: Option<CallerPolicy>,
    /// True if readiness depends on the listener.
    pub required: bool,
}

/// API that a listener serves.
#[derive(Debug, Clone, PartialEq)]
pub enum Serves {
    /// Tokens, status, check, health and metrics.
    LocalApi,
    /// Only health and metrics.
    Health,
    /// The API of Vault, OpenBao or an ACL server, with the token of its one session.
    ApiProxy(Box<ApiProxyOptions>),
    /// Tokens of these identities, by name, for tools of clouds.
    Identity(Vec<String>),
    /// Credentials that systemd loads for units.
    SystemdCredentials(Box<SystemdCredentials>),
    /// Pages for a browser, over TLS if there is a certificate.
    #[cfg(feature = "ui")]
    Ui(Option<ServerCertificate>),
}

impl Serves {
    /// Returns true if callers get a session's token, or use it.
    pub const fn uses_tokens(&self) -> bool {
        matches!(self, Self::LocalApi | Self::ApiProxy(_) | Self::SystemdCredentials(_))
    }

    /// Returns true for pages.
    pub(crate) const fn is_ui(&self) -> bool {
        match self {
            #[cfg(feature = "ui")]
            Self::Ui(_) => true,
            Self::LocalApi | Self::Health | Self::ApiProxy(_) | Self::Identity(_) | Self::SystemdCredentials(_) => {
                false
            }
        }
    }

    /// Returns the certificate of pages.
    pub(crate) const fn ui_certificate(&self) -> Option<&ServerCertificate> {
        match self {
            #[cfg(feature = "ui")]
            Self::Ui(certificate) => certificate.as_ref(),
            _ => None,
        }
    }

    /// Returns true if callers of other machines may be served.
    pub const fn allows_other_machines(&self) -> bool {
        match self {
            Self::Health => true,
            #[cfg(feature = "ui")]
            Self::Ui(certificate) => certificate.is_some(),
            Self::LocalApi | Self::ApiProxy(_) | Self::Identity(_) | Self::SystemdCredentials(_) => false,
        }
    }
}

/// Levels and format of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The level of all other targets.
    pub level: LevelFilter,
    /// Levels of targets, by the start of their name.
    pub targets: BTreeMap<String, LevelFilter>,
    /// Format of a line.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: an object a line.
    Json,
}

/// The process as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Folder of files that survive a restart; `None` if the default one does not exist and nothing needs it.
    pub state_dir: Option<PathBuf>,
    /// Rights that the process gives up after its start.
    pub sandbox: SandboxMode,
    /// Condition on which keyward reports to the service manager that it is ready.
    pub ready: ReadyWhen,
    /// Maximum time for requests in flight to end after the stop signal.
    pub stop_grace: Duration,
}

/// Sandbox that the process puts itself in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxMode {
    /// All of it, or the process does not start.
    Enforce,
    /// All that the kernel has.
    BestEffort,
    /// None.
    Off,
}

impl SandboxMode {
    /// All modes, the strictest first.
    pub const ALL: [Self; 3] = [Self::Enforce, Self::BestEffort, Self::Off];

    /// Returns the word of the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::BestEffort => "best_effort",
            Self::Off => "off",
        }
    }
}

/// When the agent is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadyWhen {
    /// When its listeners are bound.
    Listener,
    /// When every session has its first token.
    Token,
    /// The same, and every output not marked `required = false` has used it.
    Outputs,
}

/// Credentials of a listener for systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemdCredentials {
    /// Longest time that a unit waits for a credential.
    pub wait: Duration,
    /// The credentials, by name.
    pub grants: Vec<CredentialGrant>,
}

/// A credential, and the units that may load it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialGrant {
    /// Name of the section.
    pub name: String,
    /// Units, and the id that they ask for.
    pub rule: GrantRule,
    /// Name of the session whose token it is, or that reads its secrets.
    pub session: String,
    /// Source of its value.
    pub content: CredentialContent,
}

/// Source of a credential's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialContent {
    /// The session's token, or the listener's derived token of it.
    Token,
    /// A field of a secret.
    Secret {
        /// The read of the secret.
        request: SecretRequest,
        /// The field.
        field: String,
        /// Settings of the session's secrets.
        secrets: SecretSettings,
    },
    /// A rendered text.
    Template(Box<Template>),
}

impl Listener {
    /// Returns its credentials for systemd; empty for another kind of listener.
    pub fn systemd_credentials(&self) -> &[CredentialGrant] {
        match &self.serves {
            Serves::SystemdCredentials(credentials) => &credentials.grants,
            _ => &[],
        }
    }

    /// Returns true if it serves the token of this session, one of its own.
    pub fn serves_token_of(&self, session: &str) -> bool {
        let is_token = |grant: &CredentialGrant| grant.session == session && grant.content == CredentialContent::Token;
        match &self.serves {
            Serves::SystemdCredentials(credentials) => credentials.grants.iter().any(is_token),
            _ => self.serves.uses_tokens(),
        }
    }

    /// Returns the templates of its credentials.
    pub fn credential_templates(&self) -> impl Iterator<Item = &Template> {
        self.systemd_credentials().iter().filter_map(|grant| match &grant.content {
            CredentialContent::Template(template) => Some(&**template),
            CredentialContent::Token | CredentialContent::Secret { .. } => None,
        })
    }

    /// Returns the settings by which its credentials' secrets are read: the session, the interval, and the file across
    /// restarts.
    pub fn credential_secrets(&self) -> impl Iterator<Item = (&String, &SecretSettings)> {
        self.systemd_credentials().iter().filter_map(|grant| match &grant.content {
            CredentialContent::Secret { secrets, .. } => Some((&grant.session, secrets)),
            CredentialContent::Token | CredentialContent::Template(_) => None,
        })
    }
}

impl SystemdCredentials {
    /// Sets whether readiness depends on them.
    pub(super) fn require(&mut self, required: bool) {
        for grant in &mut self.grants {
            if let CredentialContent::Template(template) = &mut grant.content {
                template.options.required = required;
            }
        }
    }
}
