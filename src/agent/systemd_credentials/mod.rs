//! Serves credentials to systemd: a unit with `LoadCredential=NAME:/run/keyward/credentials.sock` starts with the secret.
//!
//! systemd connects from an abstract socket whose name says the unit and the credential (systemd.exec(5)). Everybody can
//! bind such a name, so the peer's user and group decide first: both must be 0. Where nothing is granted, nothing is
//! written; systemd then hands the unit an empty credential.

// 0: decides without IO which unit asks for which credential
mod peer_name;
mod grants;
mod metrics;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

// 1: values, and the connections that they are written to
mod source;
mod audit;
mod serve;

pub use grants::{GrantRule, UnitPattern};
pub use metrics::SystemdCredentialMetrics;
pub(crate) use peer_name::PeerNameError;
pub use peer_name::{PeerName, is_credential_name};
pub use serve::{CredentialServer, CredentialServerDeps};
pub use source::CredentialSource;

use std::time::Duration;

/// Options of one listener for systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialServerOptions {
    /// The listener's name.
    pub name: String,
    /// Longest time that a unit waits for a credential that is not available yet.
    pub wait: Duration,
    /// True if readiness depends on the credentials.
    pub required: bool,
}
