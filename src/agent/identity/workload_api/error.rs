//! Failures of calls of the Workload API.

use std::path::PathBuf;

/// Reason why a call of the Workload API failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WorkloadApiError {
    /// Nothing listens at the socket, or this process may not connect.
    #[error("{}: {reason}", socket.display())]
    Unreachable { socket: PathBuf, reason: String },
    /// The connection ended, or its protocol is not gRPC's.
    #[error("{0}")]
    Broken(String),
    /// There was no answer in time.
    #[error("no response within {0} s")]
    Late(u64),
    /// The API refused the call.
    #[error("{name}: {text}")]
    Refused {
        /// Status of HTTP that gRPC's code has.
        status: u16,
        /// Name of gRPC's code.
        name: String,
        /// The API's words.
        text: String,
    },
    /// The process has other identities than the wanted one.
    #[error("it does not have the identity that `spiffe_id` names, but {}", offered.join(", "))]
    OtherIdentity {
        /// Those that it has.
        offered: Vec<String>,
    },
    /// The answer is larger than any that the API gives.
    #[error("the answer is too large")]
    TooLarge,
    /// The answer holds not what was asked for.
    #[error("{0}")]
    Unreadable(&'static str),
}

impl From<h2::Error> for WorkloadApiError {
    fn from(error: h2::Error) -> Self {
        Self::Broken(error.to_string())
    }
}
