//! Errors of the local token.

use std::path::PathBuf;

use keyward_machine::atomic_file::ReplaceError;
use keyward_machine::secret::SecretFileError;

use super::MIN_LENGTH;
use super::owner::OwnerError;

/// Error of the local token. Never contains a token.
#[derive(Debug, thiserror::Error)]
pub enum LocalTokenError {
    /// The file cannot be read.
    #[error("the local token cannot be read")]
    Read(#[from] SecretFileError),
    /// The file cannot be written.
    #[error("the local token cannot be written")]
    Write(#[from] ReplaceError),
    /// The file belongs to another gateway, or its owner cannot be recorded.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The file holds something else.
    #[error("{} contains no local token (at least {MIN_LENGTH} visible ASCII characters)", file.display())]
    Malformed {
        /// Path of the file.
        file: PathBuf,
    },
    /// The kernel returned no random bytes.
    #[error("the kernel returned no random bytes")]
    Random,
}
