//! The emulated cloud's own folder: mode 0700, files of mode 0600.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::StartError;

/// A folder that only this user can look into.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Takes a folder, or makes it; one that others can look into is refused.
    pub(super) fn open(path: &Path) -> Result<Self, StartError> {
        let fail = |cause| StartError::Folder { path: path.to_owned(), cause };
        make(path).map_err(fail)?;
        let mode = std::fs::metadata(path).map_err(fail)?.permissions().mode();
        if mode & 0o077 != 0 {
            let problem = format!("others can look into it (mode {:03o}, 700 is needed)", mode & 0o777);
            return Err(fail(std::io::Error::other(problem)));
        }
        Ok(Self(path.to_owned()))
    }

    /// The path of something in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A folder in it, made if it is not there.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, StartError> {
        let path = self.path(name);
        make(&path).map_err(|cause| StartError::Folder { path: path.clone(), cause })?;
        Ok(path)
    }

    /// A file's content; on the first call it is made and kept.
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
                write_private(&path, &content).map_err(|cause| StartError::Folder { path, cause })?;
                Ok(content)
            }
            Err(cause) => Err(StartError::Folder { path, cause }),
        }
    }
}

/// Writes a file whole or not at all, with mode 0600.
pub(super) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    std::fs::rename(draft, path)
}

fn make(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
