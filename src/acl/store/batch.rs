//! What a store is asked to write: checks and writes, all or none.

use std::collections::HashSet;

use super::{CommitError, Key, Revision};

/// What is to be written, and what must hold for that. All writes happen, or none.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// What must hold, before any of the writes.
    pub checks: Vec<Check>,
    /// What to write. Of two writes of one key the later counts alone.
    pub writes: Vec<Write>,
}

/// What must hold for a batch to be written.
#[derive(Debug, Clone)]
pub enum Check {
    /// There is no such record.
    Absent(Key),
    /// The record is as it was at that revision.
    Unchanged(Key, Revision),
}

/// One write.
#[derive(Debug, Clone)]
pub enum Write {
    /// Makes or replaces a record.
    Put(Key, Vec<u8>),
    /// Removes a record, if it is there.
    Delete(Key),
}

impl Batch {
    /// Most checks, and most writes, of a batch.
    pub const MAX_OPERATIONS: usize = 128;

    /// Most bytes of keys and values; the key of a check counts twice.
    pub const MAX_BYTES: usize = 1024 * 1024;

    /// The batch as every store takes it: within the limits, and of the writes of one key the last alone.
    ///
    /// # Errors
    /// It is too large.
    pub(super) fn settled(mut self) -> Result<Self, CommitError> {
        let fits = self.checks.len() <= Self::MAX_OPERATIONS
            && self.writes.len() <= Self::MAX_OPERATIONS
            && self.bytes() <= Self::MAX_BYTES;
        if !fits {
            return Err(CommitError::TooLarge);
        }
        let mut seen = HashSet::new();
        let last: Vec<_> = self.writes.iter().rev().map(|write| seen.insert(write.key())).collect();
        if seen.len() < self.writes.len() {
            let mut last = last.into_iter().rev();
            self.writes.retain(|_| last.next().unwrap_or(true));
        }
        Ok(self)
    }

    /// Bytes of keys and values.
    pub(super) fn bytes(&self) -> usize {
        // A check's key counts twice: etcd is told it in the comparison, and in the question which one did not hold.
        let checks = self.checks.iter().map(|check| 2 * check.key().as_str().len());
        let writes = self.writes.iter().map(|write| match write {
            Write::Put(key, value) => key.as_str().len() + value.len(),
            Write::Delete(key) => key.as_str().len(),
        });
        checks.chain(writes).sum()
    }
}

impl Check {
    pub(super) fn key(&self) -> &Key {
        let (Self::Absent(key) | Self::Unchanged(key, _)) = self;
        key
    }
}

impl Write {
    pub(super) fn key(&self) -> &Key {
        let (Self::Put(key, _) | Self::Delete(key)) = self;
        key
    }
}
