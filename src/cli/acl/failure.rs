//! Failure of an ACL command: one line and an exit code.

use keyward_acl::client::AclClientError;
use keyward_app::error_codes;
use keyward_http::client::TransportError;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;

use crate::cli::Exit;

/// Failure of a command.
#[derive(Debug)]
pub(super) struct CommandFailure {
    pub(super) exit: Exit,
    pub(super) text: String,
    pub(super) code: Option<ErrorCode>,
    /// True if another token might help.
    pub(super) unknown_token: bool,
}

impl CommandFailure {
    pub(super) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), code: None, unknown_token: false }
    }

    /// A failure on this machine, with its causes.
    pub(super) fn local(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(Exit::Failed, format_chain(error))
    }

    /// Appends the consequence of the failure to its text.
    pub(super) fn and(self, meaning: &str) -> Self {
        Self { text: format!("{}; {meaning}", self.text), ..self }
    }
}

impl From<AclClientError> for CommandFailure {
    fn from(error: AclClientError) -> Self {
        let exit = match &error {
            AclClientError::Unauthenticated | AclClientError::PermissionDenied(_) => Exit::Denied,
            AclClientError::NotFound { .. } => Exit::Missing,
            AclClientError::Conflict { .. } => Exit::AlreadyExists,
            AclClientError::RateLimited { .. } | AclClientError::Unavailable { .. } => Exit::TryLater,
            AclClientError::Transport(TransportError::TimedOut { .. }) => Exit::TimedOut,
            AclClientError::Transport(TransportError::Connect { .. }) => Exit::NotRunning,
            AclClientError::Transport(_)
            | AclClientError::Invalid { .. }
            | AclClientError::TooLarge { .. }
            | AclClientError::NotSupported { .. }
            | AclClientError::Unexpected { .. } => Exit::Remote,
        };
        let unknown_token = error == AclClientError::Unauthenticated;
        Self { exit, unknown_token, code: error.code(), text: format_chain(&error) }
    }
}

impl From<anyhow::Error> for CommandFailure {
    fn from(error: anyhow::Error) -> Self {
        Self { code: error_codes::find(&error), ..Self::new(Exit::Failed, format!("{error:#}")) }
    }
}
