//! Gateway: a listener in front of the API of HCP Terraform or Terraform Enterprise ("the platform"). It puts the
//! current platform token on each request, and knows the dated history of that API.
//!
//! [`proxy::Gateway`] is the service, [`token_minting`] keeps a platform token of its own, and [`client_setup`] leads Terraform to
//! the gateway.
//!
//! A module imports only modules above it in this list.

// 0: metrics; error documents; path rules; API history; the local token and the platform token
mod metrics;
pub(crate) mod jsonapi_error;
pub(crate) mod path_rules;
pub mod api_changelog;
pub mod local_token;
pub mod platform_token;

// 1: minting of platform tokens; assessment of servers and calls by the API history
pub mod token_minting;
pub mod availability;
pub mod actions;
pub(crate) mod changes_api;

// 2: the proxy, and the setup of its clients
pub mod proxy;
pub mod client_setup;

pub use metrics::GatewayMetrics;
