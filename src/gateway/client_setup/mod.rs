//! How clients get the local token and the way to the gateway, or the platform's token itself: environment variables, a file that Terraform reads, and a
//! program that Terraform asks.

mod tfrc_file;
pub mod credentials;
mod service_host;
mod variables;
mod user_files;
mod cli_config;
mod child_env;

pub use child_env::ForChild;
pub use cli_config::{CliConfig, CliConfigError};
pub use service_host::{NO_VARIABLE, NoServiceHost, ServiceHost};
pub use tfrc_file::{Brings, Content, DropIn, DropInError, Options as DropInOptions, brought};
pub use user_files::UserFiles;
pub use variables::{led_here, variables};
