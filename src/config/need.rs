//! Needs: what a configuration asks of the machine. The readers record each where they read its key; the sandbox, the unit's drop-in
//! and `keyward doctor` filter the one list.

use std::path::{Path, PathBuf};

use keyward_http::server::{Endpoint, UnixSocket};

/// Something that a configuration needs of the machine.
#[derive(Clone, PartialEq, Eq)]
pub struct Need {
    /// The full key that asks for it, such as `sink.token.path`.
    pub key: String,
    /// True if the value came from a reference and may hold a secret: show only the key.
    pub is_hidden: bool,
    /// The need.
    pub kind: NeedKind,
}

/// Kind of a need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NeedKind {
    /// Uses a file or folder.
    Path(PathBuf, PathUse),
    /// Runs a program with arguments.
    Run(Vec<String>),
    /// Listens on an address.
    Listen(Endpoint),
    /// Gives a file or socket to a user, by its name or id as written; the id is that of a known one.
    Owner(String, Option<u32>),
    /// Gives a file or socket to a group, likewise.
    Group(String, Option<u32>),
}

impl Need {
    /// The part of the configuration that asks for it, such as `sink token`.
    pub fn part(&self) -> String {
        self.key.rsplit_once('.').map_or(self.key.as_str(), |(part, _)| part).replacen('.', " ", 1)
    }

    /// The path and its use; `None` for another need.
    pub fn path(&self) -> Option<(&PathBuf, PathUse)> {
        match &self.kind {
            NeedKind::Path(path, usage) => Some((path, *usage)),
            _ => None,
        }
    }

    /// The folder that must be writable for it. Files are replaced by rename, so that is not only the file.
    pub fn written_folder(&self) -> Option<&Path> {
        match &self.kind {
            NeedKind::Path(path, PathUse::Replace) | NeedKind::Listen(Endpoint::Unix(UnixSocket { path, .. })) => {
                path.parent()
            }
            NeedKind::Path(path, PathUse::WriteFolder | PathUse::CreateFolder) => Some(path),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Need");
        shown.field("key", &self.key);
        if !self.is_hidden {
            shown.field("kind", &self.kind);
        }
        shown.finish()
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
    /// Creates the file, and replaces it as a whole: by another name in the same folder. Or removes it.
    Replace,
    /// Creates files in the folder.
    WriteFolder,
    /// Creates the folder if it is missing, and files in it.
    CreateFolder,
}
