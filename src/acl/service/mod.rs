//! ACL service: operations independent of the wire protocol; it knows no HTTP.
//!
//! A module names only modules above it in this list.

// 0: sealing keys, and signing keys of issuers
pub(crate) mod seal;
pub mod issuer_keys;

// 1: typed records and errors
mod rejection;
pub(crate) mod error;
mod record_cache;
pub(crate) mod record_keys;
mod unreadable_records;
pub(crate) mod transaction;
pub(crate) mod typed_store;

// 2: the service state, authentication, shared operations
mod rules_cache;
pub(crate) mod caller;
mod callers_cache;
pub(crate) mod restore_lock;
pub(crate) mod namespaced_records;
pub(crate) mod records;
pub(crate) mod links;
pub(crate) mod acl_service;
pub(crate) mod lists;
mod sealing_keys;
pub(crate) mod authentication;

// 3: operations by kind of record
mod builtin;
pub(crate) mod policies;
pub(crate) mod roles;
pub(crate) mod tokens;
pub(crate) mod auth_methods;
pub(crate) mod binding_rules;
pub(crate) mod bootstrap;
pub(crate) mod rekey;
pub(crate) mod namespaces;
pub(crate) mod snapshot;
mod verify;

// 4: login
pub mod login;
