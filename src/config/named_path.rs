//! Files and folders that a configuration names, each with what the agent does there.

use std::path::PathBuf;

/// A file or folder of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    /// The full key, such as `sink.token.path`.
    pub key: String,
    /// The path.
    pub path: PathBuf,
    /// Use of the path.
    pub usage: PathUse,
}

/// Paths that came from references and may hold secrets: `Debug` shows their keys only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ReferencedPaths(pub Vec<NamedPath>);

impl std::fmt::Debug for ReferencedPaths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|named| &named.key)).finish()
    }
}

/// Use of a path by the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// Reads the file.
    Read,
    /// Reads the file, which holds a secret.
    ReadSecret,
    /// Reads the folder's files.
    ReadFolder,
    /// Creates the file, and replaces it as a whole: by another name in the same folder.
    Replace,
    /// Creates files in the folder.
    WriteFolder,
    /// Creates the folder if it is missing, and files in it.
    CreateFolder,
}
