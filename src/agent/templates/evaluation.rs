//! State of one rendering: the dependencies that are resolved, and those that are requested.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use keyward_machine::secret_string::SecretString;

use super::engine::Failure;
use crate::secrets::{SecretRequest, SecretResponse};

/// A secret or a file that a template requests while it is rendered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// A secret.
    Secret(SecretRequest),
    /// The text of a file.
    File(PathBuf),
}

/// Result of a dependency.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// The secret.
    Secret(Arc<SecretResponse>),
    /// The text of a file.
    Text(Arc<SecretString>),
    /// It does not exist; the reason contains no secret.
    Absent(Arc<str>),
}

/// A file that `writeToFile` has recorded.
#[derive(Clone, PartialEq, Eq)]
pub struct WrittenFile {
    /// Permission bits.
    pub mode: u32,
    /// Name or number of the owner; `None` for the agent's user.
    pub owner: Option<String>,
    /// Name or number of the group; `None` for the agent's group.
    pub group: Option<String>,
    /// The text.
    pub content: String,
}

impl std::fmt::Debug for WrittenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WrittenFile")
    }
}

/// Bounds the texts of all files of a template, in bytes, as that of its own file.
const MAX_WRITTEN: usize = 16 << 20;

/// State of one rendering.
#[derive(Debug)]
pub(super) struct Evaluation {
    resolved: Arc<BTreeMap<Dependency, Resolved>>,
    /// Time of the rendering.
    pub(super) now: SystemTime,
    /// Files that `writeToFile` has recorded.
    pub(super) files: BTreeMap<PathBuf, WrittenFile>,
    /// Dependencies that were requested.
    pub(super) used: BTreeSet<Dependency>,
    /// Requested dependencies that are not resolved.
    pub(super) unresolved: BTreeSet<Dependency>,
}

impl Evaluation {
    /// Starts a rendering.
    pub(super) const fn start(resolved: Arc<BTreeMap<Dependency, Resolved>>, now: SystemTime) -> Self {
        Self { resolved, now, files: BTreeMap::new(), used: BTreeSet::new(), unresolved: BTreeSet::new() }
    }

    /// Records a file, or appends to the one of that path. The last call decides its mode and owner.
    pub(super) fn write_file(
        &mut self,
        path: PathBuf,
        mut file: WrittenFile,
        appends: bool,
    ) -> Result<(), &'static str> {
        if let Some(previous) = self.files.get(&path).filter(|_| appends) {
            file.content.insert_str(0, &previous.content);
        }
        let others = self.files.iter().filter(|(other, _)| **other != path).map(|(_, other)| other.content.len());
        if others.sum::<usize>() + file.content.len() > MAX_WRITTEN {
            return Err("the files of the template exceed 16 MiB");
        }
        self.files.insert(path, file);
        Ok(())
    }

    /// Returns a dependency's result, and records the request; `None` if it is not resolved yet.
    pub(super) fn resolve(&mut self, dependency: Dependency) -> Result<Option<Resolved>, Failure> {
        let resolved = self.resolved.get(&dependency).cloned();
        self.used.insert(dependency.clone());
        match resolved {
            Some(Resolved::Absent(reason)) => Err(Failure::new(&*reason)),
            Some(resolved) => Ok(Some(resolved)),
            None => {
                self.unresolved.insert(dependency);
                Ok(None)
            }
        }
    }
}
