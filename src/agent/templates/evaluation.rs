//! State of one rendering: the dependencies that are resolved, those that are requested, and the position.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use gotmpl::TemplateError as EngineError;
use keyward_machine::secret_string::SecretString;
use parking_lot::{Mutex, MutexGuard};

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

/// State of one rendering.
#[derive(Debug)]
pub(super) struct Evaluation {
    resolved: Arc<BTreeMap<Dependency, Resolved>>,
    /// Time of the rendering.
    pub(super) now: SystemTime,
    /// Byte offset of the current action.
    pub(super) offset: usize,
    /// The current action has called `index` with a key that the map lacks.
    pub(super) lacks_key: bool,
    /// Dependencies that were requested.
    pub(super) used: BTreeSet<Dependency>,
    /// Requested dependencies that are not resolved.
    pub(super) unresolved: BTreeSet<Dependency>,
}

impl Evaluation {
    /// Starts a rendering.
    pub(super) fn start(resolved: Arc<BTreeMap<Dependency, Resolved>>, now: SystemTime) -> SharedEvaluation {
        let evaluation =
            Self { resolved, now, offset: 0, lacks_key: false, used: BTreeSet::new(), unresolved: BTreeSet::new() };
        SharedEvaluation(Arc::new(Mutex::new(evaluation)))
    }
}

/// An evaluation that the functions of a template share.
#[derive(Debug, Clone)]
pub(super) struct SharedEvaluation(Arc<Mutex<Evaluation>>);

impl SharedEvaluation {
    pub(super) fn lock(&self) -> MutexGuard<'_, Evaluation> {
        self.0.lock()
    }

    /// Returns a dependency's result, and records the request; `None` if it is not resolved yet.
    pub(super) fn resolve(&self, dependency: Dependency) -> Result<Option<Resolved>, EngineError> {
        let mut evaluation = self.lock();
        let resolved = evaluation.resolved.get(&dependency).cloned();
        evaluation.used.insert(dependency.clone());
        match resolved {
            Some(Resolved::Absent(reason)) => Err(EngineError::Exec(reason.to_string())),
            Some(resolved) => Ok(Some(resolved)),
            None => {
                evaluation.unresolved.insert(dependency);
                Ok(None)
            }
        }
    }
}
