//! HTTP API of the ACL server, in Consul's wire format; login and token calls also in Vault's.
//!
//! `operation` is the table of operations with their paths and handlers, `router` finds the operation of
//! a request, `request` authenticates the caller, `blocking_query` waits for changes, `error` has all statuses and texts of errors.

// 0: formats, options and shared state
mod body;
pub mod json;
mod query_string;
mod response;
mod list_response;
mod error;
pub(crate) mod login_rate_limit;
mod origin_guard;
mod response_cache;
pub(crate) mod state;

// 1: parts of a request that all operations share
mod request_headers;
mod request;
mod request_context;
mod views;
mod watched_keys;

// 2: handlers of the operations
mod records;
mod policies;
mod roles;
mod tokens;
mod bootstrap;
mod rekey;
mod verify;
mod snapshot;
mod templated_policies;
mod auth_methods;
mod binding_rules;
mod login;
mod oidc;
mod namespaces;
mod authorize;
mod explain;
mod vault;

// 3: routing
mod operation;
mod blocking_query;
mod router;

pub use login_rate_limit::LoginLimit;
pub use response::{ResponseBody, unaudited_response};
pub(crate) use router::handler;
pub use state::ApiOptions;
pub(crate) use state::ApiState;
