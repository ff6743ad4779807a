//! Errors of a sink.

use keyward_machine::atomic_file::ReplaceError;
use keyward_telemetry::error_code::ErrorCode;

use super::envelope::EnvelopeError;
use super::file_lock::FileLockError;
use super::shared_folder::SharedFolder;

/// Reason why a sink was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    #[error(transparent)]
    FileLock(#[from] FileLockError),
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    #[error(transparent)]
    SharedFolder(#[from] SharedFolder),
    #[error("the writing task panicked; this is a bug in keyward")]
    Broken,
}

impl SinkError {
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::FileLock(FileLockError::HeldByOther { .. }) => ErrorCode::OutputLocked,
            Self::FileLock(FileLockError::Folder(error)) => error.into(),
            Self::FileLock(FileLockError::Lock { source, .. }) => ErrorCode::from_write_error(source),
            Self::Replace(error) => error.into(),
            Self::SharedFolder(_) => ErrorCode::UnsafePermissions,
            Self::Envelope(_) | Self::Broken => ErrorCode::OutputFailed,
        }
    }
}
