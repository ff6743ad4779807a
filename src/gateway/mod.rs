//! The gateway: a listener in front of the provisioning platform's API that puts the current platform token on each
//! request, and knows the dated history of that API.
//!
//! A module names only modules above it in this list.

// 0: how a refusal is written, and the history of the API
pub mod refusal;
pub mod changes;

// 1: what the history says of a server and of a call, and to who asks
pub mod availability;
pub mod actions;
pub mod changes_api;
