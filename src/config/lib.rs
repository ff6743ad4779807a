//! The configuration file: its format, its diagnostics, and the options of the other crates that it is converted to.
//!
//! [`load()`] reads files and folders into one tree, walks it with readers that record each error and continue, and returns a
//! [`Config`] if there was none. Beside that the crate describes a configuration for `keyward check`, lists its [`settings()`] and the
//! [`schema()`] of all, converts the configuration of other agents ([`migrate`]), computes what a systemd unit has to grant
//! ([`systemd`]), and describes keyward as a sidecar of a pod ([`kubernetes`]).
//!
//! A module imports only modules above it in this list.

// 0: environment, diagnostics, the file as a tree, single values; the sections as types
mod environment;
pub(crate) mod diagnostic;
mod tree;
mod values;
mod need;
mod sections;
pub mod references;
mod toml_text;
mod reference;

// 1: tables, checks of the machine, the files
mod reader;
mod permissions;
mod unit_groups;
mod host_checks;
mod files;

// 2: one file a section
pub mod agent;
pub mod server;
mod cloud;
mod aws;
mod gcp;
mod ci_token;
mod workload_api;
mod client_certificate;
mod method;
mod session;
mod derived_token;
mod identity;
mod output_command;
mod sink;
mod api_proxy;
mod template;
mod process;
mod credential;
mod systemd_credentials;
mod server_certificate;
mod listener_access;
mod listener;
mod tool_variables;
mod certificate;
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

// 3: the whole, its description, and the conversion of other agents' files
mod configuration;
mod open_files;
mod load;
mod settings;
mod schema;
pub(crate) mod describe;
pub mod systemd;
pub mod kubernetes;
pub mod migrate;

#[cfg(feature = "acl")]
pub use self::acl::AclServer;
pub use self::caller::describe_token;
pub use self::configuration::{Config, LoadOutcome};
pub use self::diagnostic::{Diagnostic, Position};
pub use self::environment::{Environment, Purpose};
#[cfg(feature = "gateway")]
pub use self::gateway::Gateway;
#[cfg(any(feature = "acl", feature = "gateway"))]
pub use self::load::load_section;
pub use self::load::{load, load_text};
pub use self::need::{Need, NeedKind, PathUse};
pub use self::open_files::OpenFiles;
#[cfg(feature = "gateway")]
pub use self::platform_token::{SecretToken, TokenSource};
pub use self::schema::schema;
pub use self::sections::{
    Agent, Certificate, CertificateIssuer, Credential, CredentialContent, CredentialGrant, EngineCertificate,
    IdentityTokenName, Listener, Log, LogFormat, ReadyWhen, SandboxMode, SecretSettings, Serves, Session, Sink,
    SinkOrigin, SystemdCredentials, Template,
};
pub use self::settings::{Origin, Setting, SettingValue, settings};
pub use self::toml_text::TomlText;
pub use self::tool_variables::{TOOL_VARIABLES, tool_listener, tool_variables};
