//! The file: its shape, what is wrong with it, and the `Options` that it turns into.
//!
//! [`load()`] reads files and folders into one tree, walks it with readers that record each error and go on, and
//! gives a [`Config`] where there was none.

// 0: what is said about a file, the file as a tree, single values
pub mod diagnostic;
mod tree;
mod values;
pub mod migrate;
pub mod references;
pub mod renamed;

// 1: tables, and what the machine must have for them; the files
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
mod listener;
mod credential;
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

// 3: all of them, and what they come to in words
mod load;
pub mod describe;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use crate::agent::api_proxy::ApiProxyOptions;
use crate::agent::identity;
use crate::agent::login;
use crate::agent::process::ProcessOptions;
use crate::agent::secrets::{DerivedTokenKind, DerivedTokenOptions, OfflineOptions};
use crate::agent::server_client;
use crate::agent::sinks::SinkOptions;
use crate::agent::templates::TemplateOptions;
use crate::agent::token_lifecycle;
use crate::http::guard;
use crate::http::server::Endpoint;

#[cfg(feature = "acl")]
pub use self::acl::AclServer;
pub use self::diagnostic::{Diagnostic, Position};
#[cfg(feature = "gateway")]
pub use self::gateway::Gateway;
#[cfg(any(feature = "acl", feature = "gateway"))]
pub use self::load::load_section;
pub use self::load::{load, load_text};
#[cfg(feature = "gateway")]
pub use self::platform_token::{SecretToken, TokenSource};

/// What the configuration asks for, with every name resolved. Two are compared to see what a reload changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The sessions, by name.
    pub sessions: Vec<Session>,
    /// The files that hold tokens, by name.
    pub sinks: Vec<Sink>,
    /// The files that are rendered, by name.
    pub templates: Vec<Template>,
    /// The variables that are rendered for the child, by name.
    pub env_templates: Vec<Template>,
    /// The program that runs with those variables.
    pub process: Option<ProcessOptions>,
    /// The sockets that are served, by name.
    pub listeners: Vec<Listener>,
    /// What Docker and git are given, by name.
    pub credentials: Vec<Credential>,
    /// The ACL server.
    #[cfg(feature = "acl")]
    pub acl: Option<AclServer>,
    /// The gateway in front of the provisioning platform.
    #[cfg(feature = "gateway")]
    pub gateway: Option<Gateway>,
    /// What is logged, and how.
    pub log: Log,
    /// The process as a whole.
    pub agent: Agent,
}

/// One chain of identity, login and token.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The server that it logs in to.
    pub upstream: server_client::ServerClientOptions,
    /// How it logs in.
    pub login: login::LoginOptions,
    /// Who it says that we are.
    pub identity: identity::IdentityMethod,
    /// How its token is kept.
    pub lifecycle: token_lifecycle::TokenLifecycleOptions,
}

/// A user's name and a password in a secret, for the programs that Docker and git ask. The running agent has no part in it but
/// to read the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its name.
    pub name: String,
    /// Name of the session that reads the secret.
    pub session: String,
    /// The hosts that it is for, each with its port where that is not the usual one; in lower case.
    pub hosts: Vec<String>,
    /// The secret's path, without `/v1/`.
    pub path: String,
    /// The user's name, where it does not stand in the secret.
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
    /// The file; its name is in there.
    pub options: SinkOptions,
    /// What is made of the session's token for it; `None` for the token itself.
    pub derive: Option<DerivedTokenKind>,
}

/// What is rendered of secrets: a file, or a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Name of the session that reads its secrets.
    pub session: String,
    /// The template; its name is in there.
    pub options: TemplateOptions,
    /// How the secrets of its session are kept over a restart, if they are.
    pub offline: Option<OfflineOptions>,
}

/// A socket that is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// What it serves.
    pub serves: Serves,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Whom it lets in.
    pub guard: guard::GuardOptions,
    /// Names of the sessions that it may serve.
    pub sessions: Vec<String>,
    /// What is made of each session's token and served in its place, if anything is.
    pub derived_token: Option<DerivedTokenOptions>,
    /// Whether the agent is not ready without it.
    pub required: bool,
}

/// What a listener serves.
#[derive(Debug, Clone, PartialEq)]
pub enum Serves {
    /// Tokens, status, check, health and metrics.
    LocalApi,
    /// Health and metrics alone.
    Health,
    /// The secrets server's API, with the token of its one session.
    ApiProxy(Box<ApiProxyOptions>),
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The level of what no target names.
    pub level: LevelFilter,
    /// Levels of targets, by the start of their name.
    pub targets: BTreeMap<String, LevelFilter>,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a log line looks.
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
    /// Folder of what outlives a restart; `None` where the default one is not there and nothing needs it.
    pub state_dir: Option<PathBuf>,
    /// When the service manager is told that we are ready.
    pub ready: Ready,
    /// How long requests in flight may take to end once we are told to stop.
    pub stop_grace: Duration,
}

/// When the agent is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// When its listeners are bound.
    Listener,
    /// When every session has its first token.
    Token,
    /// When, besides, every output not marked `required = false` has taken it.
    Outputs,
}

/// What the process was started with: its variables and its user. A value, so that a test brings its own.
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

/// What a configuration is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To look at it, perhaps on another machine: what only this machine lacks is a note.
    Check,
    /// To run it here: what this machine lacks is an error.
    Run,
}

/// What reading gave.
#[derive(Debug)]
pub struct LoadOutcome {
    /// The configuration, if there was no error. One that was read for [`Purpose::Check`] may hold the placeholder that
    /// `placeholders` lists, and is not fit to run.
    pub config: Option<Config>,
    /// What must be mended, in the order of the files.
    pub errors: Vec<Diagnostic>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Diagnostic>,
    /// What this machine lacks, under [`Purpose::Check`].
    pub notes: Vec<Diagnostic>,
    /// Listeners that could be read, also where the configuration has errors: a running agent may serve them.
    pub listeners: Vec<Listener>,
    /// Keys whose value this machine lacks (a variable, a secret's file, a user): in their place the configuration has
    /// what means nothing. Who uses one of those values looks here first.
    pub placeholders: BTreeSet<String>,
    /// What was written in place of values that came from a variable or a file, by key: what is told instead of them.
    pub references: BTreeMap<String, String>,
}
