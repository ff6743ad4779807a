//! Transactions on records, and their repetition after write conflicts.

use serde::Serialize;

use super::error::ServiceError;
use crate::store::{Batch, Check, CommitError, Key, Revision, Write};

/// Builder of an atomic batch of preconditions and writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transaction {
    pub(super) batch: Batch,
}

impl Transaction {
    /// Requires that the record does not exist.
    #[must_use]
    pub(crate) fn require_absent(mut self, key: &Key) -> Self {
        self.batch.checks.push(Check::Absent(key.clone()));
        self
    }

    /// Requires that the record is unchanged since revision `at`.
    #[must_use]
    pub(crate) fn require_unchanged(mut self, key: &Key, at: Revision) -> Self {
        self.batch.checks.push(Check::Unchanged(key.clone(), at));
        self
    }

    /// Creates or replaces a record.
    pub(crate) fn put(mut self, key: Key, value: &(impl Serialize + ?Sized)) -> Result<Self, ServiceError> {
        let value = serde_json::to_vec(value).map_err(ServiceError::Encode)?;
        self.batch.writes.push(Write::Put(key, value));
        Ok(self)
    }

    /// Deletes a record if it exists.
    #[must_use]
    pub(crate) fn delete(mut self, key: Key) -> Self {
        self.batch.writes.push(Write::Delete(key));
        self
    }

    /// Adds a prepared write.
    #[must_use]
    pub(crate) fn write(mut self, write: Write) -> Self {
        self.batch.writes.push(write);
        self
    }

    /// Returns the number of writes.
    pub(crate) fn writes(&self) -> usize {
        self.batch.writes.len()
    }
}

/// Runs `attempt` again while it fails with a write conflict. Fails with [`ServiceError::Contention`] after too many.
pub(crate) async fn retry_on_conflict<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ServiceError>
where
    F: Future<Output = Result<T, ServiceError>>,
{
    for _ in 0..ATTEMPTS {
        match attempt().await {
            Err(ServiceError::Commit(CommitError::Conflict(_))) => {}
            outcome => return outcome,
        }
    }
    Err(ServiceError::Contention)
}

/// Most attempts; more conflicts in a row indicate a bug in a precondition.
const ATTEMPTS: usize = 100;
