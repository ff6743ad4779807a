//! The service over HTTP: the access-control API in its own wire, the login and token doors in Vault's.
//!
//! It stands on hyper alone: one table says what is at which path (`operation`), one place says what a request is in which
//! namespace (`ask`), one loop waits for changes (`wait`), one file knows statuses and texts (`error`).

// 0: how things are written
mod body;
pub mod json;
mod query;
mod operation;
mod response;
mod error;
pub mod login_rate_limit;
mod browser;
mod response_cache;
pub mod state;

// 1: a request, as far as it is the same for all
mod request;
mod auth;
mod views;
mod watched;

// 2: the operations
mod policies;
mod roles;
mod tokens;
mod bootstrap;
mod rekey;
mod verify;
mod snapshot;
mod templated;
mod auth_methods;
mod binding_rules;
mod login;
mod namespaces;
mod authorize;
mod vault;

// 3: which of them is meant
mod dispatch;
mod blocking_query;
mod serve;

pub use login_rate_limit::LoginLimit;
pub use response::Body;
pub use serve::service;
pub use state::{Options, Rooms};
