//! How clients get the local token and the way to the gateway, or the platform's token itself: environment variables, a file that Terraform reads, and a
//! program that Terraform asks.

mod drop_in;
pub mod credentials;
mod service_host;
mod variables;
mod user_files;
mod cli_config;
mod for_child;

pub use cli_config::{CliConfig, CliConfigError};
pub use drop_in::{Brings, Content, DropIn, DropInError, Options as DropInOptions, brought};
pub use for_child::ForChild;
pub use service_host::{NO_VARIABLE, NoServiceHost, ServiceHost};
pub use user_files::UserFiles;
pub use variables::{led_here, variables};
