//! The agent: identities, sessions, listeners, sinks, templates and the child process.

#[cfg(feature = "dev")]
mod api_proxy;
#[cfg(feature = "dev")]
mod callers;
#[cfg(feature = "dev")]
mod caller_tokens;
#[cfg(feature = "dev")]
mod certificates;
#[cfg(feature = "dev")]
mod process;
#[cfg(feature = "dev")]
mod hanging_programs;
#[cfg(feature = "dev")]
mod derived_tokens;
#[cfg(feature = "dev")]
mod folder_acl;
#[cfg(feature = "dev")]
pub(crate) mod identity;
#[cfg(all(feature = "dev", feature = "acl"))]
mod identity_api;
#[cfg(feature = "dev")]
mod recovery;
#[cfg(feature = "dev")]
mod secret_persistence;
#[cfg(feature = "dev")]
mod token_lifecycle;
mod local_api;
#[cfg(feature = "dev")]
mod listener_derived_token;
#[cfg(feature = "dev")]
mod login;
#[cfg(feature = "dev")]
mod output_changes;
#[cfg(feature = "dev")]
pub(crate) mod cloud_logins;
#[cfg(feature = "dev")]
mod upstream_regressions;
#[cfg(feature = "dev")]
mod session_state;
#[cfg(feature = "dev")]
mod sealed_sinks;
#[cfg(all(feature = "dev", feature = "sandbox"))]
mod sandbox;
mod sinks;
#[cfg(feature = "dev")]
mod systemd_credentials;
#[cfg(feature = "dev")]
mod templates;
#[cfg(feature = "dev")]
mod recorded_answers;
#[cfg(feature = "dev")]
mod server_client;
#[cfg(feature = "dev")]
mod serialization;
