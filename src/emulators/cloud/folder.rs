//! Data folder of the emulated cloud: mode 0700, files of mode 0600.

use std::path::{Path, PathBuf};

use keyward_machine::atomic_file::{self, Attributes};
use keyward_machine::secure_dir;

use super::StartError;

/// A folder that only this user can access.
#[derive(Debug, Clone)]
pub(super) struct PrivateDir(PathBuf);

impl PrivateDir {
    /// Opens or creates a folder; one with wider access is refused.
    pub(super) fn open(path: &Path) -> Result<Self, StartError> {
        Ok(Self(secure_dir::create_private(path, 0o077)?))
    }

    /// Returns the path of an entry.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a subfolder unless it exists.
    pub(super) fn create_subfolder(&self, name: &str) -> Result<PathBuf, StartError> {
        Ok(secure_dir::create_private(&self.path(name), 0o077)?)
    }

    /// Reads a file, or creates it with generated content.
    pub(super) fn read_or_make(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Vec<u8>, StartError>,
    ) -> Result<Vec<u8>, StartError> {
        let path = self.path(name);
        match std::fs::read(&path) {
            Ok(content) => Ok(content),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let content = make()?;
                write_private(&path, &content).map_err(|cause| StartError::File { path, cause })?;
                Ok(content)
            }
            Err(cause) => Err(StartError::File { path, cause }),
        }
    }
}

/// Writes a file atomically, with mode 0600.
pub(super) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    atomic_file::replace(path, content, &Attributes { mode: 0o600, owner: None, group: None })
        .map(drop)
        .map_err(std::io::Error::other)
}
