//! Detects restores in progress.
//!
//! A restore writes a marker before it changes anything and deletes it with its last batch. The state in between is
//! neither the old nor the new one: while the marker exists nothing is answered from the store, and
//! [`TypedStore::commit`] rejects all other batches.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::error::ServiceError;
use super::record_keys;
use super::typed_store::{Stored, TypedStore};
use crate::model::id::Id;
use crate::model::secret::SecretHash;
use crate::model::timestamp::Timestamp;
use crate::store::{Freshness, Page, Revision, StoreError};

/// Marker of a restore in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestoreMarker {
    /// Hash of the secret that began it; only its holder may continue, as no token can be looked up during a restore.
    /// `None` for the anonymous token.
    pub by: Option<SecretHash>,
    /// Accessor of the token that began it.
    pub accessor: Option<Id>,
    /// Start time.
    pub started_at: Timestamp,
}

/// Period between two restores: everything read in one epoch belongs to one state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    /// Revision of the start of the last restore.
    restored: Revision,
    /// Revision at which this was read.
    pub(super) seen: Revision,
}

impl Epoch {
    /// Returns whether no restore began between the two.
    pub(crate) fn is(self, other: Self) -> bool {
        self.restored == other.restored
    }
}

/// State of the restore records.
#[derive(Debug, Clone)]
pub(super) struct RestoreState {
    pub(super) marker: Option<Stored<RestoreMarker>>,
    restored: Revision,
    /// Revision of the last change of these records.
    at: Revision,
}

impl RestoreState {
    /// Returns the epoch, or an error during a restore.
    pub(super) fn epoch(&self) -> Result<Epoch, ServiceError> {
        match self.marker {
            Some(_) => Err(ServiceError::Restoring),
            None => Ok(Epoch { restored: self.restored, seen: self.at }),
        }
    }

    /// Returns the revision at which this was read.
    pub(super) fn at(&self) -> Revision {
        self.at
    }
}

/// Cache of the last known state.
#[derive(Debug, Default)]
pub(super) struct RestoreLock(Mutex<Option<RestoreState>>);

impl RestoreLock {
    /// Reads the restore state. Served from memory if this server is the only writer.
    pub(super) async fn load_state(
        &self,
        typed_store: &TypedStore,
        freshness: Freshness,
    ) -> Result<RestoreState, ServiceError> {
        let last = typed_store.store().last(record_keys::RESTORE);
        let lock = || self.0.lock();
        if let Some(state) = lock().as_ref().filter(|state| Some(state.at) == last) {
            return Ok(state.clone());
        }
        // There are at most two such records: the marker, and the time of the last restore.
        let page = Page { after: None, limit: 2 };
        let listing = typed_store.store().list(record_keys::RESTORES, page, freshness).await?;
        let mut state = RestoreState { marker: None, restored: Revision(0), at: listing.revision };
        for (key, record) in listing.entries {
            if key == record_keys::restore_marker() {
                let unreadable = |_| StoreError::Unreadable { key: key.as_str().to_owned() };
                let marker: RestoreMarker = serde_json::from_slice(&record.value).map_err(unreadable)?;
                state.marker =
                    Some(Stored { value: marker.into(), created: record.created, modified: record.modified });
            } else {
                state.restored = record.modified;
            }
        }
        *lock() = Some(state.clone());
        Ok(state)
    }

    /// Returns whether a restore was in progress at the last read.
    pub(super) fn was_restoring(&self) -> bool {
        let state = self.0.lock();
        state.as_ref().is_some_and(|state| state.marker.is_some())
    }
}
