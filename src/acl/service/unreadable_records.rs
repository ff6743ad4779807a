//! Tracking of records that cannot be read.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use super::record_keys;
use crate::store::Key;

/// Known unreadable records. Each is logged once, and forgotten when it becomes readable or is deleted.
#[derive(Debug, Default)]
pub(super) struct UnreadableRecords {
    reported: Mutex<BTreeSet<Key>>,
    counter: Counter<u64, AtomicU64>,
}

impl UnreadableRecords {
    /// Counts unreadable records in `counter`.
    pub(super) fn new(counter: Counter<u64, AtomicU64>) -> Self {
        Self { reported: Mutex::default(), counter }
    }

    /// Updates the set after a read of all keys under `prefix` after `after`, up to `last` (`None`: to the end).
    pub(super) fn update(&self, prefix: &str, after: Option<&Key>, last: Option<&Key>, unreadable: &[Key]) {
        let looked_at = |key: &Key| {
            let past_end = last.is_some_and(|last| key > last);
            key.as_str().starts_with(prefix) && after.is_none_or(|after| key > after) && !past_end
        };
        // Reading existing records cannot show that a kind has missing ones.
        let is_kind = |key: &Key| key.as_str().ends_with('/');
        self.reported.lock().retain(|key| is_kind(key) || !looked_at(key) || unreadable.contains(key));
        for key in unreadable {
            self.report(key);
        }
    }

    pub(super) fn has(&self, prefix: &str) -> bool {
        let reported = self.reported.lock();
        reported.len() >= MAX_REPORTED
            || reported.iter().any(|key| {
                let key = key.as_str();
                key.starts_with(prefix) || (key.ends_with('/') && prefix.starts_with(key))
            })
    }

    pub(super) fn report_kind(&self, kind: &str) {
        if self.reported.lock().insert(record_keys::kind_prefix(kind, None).into()) {
            self.counter.inc();
            tracing::error!(
                event = "acl.store.damaged",
                kind,
                "records of this kind are missing or were replaced: restore a snapshot from before the damage"
            );
        }
    }

    pub(super) fn report(&self, key: &Key) {
        let mut reported = self.reported.lock();
        if reported.len() < MAX_REPORTED && reported.insert(key.clone()) {
            self.counter.inc();
            let key = key.as_str();
            tracing::error!(
                event = "acl.record.unreadable",
                key,
                "omitting an unreadable record from lists; restore a snapshot from before the damage"
            );
        }
    }
}

/// Most unreadable records that are tracked by key. With more, the store is unusable.
const MAX_REPORTED: usize = 1000;
