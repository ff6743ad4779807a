//! Error of a replacement.

use std::io;
use std::path::PathBuf;

use crate::secure_dir::DirError;

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
    /// Something else than a symlink to a folder of versions stands in its place.
    #[error("{} is {found}, not a symlink that keyward has made; remove it or choose another path", path.display())]
    NotVersioned {
        /// The path.
        path: PathBuf,
        /// Kind of what is there, with its article.
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
