//! The API proxy: serves the API of Vault, OpenBao or Consul to local clients, and sets the session's token on their requests.
//!
//! A request goes from `router` (guard, `path`, `rules`) either to `send`, or through `response_cache` to `send`; `token_recovery`
//! handles tokens that the server refuses. The modules of the first layer are pure.

// 0: a request, read as the server reads it
mod metrics;
mod path;
mod login_path;
mod query;
mod namespace;
mod spelling;
mod rules;
mod inline_login;
mod request_headers;
mod revocation;

// 1: the session's token, in requests and responses
mod token_search;
mod session_token;
mod leak_filter;
mod response;
mod redact_token;
mod request_body;
mod token_recovery;
mod server_dialect;

// 2: requests to the server
mod listener;
mod send;

// 3: the response cache
mod cache;
mod options;
mod response_cache;
mod invalidation;
mod cache_clear;

// 4: from a listener's request to its response
mod request_checks;
mod router;
mod explain;
mod proxy;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

pub use cache::CacheLimits;
pub use explain::explain_request;
pub use metrics::{CacheMetrics, ProxyMetrics};
pub use namespace::{AllowedNamespaces, NamespacePattern};
pub use options::{ApiProxyOptions, CacheOptions, CallerProxyRules, TokenMode};
pub use proxy::{ApiProxy, ApiProxyDeps, BuildError, ProxyCache};
pub use rules::{Exemption, Rule, Rules};
