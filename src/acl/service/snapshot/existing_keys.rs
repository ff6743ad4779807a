//! Keys of the records that a restore replaces.

use std::collections::VecDeque;

use super::is_restore_record;
use crate::service::error::ServiceError;
use crate::store::{Export, Key};

/// Keys per read.
const PAGE_SIZE: usize = 64;

/// Existing keys in order, without those of the restore records.
pub(super) struct ExistingKeys {
    export: Export,
    read: VecDeque<Key>,
}

impl ExistingKeys {
    /// Reads the keys of an export.
    pub(super) fn new(export: Export) -> Self {
        Self { export, read: VecDeque::new() }
    }

    /// Returns the next key; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Key>, ServiceError> {
        while self.read.is_empty() {
            let records = self.export.next(PAGE_SIZE).await?;
            if records.is_empty() {
                return Ok(None);
            }
            let keys = records.into_iter().map(|(key, _)| key);
            self.read.extend(keys.filter(|key| !is_restore_record(key.as_str())));
        }
        Ok(self.read.pop_front())
    }
}
