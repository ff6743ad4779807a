//! Cache of authenticated callers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::caller::Caller;
use crate::model::secret::SecretHash;
use crate::store::Revision;

/// Authenticated callers by the hash of their secret (`None`: anonymous), valid for one store revision. Permissions
/// depend on many records, so any write invalidates all entries; reloading them is cheap.
#[derive(Debug, Default)]
pub(super) struct CallersCache(Mutex<CachedCallers>);

#[derive(Debug, Default)]
struct CachedCallers {
    at: Revision,
    callers: HashMap<Option<SecretHash>, Arc<Caller>>,
}

/// Most entries. A full cache is emptied; active callers are soon cached again.
const MAX_CALLERS: usize = 4096;

impl CallersCache {
    /// Returns the cached caller if the store is still at revision `at`.
    pub(super) fn get(&self, secret: Option<&SecretHash>, at: Revision) -> Option<Arc<Caller>> {
        let cached = self.0.lock();
        // The hashes are keyed, so comparison time reveals nothing.
        cached.callers.get(&secret.cloned()).filter(|_| cached.at == at).cloned()
    }

    /// Stores a caller that was loaded when the store was at revision `at` or later.
    pub(super) fn insert(&self, secret: Option<SecretHash>, at: Revision, caller: &Arc<Caller>) {
        let mut cached = self.0.lock();
        if cached.at > at {
            return;
        }
        if cached.at < at || cached.callers.len() >= MAX_CALLERS {
            cached.callers.clear();
            cached.at = at;
        }
        cached.callers.insert(secret, Arc::clone(caller));
    }
}
