//! Sets up clients: gives them the local token and the address of the gateway, or the platform token itself. By
//! environment variables, a file that Terraform reads, and a credentials helper that Terraform runs.

mod tfrc_file;
pub(crate) mod credentials;
mod service_host;
mod variables;
mod user_files;
mod cli_config;
mod child_env;

pub(crate) use child_env::ChildEnv;
pub(crate) use cli_config::{CliConfig, CliConfigError};
pub(crate) use service_host::{NO_VARIABLE_REASON, ServiceHost};
pub(crate) use tfrc_file::{ClientTokenKind, ClientTokenSource, TfrcFile, TfrcFileOptions};
pub(crate) use user_files::UserConfigFiles;
pub(crate) use variables::{client_env, client_variables};
