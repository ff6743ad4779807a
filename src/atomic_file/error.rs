//! Error of a replacement.

use std::io;
use std::path::PathBuf;

use crate::error_code::ErrorCode;
use crate::secure_dir::{DirError, write_error_code};

/// Reason why a file was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] DirError),
    /// Something else stands in its place.
    #[error("{} is {found}, not a regular file; remove it or choose another path", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// Kind of the existing file, with its article.
        found: &'static str,
    },
    /// The system refused a step.
    #[error("cannot {step} {}; {advice}", path.display())]
    Step {
        /// The failed step, as a verb.
        step: &'static str,
        /// The path.
        path: PathBuf,
        /// Advice for the operator.
        advice: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl ReplaceError {
    /// Returns the code for operators.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Folder(error) => error.code(),
            Self::NotRegular { .. } => ErrorCode::OutputNotRegular,
            Self::Step { source, .. } => write_error_code(source),
        }
    }
}
