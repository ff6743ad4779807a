//! Cache of parsed rules.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::id::Id;
use crate::model::rules::{Rules, RulesError};
use crate::store::Revision;

/// Parsed rules by policy id and revision, and by text for synthetic policies.
#[derive(Debug, Default)]
pub(super) struct RulesCache {
    policies: Mutex<HashMap<(Id, Revision), CachedPolicy>>,
    texts: Mutex<HashMap<String, Arc<Rules>>>,
}

/// Rules of a policy on this server.
#[derive(Debug, Clone)]
pub(super) enum CachedPolicy {
    /// Parsed rules.
    Rules(Arc<Rules>),
    /// The policy applies only in other datacenters.
    OtherDatacenter,
}

/// Most entries of each map. A full map is emptied; rules in use are soon cached again.
const ENTRIES: usize = 4096;

impl RulesCache {
    /// Returns the rules of a policy at a revision, if cached.
    pub(super) fn policy(&self, id: Id, at: Revision) -> Option<CachedPolicy> {
        self.policies.lock().get(&(id, at)).cloned()
    }

    /// Stores the rules of a policy at a revision.
    pub(super) fn insert(&self, id: Id, at: Revision, rules: CachedPolicy) {
        let mut policies = self.policies.lock();
        if policies.len() >= ENTRIES {
            policies.clear();
        }
        policies.insert((id, at), rules);
    }

    /// Returns the parsed rules of a policy text.
    pub(super) fn text(&self, text: &str) -> Result<Arc<Rules>, RulesError> {
        let mut texts = self.texts.lock();
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
