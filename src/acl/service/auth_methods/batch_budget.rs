//! Limit on the batches of a removal.

use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::transaction::Transaction;
use crate::store::CommitError;

/// Outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    Committed,
    /// Another writer has changed one of the records: they have to be read again.
    Conflict,
    /// No batch is left.
    Exhausted,
}

/// Batches that may still be executed, and records deleted so far.
pub(super) struct BatchBudget {
    pub(super) batches: usize,
    pub(super) removed: usize,
}

impl BatchBudget {
    /// Commits a batch, if the budget allows it.
    pub(super) async fn commit(
        &mut self,
        service: &AclService,
        transaction: Transaction,
    ) -> Result<BatchOutcome, ServiceError> {
        if self.batches == 0 {
            return Ok(BatchOutcome::Exhausted);
        }
        self.batches -= 1;
        let writes = transaction.writes();
        match service.typed_store.commit(transaction).await {
            Ok(_) => {
                self.removed += writes;
                Ok(BatchOutcome::Committed)
            }
            Err(ServiceError::Commit(CommitError::Conflict(_))) => Ok(BatchOutcome::Conflict),
            Err(error) => Err(error),
        }
    }
}
