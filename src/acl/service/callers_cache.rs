//! Callers that were looked up already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::caller::Caller;
use crate::acl::model::secret::SecretHash;
use crate::acl::store::Revision;

/// Callers by the hash of the secret that they present (`None` for those who present none), as they were at a revision of
/// the store. They are as they were while nothing at all is written: what a caller may do hangs on many records, and a
/// write in between costs a look at them again, no more.
#[derive(Debug, Default)]
pub(super) struct CallersCache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    at: Revision,
    callers: HashMap<Option<SecretHash>, Arc<Caller>>,
}

/// Callers that are kept. When there are more, all are forgotten: who comes often is back soon.
const CALLERS: usize = 4096;

impl CallersCache {
    /// The caller, if the store is still as it was when it was kept.
    pub(super) fn get(&self, secret: Option<&SecretHash>, at: Revision) -> Option<Arc<Caller>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Hashes are keyed: how long a comparison takes tells nothing.
        known.callers.get(&secret.cloned()).filter(|_| known.at == at).cloned()
    }

    /// Keeps a caller that was read after the store was at that revision.
    pub(super) fn keep(&self, secret: Option<SecretHash>, at: Revision, caller: &Arc<Caller>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.at > at {
            return;
        }
        if known.at < at || known.callers.len() >= CALLERS {
            known.callers.clear();
            known.at = at;
        }
        known.callers.insert(secret, Arc::clone(caller));
    }
}
