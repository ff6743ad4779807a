//! What the service does, whoever asks by whatever wire: it knows no HTTP.
//!
//! A module names only modules above it in this list.

// 0: the server's keys, and the keys of those who sign for callers
pub mod seal;
pub mod issuer_keys;

// 1: records as types, and why something is not done
pub mod error;
mod record_cache;
pub mod keys;
pub mod repository;

// 2: all records, and who asks
mod rules_cache;
pub mod caller;
mod callers_cache;
pub mod restore_lock;
pub mod acl_service;
mod crud;
mod active_keys;
mod authentication;
pub mod links;
pub mod lists;

// 3: what is done with each kind of record
mod builtin;
pub mod policies;
pub mod roles;
pub mod tokens;
pub mod auth_methods;
pub mod binding_rules;
pub mod bootstrap;
pub mod rekey;
pub mod namespaces;
pub mod snapshot;
mod verify;

// 4: how a token is got without one
pub mod login;
