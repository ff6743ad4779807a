//! Forwards calls of local clients to the platform with the current platform token, and serves the gateway's own
//! endpoints.
//!
//! | request | response |
//! |---|---|
//! | `/api/v2/...`, `/api/registry/...`, `/api/meta/ip-ranges` | the platform's, its links rewritten to the gateway |
//! | `GET /api/state-versions/ID/hosted_state` and similar | the platform's: a redirect to the state, or the state |
//! | `GET /.well-known/terraform.json` | service discovery: the services of the gateway |
//! | `GET /v1/platform/changes` | dated history of the platform's API, with filters and pages |
//! | `GET /v1/platform/report` | deprecated calls by client, and their replacements |
//! | `GET /v1/platform/tokens` | tokens by source and age, and callers; never a token |
//! | `GET /v1/platform/status` | status of the process as in the local API, without sessions |
//!
//! All but service discovery requires the local token. An error is a JSON:API document with `errors`.

mod rate_limiter;
mod origins;
mod link_rewriter;
mod path;
mod minting_guard;
mod usage_stats;
mod body;
mod local_response;
mod response_headers;
mod upstream_call;
mod token_state;
mod platform_info;
mod upstream;
mod provider_download;
mod response_rewriter;
mod page_merge;
mod deprecation;
mod unlock;
mod forward;
mod admin_api;
mod discovery;
mod router;
mod token_monitor;
mod server_probe;
mod gateway;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

pub use body::GatewayBody;
pub use gateway::{Gateway, GatewayBuildError, GatewayDependencies, GatewayOptions};
pub use local_response::unaudited_response;
pub use minting_guard::Exemption;
pub use rate_limiter::RateLimit;
pub use usage_stats::UsageStats;
