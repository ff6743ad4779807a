//! A secret file that may be deleted after it is read; its last content is then kept in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use parking_lot::Mutex;

use super::{IdentityError, IdentityErrorKind};

/// Secrets that an identity source has consumed, and that no other source can get again. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ConsumedSecrets {
    /// Last content of a file that was deleted after it was read.
    file: Arc<Mutex<Option<SecretString>>>,
    /// Last wrapping token and its content, since it can be unwrapped only once.
    pub(super) unwrapped: Arc<Mutex<Option<(SecretString, SecretString)>>>,
}

/// A secret file that may be deleted after each read.
#[derive(Debug)]
pub(super) struct ConsumableFile {
    path: PathBuf,
    remove: bool,
    consumed: ConsumedSecrets,
}

impl ConsumableFile {
    /// Creates the reader of a file. `consumed` may have the content of an earlier read.
    pub(super) fn new(path: PathBuf, remove: bool, consumed: &ConsumedSecrets) -> Self {
        Self { path, remove, consumed: consumed.clone() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file's content; if it was deleted after an earlier read, the content of that read.
    pub(super) fn read(&self, source_name: &'static str) -> Result<SecretString, IdentityError> {
        let mut last = self.consumed.file.lock();
        match secret::read_file(&self.path) {
            Ok(read) => {
                if self.remove {
                    if let Err(error) = std::fs::remove_file(&self.path) {
                        let path = self.path.display().to_string();
                        let error = error.to_string();
                        tracing::warn!(
                            event = "identity.file.cleanup_failed",
                            path,
                            error,
                            "cannot delete the file of a secret after reading it"
                        );
                    }
                    *last = Some(read.clone());
                }
                Ok(read)
            }
            Err(error) => {
                // A file that exists and is unreadable may hold a newer secret, which the last one must not replace.
                let cached = last.clone().filter(|_| !self.path.exists());
                cached.ok_or_else(|| unreadable(source_name, &error))
            }
        }
    }
}

/// Creates the error for an unreadable file, which may still be mounted or written.
pub(super) fn unreadable(source_name: &'static str, error: &secret::SecretFileError) -> IdentityError {
    IdentityError {
        kind: IdentityErrorKind::NotReady,
        source_name,
        message: format_chain(error),
        hint: None,
        retry_after: None,
    }
}
