//! The gateway: a listener in front of the provisioning platform's API that puts the current platform token on each
//! request, and knows the dated history of that API.
//!
//! A module names only modules above it in this list.

// 0: how a refusal is written; rules for paths; the history of the API; the two tokens: what callers present, and what the
// platform asks for
pub mod jsonapi_error;
pub mod path_rules;
pub mod api_changelog;
pub mod local_token;
pub mod platform_token;

// 1: tokens of the platform that are made here; what the history says of a server and of a call, and to who asks
pub mod token_minting;
pub mod availability;
pub mod actions;
pub mod changes_api;

// 2: what is served, and how clients get there
pub mod proxy;
pub mod client_setup;
