//! Result of checking all records of a store.

use super::{Export, StoreError};

/// Result of checking all records of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// Records that are there.
    pub records: u64,
    /// Those of them that have no checksum: an older version wrote them, or the store keeps none.
    pub unchecked: u64,
    /// Records whose checksum does not fit.
    pub damaged: u64,
    /// The keys of the first of them.
    pub damaged_keys: Vec<String>,
    /// Kinds of which records are missing, or are others than were written.
    pub damaged_kinds: Vec<String>,
    /// Tells if the checksums of the file's pages fit, where they were looked at.
    pub pages: Option<bool>,
}

impl Verification {
    /// Most keys of damaged records that are named.
    const NAMED: usize = 100;

    /// Tells if no damage was found.
    pub fn is_clean(&self) -> bool {
        self.damaged == 0 && self.damaged_kinds.is_empty() && self.pages != Some(false)
    }

    /// Counts the records of a store that keeps no checksums.
    pub(super) async fn without_checksums(mut export: Export) -> Result<Self, StoreError> {
        let mut found = Self::default();
        loop {
            let records = export.next(256).await?;
            if records.is_empty() {
                return Ok(found);
            }
            for (key, _) in &records {
                found.count(key.as_str(), None);
            }
        }
    }

    /// Adds a record; `whole` is `None` for one without a checksum.
    pub(super) fn count(&mut self, key: &str, whole: Option<bool>) {
        self.records += 1;
        match whole {
            None => self.unchecked += 1,
            Some(true) => {}
            Some(false) => {
                self.damaged += 1;
                if self.damaged_keys.len() < Self::NAMED {
                    self.damaged_keys.push(key.to_owned());
                }
            }
        }
    }
}
