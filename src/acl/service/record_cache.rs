//! Records that were read already, as the types that they are: to parse them again costs a read a quarter of its
//! instructions.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::acl::store::{Key, Revision};

/// Parsed records by key. One counts as long as its record is of the revision that it was parsed at: no two contents of a
/// key have the same.
#[derive(Default)]
pub(super) struct Parsed(Mutex<HashMap<Key, (Revision, Value)>>);

/// A record of any type.
type Value = Arc<dyn Any + Send + Sync>;

impl fmt::Debug for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parsed")
    }
}

/// Records that are kept. When there are more, all are forgotten: what is read often is back soon.
const RECORDS: usize = 4096;

impl Parsed {
    /// The record of that key as it was at that revision.
    pub(super) fn get<T: Send + Sync + 'static>(&self, key: &Key, at: Revision) -> Option<Arc<T>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, value) = known.get(key).filter(|(modified, _)| *modified == at)?;
        Arc::clone(value).downcast().ok()
    }

    /// Keeps a record that was parsed.
    pub(super) fn keep<T: Send + Sync + 'static>(&self, key: &Key, at: Revision, value: &Arc<T>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= RECORDS {
            known.clear();
        }
        known.insert(key.clone(), (at, Arc::clone(value) as Value));
    }
}
