//! Batch of preconditions and writes, executed atomically.

use std::collections::HashSet;

use super::{CommitError, Key, Revision};

/// Writes and their preconditions. All writes happen, or none.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Preconditions, evaluated before the writes.
    pub checks: Vec<Check>,
    /// Writes. Of two writes to one key only the later has effect.
    pub writes: Vec<Write>,
}

/// Precondition of a batch.
#[derive(Debug, Clone)]
pub enum Check {
    /// The record does not exist.
    Absent(Key),
    /// The record was last modified at this revision.
    Unchanged(Key, Revision),
}

/// One write.
#[derive(Debug, Clone)]
pub enum Write {
    /// Creates or replaces a record.
    Put(Key, Vec<u8>),
    /// Deletes a record if it exists.
    Delete(Key),
}

impl Batch {
    /// Most checks, and most writes, in a batch (etcd's default limit).
    pub const MAX_OPERATIONS: usize = 128;

    /// Most bytes of keys and values; the key of a check counts twice.
    pub const MAX_BYTES: usize = 1024 * 1024;

    /// Checks the limits and drops all but the last write to each key.
    pub(super) fn normalize(mut self) -> Result<Self, CommitError> {
        let fits = self.checks.len() <= Self::MAX_OPERATIONS
            && self.writes.len() <= Self::MAX_OPERATIONS
            && self.bytes() <= Self::MAX_BYTES;
        if !fits {
            return Err(CommitError::TooLarge);
        }
        let mut keys = HashSet::new();
        let last: Vec<_> = self.writes.iter().rev().map(|write| keys.insert(write.key())).collect();
        if keys.len() < self.writes.len() {
            let mut last = last.into_iter().rev();
            self.writes.retain(|_| last.next().unwrap_or(true));
        }
        Ok(self)
    }

    /// Returns the bytes of keys and values.
    pub(super) fn bytes(&self) -> usize {
        // A check's key is sent to etcd twice: in the comparison and in the read after a failed one.
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
