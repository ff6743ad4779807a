//! The service over HTTP: the access-control API in its own wire, the login and token doors in Vault's.
//!
//! It stands on hyper alone: one table says what is at which path (`operation`), one place says what a request is in which
//! namespace (`ask`), one loop waits for changes (`wait`), one file knows statuses and texts (`error`).

// 0: how things are written
mod body;
pub mod json;
mod query;
mod operation;
mod reply;
mod error;
pub mod limit;
mod browser;
mod answers;
pub mod rooms;

// 1: a request, as far as it is the same for all
mod ask;
mod here;
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
mod wait;
mod serve;

pub use limit::LoginLimit;
pub use reply::Body;
pub use rooms::{Options, Rooms};
pub use serve::service;
