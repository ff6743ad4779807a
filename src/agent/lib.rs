//! The agent: cloud identity -> login -> token kept alive -> outputs.
//!
//! A module imports only modules above it in this list; outputs do not import each other.

// 0: tokens, the status of sessions, limits of attempts, the client of the server, formats of SSH, encrypted files, leases, the watch of output files, their commands and rotations, and callers
pub mod token;
pub mod session_status;
pub mod retry_budget;
mod json_response;
pub mod server_client;
mod ssh;
pub mod encrypted_file;
mod leases;
pub mod output_watch;
pub mod output_command;
pub mod rotation;
pub mod callers;

// 1: identity sources
pub mod identity;

// 2: logins
pub mod login;

// 3: renewal and replacement of tokens
pub mod token_lifecycle;

// 4: secrets that are read with the token, tokens that are derived from it for callers, and those of the machine's identity for tools
pub mod secrets;
pub mod caller_tokens;
pub mod identity_tokens;

// 5: outputs, which do not import each other
pub mod api_proxy;
pub mod local_api;
pub mod identity_api;
pub mod sinks;
pub mod templates;
pub mod certificates;
pub mod process;
pub mod systemd_credentials;
