//! Sets up clients: gives them the local token and the address of the gateway, or the platform token itself. By
//! environment variables, a file that Terraform reads, and a credentials helper that Terraform runs.

mod tfrc_file;
pub mod credentials;
mod service_host;
mod variables;
mod user_files;
mod cli_config;
mod child_env;

pub use child_env::ChildEnv;
pub use cli_config::CliConfig;
pub(crate) use cli_config::CliConfigError;
pub use service_host::{NO_VARIABLE_REASON, ServiceHost};
pub use tfrc_file::{ClientTokenKind, ClientTokenSource, TfrcFile, TfrcFileOptions};
pub use user_files::UserConfigFiles;
pub use variables::{client_env, client_variables};
