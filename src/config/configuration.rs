//! The configuration with every name resolved, and the result of reading one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use keyward_agent::callers::CallerPolicy;
use keyward_agent::identity_tokens::IdentityTokenOptions;
use keyward_agent::process::ProcessOptions;
use keyward_telemetry::audit::AuditOptions;

#[cfg(feature = "acl")]
use super::acl::AclServer;
use super::diagnostic::Diagnostic;
#[cfg(feature = "gateway")]
use super::gateway::Gateway;
use super::need::Need;
use super::sections::{Agent, Certificate, Credential, Listener, Log, Session, Sink, Template};

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
    /// The certificates, by name.
    pub certificates: Vec<Certificate>,
    /// The child process that runs with those variables.
    pub process: Option<ProcessOptions>,
    /// The sockets that are served, by name.
    pub listeners: Vec<Listener>,
    /// Credentials for Docker and git, by name.
    pub credentials: Vec<Credential>,
    /// Identities for tools, by name.
    pub identities: Vec<IdentityTokenOptions>,
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

/// Result of reading a configuration.
#[derive(Debug)]
pub struct LoadOutcome {
    /// The configuration, if there was no error. One that was read for [`Check`](super::Purpose::Check) may hold the placeholder that
    /// `placeholders` lists, and is not fit to run.
    pub config: Option<Config>,
    /// Errors, in the order of the files.
    pub errors: Vec<Diagnostic>,
    /// Warnings: allowed, but probably unintended.
    pub warnings: Vec<Diagnostic>,
    /// Notes about files, users and variables that this machine lacks, under [`Check`](super::Purpose::Check), and credentials under
    /// [`CheckHost`](super::Purpose::CheckHost).
    pub notes: Vec<Diagnostic>,
    /// Listeners that could be read, also where the configuration has errors: a running agent may serve them.
    pub listeners: Vec<Listener>,
    /// Keys with a placeholder because this machine lacks their value (variable, secret file, user). Check this before
    /// using such a value.
    pub placeholders: BTreeSet<String>,
    /// Needs of the machine, in the order in which their keys were read; also those of a configuration with errors.
    pub needs: Vec<Need>,
    /// Files and folders that the configuration was read from.
    pub files: Vec<PathBuf>,
    /// References as written, by key: they replace values from a variable or a file in messages.
    pub references: BTreeMap<String, String>,
}
