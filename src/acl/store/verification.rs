//! Result of checking all records of a store.

use super::{Export, StoreError};

/// Result of checking all records of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// Number of records.
    pub records: u64,
    /// Records without a checksum: those of a store that keeps none, as etcd.
    pub unchecked: u64,
    /// Records with a wrong checksum.
    pub damaged: u64,
    /// Keys of the first damaged records.
    pub damaged_keys: Vec<String>,
    /// Kinds with missing or replaced records.
    pub damaged_kinds: Vec<String>,
    /// True if the page checksums of the file match; `None` if not checked.
    pub pages: Option<bool>,
}

impl Verification {
    /// Most keys of damaged records.
    const NAMED: usize = 100;

    /// Returns true if no damage was found.
    pub fn is_clean(&self) -> bool {
        self.damaged == 0 && self.damaged_kinds.is_empty() && self.pages != Some(false)
    }

    /// Counts the records of a store that keeps no checksums.
    pub(super) async fn without_checksums(mut export: Export) -> Result<Self, StoreError> {
        let mut verification = Self::default();
        loop {
            let records = export.next(256).await?;
            if records.is_empty() {
                return Ok(verification);
            }
            verification.records += records.len() as u64;
            verification.unchecked = verification.records;
        }
    }

    /// Adds a record.
    pub(super) fn count(&mut self, key: &str, is_intact: bool) {
        self.records += 1;
        if !is_intact {
            self.damaged += 1;
            if self.damaged_keys.len() < Self::NAMED {
                self.damaged_keys.push(key.to_owned());
            }
        }
    }
}
