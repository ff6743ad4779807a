//! Cache of deserialized records: parsing again would cost a quarter of a read's instructions.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::{Key, Revision};

/// Deserialized records by key. An entry is valid for the revision that it was read at, as no two contents of a key
/// share a revision.
#[derive(Default)]
pub(super) struct RecordCache(Mutex<HashMap<Key, (Revision, Value)>>);

/// Record of any type.
type Value = Arc<dyn Any + Send + Sync>;

impl fmt::Debug for RecordCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordCache")
    }
}

/// Most entries. A full cache is emptied; active records are soon cached again.
const MAX_RECORDS: usize = 4096;

impl RecordCache {
    /// Returns the record at that revision, if cached.
    pub(super) fn get<T: Send + Sync + 'static>(&self, key: &Key, at: Revision) -> Option<Arc<T>> {
        let records = self.0.lock();
        let (_, value) = records.get(key).filter(|(modified, _)| *modified == at)?;
        Arc::clone(value).downcast().ok()
    }

    /// Stores a deserialized record.
    pub(super) fn insert<T: Send + Sync + 'static>(&self, key: &Key, at: Revision, value: &Arc<T>) {
        let mut records = self.0.lock();
        if records.len() >= MAX_RECORDS {
            records.clear();
        }
        records.insert(key.clone(), (at, Arc::clone(value) as Value));
    }
}
