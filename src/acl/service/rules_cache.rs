//! Rules that were parsed already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::acl::model::id::Id;
use crate::acl::model::rules::{Rules, RulesError};
use crate::acl::store::Revision;

/// Parsed rules, by the policy at the revision that had them, or by their text where no policy is stored.
#[derive(Debug, Default)]
pub(super) struct RulesCache {
    policies: Mutex<HashMap<(Id, Revision), Here>>,
    texts: Mutex<HashMap<String, Arc<Rules>>>,
}

/// What a policy gives on this server.
#[derive(Debug, Clone)]
pub(super) enum Here {
    /// Its rules.
    Rules(Arc<Rules>),
    /// Nothing: it counts in other datacenters.
    Nothing,
}

/// Entries of each part. A full part is emptied: what is in use is back soon.
const ENTRIES: usize = 4096;

impl RulesCache {
    /// What was kept of that policy at that revision.
    pub(super) fn policy(&self, id: Id, at: Revision) -> Option<Here> {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner).get(&(id, at)).cloned()
    }

    /// Keeps what a policy gives at a revision.
    pub(super) fn keep(&self, id: Id, at: Revision, rules: Here) {
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        if policies.len() >= ENTRIES {
            policies.clear();
        }
        policies.insert((id, at), rules);
    }

    /// The rules of a text.
    ///
    /// # Errors
    /// The text holds no rules.
    pub(super) fn text(&self, text: &str) -> Result<Arc<Rules>, RulesError> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = texts.get(text) {
            return Ok(Arc::clone(rules));
        }
        let rules = Arc::new(Rules::parse(text)?);
        if texts.len() >= ENTRIES {
            texts.clear();
        }
        texts.insert(text.to_owned(), Arc::clone(&rules));
        Ok(rules)
    }
}
