//! Google Cloud: an identity token of the machine, or a token that a service account signs (method `gcp` of Vault and OpenBao, types
//! `gce` and `iam`).

// Layer 0: options
mod endpoints;

// Layer 1: requests
mod metadata;
mod service_account_key;
mod sign_jwt;

// Layer 2: the source
mod source;

use std::path::PathBuf;

use crate::identity::ProviderVariables;

pub use endpoints::GcpEndpoints;
pub use metadata::{GcpMachine, gcp_machine};

/// Options of the `gcp` method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcpIdentityOptions {
    /// Audience of the proof.
    pub audience: String,
    /// Origin of the proof.
    pub origin: GcpOrigin,
    /// Variables of Google Cloud, read once.
    pub variables: ProviderVariables,
    /// URLs of Google's services.
    pub endpoints: GcpEndpoints,
}

impl GcpOrigin {
    /// Returns the audience that the server's method requires for a role: it ends in `vault/ROLE`
    /// (developer.hashicorp.com, "Google Cloud auth method").
    pub fn audience_of_role(&self, role: &str) -> String {
        match self {
            Self::Instance { .. } => format!("http://vault/{role}"),
            Self::SignJwt { .. } | Self::Key { .. } => format!("vault/{role}"),
        }
    }
}

/// Origin of a proof, which is the type of the role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GcpOrigin {
    /// `gce`: an identity token of the machine or pod, by its metadata server.
    Instance {
        /// Service account of the machine; `default` for its main one.
        service_account: String,
    },
    /// `iam`: a token that Google signs for a service account on behalf of the machine's.
    SignJwt {
        /// E-mail of the service account to sign for; `None` for the machine's own.
        service_account: Option<String>,
    },
    /// `iam`: a token signed by the private key of a service account.
    Key {
        /// JSON file of the key.
        file: PathBuf,
    },
}
