//! A secret's file that may be removed once it is read; then what was read last is kept in memory.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use secrecy::SecretString;

use super::{Class, IdentityError};
use crate::error_chain::format_chain;
use crate::secret;

/// The file.
#[derive(Debug)]
pub(super) struct KeptFile {
    path: PathBuf,
    remove: bool,
    last: Mutex<Option<SecretString>>,
}

impl KeptFile {
    pub(super) fn new(path: PathBuf, remove: bool) -> Self {
        Self { path, remove, last: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the file holds now; if it was removed after it was read, what it held then.
    pub(super) fn read(&self, source_name: &'static str) -> Result<SecretString, IdentityError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match secret::read_file(&self.path) {
            Ok(read) => {
                if self.remove {
                    if let Err(error) = std::fs::remove_file(&self.path) {
                        let path = self.path.display();
                        tracing::warn!(event = "identity.file.left", %path, %error, "a file could not be removed");
                    }
                    *last = Some(read.clone());
                }
                Ok(read)
            }
            Err(error) => {
                let kept = last.clone().filter(|_| !self.path.exists());
                kept.ok_or_else(|| unreadable(source_name, &error))
            }
        }
    }
}

/// The error where a file gives nothing: it may be on its way.
pub(super) fn unreadable(source_name: &'static str, error: &secret::SecretFileError) -> IdentityError {
    IdentityError { class: Class::NotReady, source_name, message: format_chain(error), hint: None, retry_after: None }
}
