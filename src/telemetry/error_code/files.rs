//! Codes of the errors of files and folders.

use std::io;

use keyward_machine::atomic_file::ReplaceError;
use keyward_machine::secure_dir::DirError;

use super::ErrorCode;

impl ErrorCode {
    /// Returns the code of a failed write.
    pub fn from_write_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorCode::OutputDenied,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorCode::OutputFolder,
            _ => ErrorCode::OutputFailed,
        }
    }
}

impl From<&DirError> for ErrorCode {
    fn from(error: &DirError) -> Self {
        match error {
            DirError::Create { source, .. } => Self::from_write_error(source),
            DirError::Open { .. } | DirError::Symlink { .. } | DirError::Exposed { .. } | DirError::NoFile { .. } => {
                ErrorCode::OutputFolder
            }
        }
    }
}

impl From<&ReplaceError> for ErrorCode {
    fn from(error: &ReplaceError) -> Self {
        match error {
            ReplaceError::Folder(error) => error.into(),
            ReplaceError::NotRegular { .. } => ErrorCode::OutputNotRegular,
            ReplaceError::Step { source, .. } => Self::from_write_error(source),
        }
    }
}
