//! The access-control service: tokens, roles, namespaces, and the login that turns a cloud identity into a token.
//!
//! A module names only modules above it in this list.

// 0: what is known, and the rules; pure
pub mod model;

// 1: where it is kept
pub mod store;
