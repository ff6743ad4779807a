//! The configuration file: its format, its diagnostics, and the `Options` that it is converted to.
//!
//! [`load()`] reads files and folders into one tree, walks it with readers that record each error and continue, and returns a
//! [`Config`] if there was none.

// 0: diagnostics, the file as a tree, single values
pub(crate) mod diagnostic;
mod tree;
mod values;
mod named_path;
mod systemd_grant;
pub mod references;
pub mod migrate;
pub mod renamed;

// 1: tables, checks of the machine, the files
mod reader;
mod permissions;
mod host_checks;
mod files;

// 2: one file a section
pub mod agent;
pub mod server;
mod cloud;
mod method;
mod session;
mod derived_token;
mod sink;
mod api_proxy;
mod template;
mod process;
mod credential;
mod systemd_credentials;
mod listener;
mod caller;
mod audit;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "acl")]
mod acl;
#[cfg(feature = "gateway")]
mod mint;
#[cfg(feature = "gateway")]
mod platform_token;
#[cfg(feature = "gateway")]
mod gateway;

// 3: the whole, and its description
mod open_files;
mod load;
pub(crate) mod describe;
pub mod systemd;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use keyward_agent::api_proxy::ApiProxyOptions;
use keyward_agent::callers::CallerPolicy;
use keyward_agent::process::ProcessOptions;
use keyward_agent::secrets::{DerivedTokenKind, DerivedTokenOptions, OfflineOptions};
use keyward_agent::sinks::SinkOptions;
use keyward_agent::templates::TemplateOptions;
use keyward_agent::{identity, login, server_client, token_lifecycle};
use keyward_http::guard;
use keyward_http::server::Endpoint;
#[cfg(feature = "ui")]
use keyward_http::tls::ServerCertificate;
use keyward_telemetry::audit::AuditOptions;
use tracing::level_filters::LevelFilter;

#[cfg(feature = "acl")]
pub use self::acl::AclServer;
pub use self::caller::describe_token;
pub use self::diagnostic::{Diagnostic, Position};
#[cfg(feature = "gateway")]
pub use self::gateway::Gateway;
#[cfg(any(feature = "acl", feature = "gateway"))]
pub use self::load::load_section;
pub use self::load::{load, load_text};
pub(crate) use self::named_path::ReferencedPaths;
pub use self::named_path::{NamedPath, PathUse};
pub use self::open_files::OpenFiles;
#[cfg(feature = "gateway")]
pub use self::platform_token::SecretToken;
#[cfg(feature = "gateway")]
pub use self::platform_token::TokenSource;
pub use self::systemd_grant::{CredentialContent, CredentialGrant, SystemdCredentials};

/// The configuration with every name resolved. A reload compares two of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The sessions, by name.
    pub sessions: Vec<Session>,
    /// The files that hold tokens, by name.
    pub sinks: Vec<Sink>,
    /// The files that are rendered, by name.
    pub templates: Vec<Template>,
    /// The variables that are rendered for the child process, by name.
    pub env_templates: Vec<Template>,
    /// The child process that runs with those variables.
    pub process: Option<ProcessOptions>,
    /// The sockets that are served, by name.
    pub listeners: Vec<Listener>,
    /// Credentials for Docker and git, by name.
    pub credentials: Vec<Credential>,
    /// Callers and their rights; `None` without any, where only the options of listeners decide.
    pub callers: Option<CallerPolicy>,
    /// Devices that record requests, by name.
    pub audit: Vec<AuditOptions>,
    /// The ACL server.
    #[cfg(feature = "acl")]
    pub acl: Option<AclServer>,
    /// The gateway in front of HCP Terraform or Terraform Enterprise.
    #[cfg(feature = "gateway")]
    pub gateway: Option<Gateway>,
    /// Levels and format of the log.
    pub log: Log,
    /// The process as a whole.
    pub agent: Agent,
}

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

/// A file that holds the token of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// Name of the session.
    pub session: String,
    /// Options of the sink, with its name.
    pub options: SinkOptions,
    /// Derived or wrapped token to write; `None` writes the session's token itself.
    pub derive: Option<DerivedTokenKind>,
}

/// File or variable rendered from secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Name of the session that reads its secrets.
    pub session: String,
    /// Options of the template, with its name.
    pub options: TemplateOptions,
    /// File that keeps the secrets of its session across restarts; `None` if they are not saved.
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
    /// Checks that decide which requests are served.
    pub guard: guard::GuardOptions,
    /// Names of the sessions that it may serve.
    pub sessions: Vec<String>,
    /// Derived token that is served instead of each session's token; `None` serves the session's token.
    pub derived_token: Option<DerivedTokenOptions>,
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

    /// Returns true if callers of other machines may be served.
    pub const fn allows_other_machines(&self) -> bool {
        match self {
            Self::Health => true,
            #[cfg(feature = "ui")]
            Self::Ui(certificate) => certificate.is_some(),
            Self::LocalApi | Self::ApiProxy(_) | Self::SystemdCredentials(_) => false,
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

/// Environment variables and user of the process. A value, so that tests provide their own.
#[derive(Clone, Default)]
pub struct Environment {
    /// The variables.
    pub variables: BTreeMap<String, String>,
    /// The effective user id of the agent.
    pub user: u32,
}

impl Environment {
    /// This process's own. A variable that is not UTF-8 counts as absent.
    pub fn current() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect(), user: rustix::process::geteuid().as_raw() }
    }
}

impl std::fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("variables", &self.variables.keys()).field("user", &self.user).finish()
    }
}

/// Reason why a configuration is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To check it, perhaps on another machine: something that only this machine lacks is a note.
    Check,
    /// To check it on the machine that runs it: something that the machine lacks is an error, except for a credential, which
    /// systemd passes to the unit's main process alone.
    CheckHost,
    /// To run it on this machine: something that the machine lacks is an error.
    Run,
}

/// Result of reading a configuration.
#[derive(Debug)]
pub struct LoadOutcome {
    /// The configuration, if there was no error. One that was read for [`Purpose::Check`] may hold the placeholder that
    /// `placeholders` lists, and is not fit to run.
    pub config: Option<Config>,
    /// Errors, in the order of the files.
    pub errors: Vec<Diagnostic>,
    /// Warnings: allowed, but probably unintended.
    pub warnings: Vec<Diagnostic>,
    /// Notes about files, users and variables that this machine lacks, under [`Purpose::Check`], and credentials under
    /// [`Purpose::CheckHost`].
    pub notes: Vec<Diagnostic>,
    /// Listeners that could be read, also where the configuration has errors: a running agent may serve them.
    pub listeners: Vec<Listener>,
    /// Keys with a placeholder because this machine lacks their value (variable, secret file, user). Check this before
    /// using such a value.
    pub placeholders: BTreeSet<String>,
    /// Files and folders that the configuration names, in the order of its keys. Paths that came from a reference are omitted.
    pub paths: Vec<NamedPath>,
    /// Paths as in `paths` that came from a reference. They may hold a secret: show only the key.
    pub referenced_paths: ReferencedPaths,
    /// Files and folders that the configuration was read from.
    pub files: Vec<PathBuf>,
    /// References as written, by key: they replace values from a variable or a file in messages.
    pub references: BTreeMap<String, String>,
    /// Users and groups that files and sockets are given to.
    pub accounts: FileOwners,
}

/// Users and groups that will own files and sockets, by name or id as configured; includes unknown ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileOwners {
    /// Owners.
    pub users: BTreeSet<String>,
    /// Groups.
    pub groups: BTreeSet<String>,
}
