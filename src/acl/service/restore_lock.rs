//! Whether the store is open, or is being restored from a snapshot.
//!
//! A restore puts a mark into the store before it changes anything, and takes it away with its last batch. What is there
//! in between is neither what was nor what will be: while the mark is there nothing is answered from the store, and every
//! batch but those of the restore is refused by [`Records::commit`].

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::ServiceError;
use super::keys;
use super::repository::{Records, Stored};
use crate::acl::model::id::Id;
use crate::acl::model::secret::SecretHash;
use crate::acl::model::timestamp::Timestamp;
use crate::acl::store::{Freshness, Page, Revision, StoreError};

/// The mark of a restore that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The hash of the secret of who began it, who alone may go on: in the middle of a restore no record says who is who.
    /// `None` for one who brought no token.
    pub by: Option<SecretHash>,
    /// The accessor of who began it.
    pub accessor: Option<Id>,
    /// When it began.
    pub began: Timestamp,
}

/// The time between two restores: what is read in one epoch is of one store.
#[derive(Debug, Clone, Copy)]
pub struct Epoch {
    /// When the last restore began.
    restored: Revision,
    /// When this was seen.
    pub(super) seen: Revision,
}

impl Epoch {
    /// Whether no restore began between the two.
    pub fn is(self, other: Self) -> bool {
        self.restored == other.restored
    }
}

/// What the records of restores say.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) mark: Option<Stored<Mark>>,
    restored: Revision,
    /// The last change of these records.
    at: Revision,
}

impl Seen {
    /// The epoch, while the store is open.
    pub(super) fn epoch(&self) -> Result<Epoch, ServiceError> {
        match self.mark {
            Some(_) => Err(ServiceError::Restoring),
            None => Ok(Epoch { restored: self.restored, seen: self.at }),
        }
    }

    /// When this was seen, open or not.
    pub(super) fn at(&self) -> Revision {
        self.at
    }
}

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<Option<Seen>>);

impl Gate {
    /// Looks whether the store is being restored. That costs nothing where this server alone writes.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn look(&self, records: &Records, freshness: Freshness) -> Result<Seen, ServiceError> {
        let last = records.store().last(keys::RESTORE);
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = known().as_ref().filter(|seen| Some(seen.at) == last) {
            return Ok(seen.clone());
        }
        let page = Page { after: None, limit: 2 };
        let listing = records.store().list(keys::RESTORES, page, freshness).await?;
        let mut seen = Seen { mark: None, restored: Revision(0), at: listing.revision };
        for (key, record) in listing.entries {
            if key == keys::restore_mark() {
                let unreadable = |_| StoreError::Unreadable { key: key.as_str().to_owned() };
                let mark: Mark = serde_json::from_slice(&record.value).map_err(unreadable)?;
                seen.mark = Some(Stored { value: mark.into(), created: record.created, modified: record.modified });
            } else {
                seen.restored = record.modified;
            }
        }
        *known() = Some(seen.clone());
        Ok(seen)
    }

    /// Whether the store was being restored when someone looked last.
    pub(super) fn was_shut(&self) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().is_some_and(|seen| seen.mark.is_some())
    }
}
