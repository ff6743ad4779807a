//! The emulated cloud's own folder: mode 0700, files of mode 0600.

use std::path::{Path, PathBuf};

use super::CloudStartError;
use crate::atomic_file::{self, Attributes};
use crate::secure_dir;

/// A folder that only this user can look into.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Takes a folder, or makes it; one that others can look into is refused.
    pub(super) fn open(path: &Path) -> Result<Self, CloudStartError> {
        Ok(Self(secure_dir::create_private(path, 0o077)?))
    }

    /// The path of something in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A folder in it, made if it is not there.
    pub(super) fn create_subfolder(&self, name: &str) -> Result<PathBuf, CloudStartError> {
        Ok(secure_dir::create_private(&self.path(name), 0o077)?)
    }

    /// A file's content; on the first call it is made and kept.
    pub(super) fn read_or_make(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Vec<u8>, CloudStartError>,
    ) -> Result<Vec<u8>, CloudStartError> {
        let path = self.path(name);
        match std::fs::read(&path) {
            Ok(content) => Ok(content),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let content = make()?;
                write_private(&path, &content).map_err(|cause| CloudStartError::File { path, cause })?;
                Ok(content)
            }
            Err(cause) => Err(CloudStartError::File { path, cause }),
        }
    }
}

/// Writes a file whole or not at all, with mode 0600.
pub(super) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    atomic_file::replace(path, content, &Attributes { mode: 0o600, owner: None, group: None })
        .map(drop)
        .map_err(std::io::Error::other)
}
