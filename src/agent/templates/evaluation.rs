//! What one rendering knows, what it asks for, and where it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gotmpl::TemplateError as EngineError;
use secrecy::SecretString;

use crate::agent::secrets::{SecretRequest, SecretResponse};

/// What a template asks for while it is rendered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// A secret.
    Secret(SecretRequest),
    /// A file's text.
    File(PathBuf),
}

/// What is known of a need.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// The secret.
    Secret(Arc<SecretResponse>),
    /// The file's text.
    Text(Arc<SecretString>),
    /// It is not there; why, without any secret.
    Absent(Arc<str>),
}

/// What one rendering knows, and what it has learnt.
#[derive(Debug)]
pub(super) struct Evaluation {
    known: Arc<BTreeMap<Dependency, Resolved>>,
    /// When it is.
    pub(super) now: SystemTime,
    /// Where the template is at: the offset of the action under way.
    pub(super) at: usize,
    /// The action under way has asked a map by `index` for a key that it lacks.
    pub(super) lacks_key: bool,
    /// What was asked for.
    pub(super) used: BTreeSet<Dependency>,
    /// What of it is not known.
    pub(super) unknown: BTreeSet<Dependency>,
}

impl Evaluation {
    /// One that begins.
    pub(super) fn begin(known: Arc<BTreeMap<Dependency, Resolved>>, now: SystemTime) -> SharedEvaluation {
        let evaluation = Self { known, now, at: 0, lacks_key: false, used: BTreeSet::new(), unknown: BTreeSet::new() };
        SharedEvaluation(Arc::new(Mutex::new(evaluation)))
    }
}

/// A round that the functions of a template share.
#[derive(Debug, Clone)]
pub(super) struct SharedEvaluation(Arc<Mutex<Evaluation>>);

impl SharedEvaluation {
    pub(super) fn lock(&self) -> MutexGuard<'_, Evaluation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a need; `None` where it has to be asked for first.
    pub(super) fn known(&self, need: Dependency) -> Result<Option<Resolved>, EngineError> {
        let mut evaluation = self.lock();
        let found = evaluation.known.get(&need).cloned();
        evaluation.used.insert(need.clone());
        match found {
            Some(Resolved::Absent(why)) => Err(EngineError::Exec(why.to_string())),
            Some(known) => Ok(Some(known)),
            None => {
                evaluation.unknown.insert(need);
                Ok(None)
            }
        }
    }
}
