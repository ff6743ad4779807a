//! The agent: cloud identity -> login -> token kept alive -> outputs.
//!
//! A module names only modules above it in this list; outputs know nothing of each other.

// 0: the token, the server it comes from, the files of the state folder, and outputs that others change
pub mod token;
pub mod server_client;
mod state_file;
pub mod output_watch;

// 1: who we are
pub mod identity;

// 2: identity -> login -> token
pub mod login;

// 3: how we stay in
pub mod token_lifecycle;

// 4: what is got with the token
pub mod secrets;

// 5: outputs, strangers to each other
pub mod api_proxy;
pub mod local_api;
pub mod sinks;
pub mod templates;
pub mod process;
