//! Batches on their way into a store that is being restored.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::store::{Batch, Check, CommitError, Revision, Store, StoreError, Write};

/// Batches that are written at the same time: they share the wait for the disk.
const AT_ONCE: usize = 8;

/// What the check of the mark takes of a batch, and some more.
const RESERVED: usize = 256;

/// Writes that hold only while the mark is the one that this restore has put: one that another took over comes to nothing.
#[derive(Debug)]
pub(super) struct Writes {
    store: Arc<dyn Store>,
    mark: Revision,
    next: Vec<Write>,
    bytes: usize,
    under_way: JoinSet<Result<Revision, CommitError>>,
}

impl Writes {
    pub(super) fn new(store: &Arc<dyn Store>, mark: Revision) -> Self {
        Self { store: Arc::clone(store), mark, next: Vec::new(), bytes: 0, under_way: JoinSet::new() }
    }

    /// Adds one. They are done in any order.
    pub(super) async fn add(&mut self, write: Write) -> Result<(), ServiceError> {
        let bytes = match &write {
            Write::Put(key, value) => key.as_str().len() + value.len(),
            Write::Delete(key) => key.as_str().len(),
        };
        // One less than there may be: the last batch takes the mark away too.
        let full = self.next.len() + 1 >= Batch::MAX_OPERATIONS;
        if full || (self.bytes + bytes > Batch::MAX_BYTES - RESERVED && !self.next.is_empty()) {
            let batch = self.batch();
            while self.under_way.len() >= AT_ONCE {
                self.one_done().await?;
            }
            let store = Arc::clone(&self.store);
            self.under_way.spawn(async move { store.commit(batch).await });
        }
        self.bytes += bytes;
        self.next.push(write);
        Ok(())
    }

    /// Waits until all that was added is written.
    pub(super) async fn settle(&mut self) -> Result<(), ServiceError> {
        while !self.under_way.is_empty() {
            self.one_done().await?;
        }
        if !self.next.is_empty() {
            let batch = self.batch();
            self.store.commit(batch).await.map_err(taken_over)?;
        }
        Ok(())
    }

    /// Writes what is left and takes the mark away.
    pub(super) async fn end(mut self) -> Result<Revision, ServiceError> {
        while !self.under_way.is_empty() {
            self.one_done().await?;
        }
        self.next.push(Write::Delete(keys::restore_mark()));
        let batch = self.batch();
        self.store.commit(batch).await.map_err(taken_over)
    }

    async fn one_done(&mut self) -> Result<(), ServiceError> {
        match self.under_way.join_next().await {
            Some(Ok(outcome)) => outcome.map(|_| ()).map_err(taken_over),
            Some(Err(_)) => Err(StoreError::Stopped.into()),
            None => Ok(()),
        }
    }

    fn batch(&mut self) -> Batch {
        self.bytes = 0;
        let checks = vec![Check::Unchanged(keys::restore_mark(), self.mark)];
        Batch { checks, writes: std::mem::take(&mut self.next) }
    }
}

fn taken_over(error: CommitError) -> ServiceError {
    match error {
        CommitError::Conflict(_) => ServiceError::Taken("another restore has taken this one's place".to_owned()),
        other => other.into(),
    }
}
