//! Batched writes into a store that is being restored.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::service::error::ServiceError;
use crate::service::record_keys;
use crate::service::rejection::Conflict;
use crate::store::{Batch, Check, CommitError, Revision, Store, StoreError, Write};

/// Concurrent batches: they share disk syncs.
const CONCURRENT_BATCHES: usize = 8;

/// Bytes reserved in a batch for the check of the marker.
const RESERVED: usize = 256;

/// Writer whose batches require the marker of this restore; they fail once another restore takes over.
#[derive(Debug)]
pub(super) struct RestoreWriter {
    store: Arc<dyn Store>,
    marker: Revision,
    next: Vec<Write>,
    bytes: usize,
    in_flight: JoinSet<Result<Revision, CommitError>>,
}

impl RestoreWriter {
    pub(super) fn new(store: &Arc<dyn Store>, marker: Revision) -> Self {
        Self { store: Arc::clone(store), marker, next: Vec::new(), bytes: 0, in_flight: JoinSet::new() }
    }

    /// Queues a write. The order of execution is undefined.
    pub(super) async fn add(&mut self, write: Write) -> Result<(), ServiceError> {
        let bytes = match &write {
            Write::Put(key, value) => key.as_str().len() + value.len(),
            Write::Delete(key) => key.as_str().len(),
        };
        // One less than the limit: the last batch also deletes the marker.
        let full = self.next.len() + 1 >= Batch::MAX_OPERATIONS;
        if full || (self.bytes + bytes > Batch::MAX_BYTES - RESERVED && !self.next.is_empty()) {
            let batch = self.batch();
            while self.in_flight.len() >= CONCURRENT_BATCHES {
                self.join_one().await?;
            }
            let store = Arc::clone(&self.store);
            self.in_flight.spawn(async move { store.commit(batch).await });
        }
        self.bytes += bytes;
        self.next.push(write);
        Ok(())
    }

    /// Writes and awaits all queued writes.
    pub(super) async fn flush(&mut self) -> Result<(), ServiceError> {
        while !self.in_flight.is_empty() {
            self.join_one().await?;
        }
        if !self.next.is_empty() {
            let batch = self.batch();
            self.store.commit(batch).await.map_err(superseded)?;
        }
        Ok(())
    }

    /// Writes the rest and deletes the marker.
    pub(super) async fn end(mut self) -> Result<Revision, ServiceError> {
        while !self.in_flight.is_empty() {
            self.join_one().await?;
        }
        // In the last batch: the store opens in the moment in which it is complete.
        self.next.push(Write::Delete(record_keys::restore_marker()));
        let batch = self.batch();
        self.store.commit(batch).await.map_err(superseded)
    }

    async fn join_one(&mut self) -> Result<(), ServiceError> {
        match self.in_flight.join_next().await {
            Some(Ok(outcome)) => outcome.map(|_| ()).map_err(superseded),
            Some(Err(_)) => Err(StoreError::Stopped.into()),
            None => Ok(()),
        }
    }

    fn batch(&mut self) -> Batch {
        self.bytes = 0;
        let checks = vec![Check::Unchanged(record_keys::restore_marker(), self.marker)];
        Batch { checks, writes: std::mem::take(&mut self.next) }
    }
}

fn superseded(error: CommitError) -> ServiceError {
    match error {
        CommitError::Conflict(_) => Conflict::RestoreSuperseded.into(),
        other => other.into(),
    }
}
