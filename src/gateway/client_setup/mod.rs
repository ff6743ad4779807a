//! Sets up clients: gives them the local token and the address of the gateway, or the platform token itself. By
//! environment variables, a file that Terraform reads, and a credentials helper that Terraform runs.

mod terraform_config_file;
pub mod credentials;
mod service_host;
mod variables;
mod user_config_files;
mod hcl_value;
mod shared_settings;
mod hcl_settings;
mod user_config_text;
mod program_cli_config;
mod child_env;

pub use child_env::ChildEnv;
pub use program_cli_config::ProgramCliConfig;
pub use program_cli_config::{PreparedCliConfig, ProgramCliConfigError};
pub use service_host::{NO_VARIABLE_REASON, ServiceHost};
pub use terraform_config_file::{ClientTokenKind, ClientTokenSource, TerraformConfigFile, TerraformConfigFileOptions};
pub use user_config_files::UserConfigFiles;
pub use variables::{GatewayClient, ProxyExceptions, client_env, client_variable_names, client_variables};
