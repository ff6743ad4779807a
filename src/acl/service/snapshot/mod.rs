//! Snapshots: all records as one file, and back.
//!
//! Secrets stay sealed in it, as they are in the store: without the server's key it tells none.

// 0: what a restore stands on
mod spool;
mod restore_writes;

// 1: there and back
mod restore;
mod export;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

pub use self::export::Snapshot;
pub use self::restore::Restorer;
pub use self::spool::Spool;
use super::acl_service::Directory;
use super::caller::{Caller, Privilege};
use super::error::{Denied, ServiceError};
use super::keys;
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::PlainSecret;
use crate::acl::store::{Revision, StoreError};
use crate::error_chain::format_chain;

/// What a restore did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// How many records there are now.
    pub records: u64,
    /// The store's revision after it.
    pub revision: Revision,
    /// The accessor of who restored.
    pub by: Option<Id>,
}

/// The restores of this server: one at a time, each to its end even if who asked for it has gone.
#[derive(Debug)]
pub struct Restores {
    folder: PathBuf,
    turn: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Restores {
    /// With a folder for what comes.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, turn: Arc::new(Semaphore::new(1)), tasks: TaskTracker::new() }
    }

    /// Takes the turn, which ends when it is dropped.
    ///
    /// # Errors
    /// Another has it.
    pub fn begin(&self) -> Result<OwnedSemaphorePermit, ServiceError> {
        let turn = Arc::clone(&self.turn).try_acquire_owned();
        turn.map_err(|_| ServiceError::Taken("another restore is under way on this server".to_owned()))
    }

    /// A place for what comes.
    ///
    /// # Errors
    /// The folder takes no file.
    pub async fn spool(&self, _turn: &OwnedSemaphorePermit) -> Result<Spool, ServiceError> {
        Spool::create(&self.folder).await
    }

    /// Judges a snapshot and restores it.
    ///
    /// # Errors
    /// It cannot be used here, or who presents that secret may not: then nothing was changed. The store failed: then it may
    /// be shut, until a restore ends well.
    pub async fn run(
        &self,
        turn: OwnedSemaphorePermit,
        directory: &Arc<Directory>,
        presented: Option<PlainSecret>,
        spool: Spool,
    ) -> Result<Restored, ServiceError> {
        let directory = Arc::clone(directory);
        let restoring = self.tasks.spawn(async move {
            let outcome = directory.restore(presented.as_ref(), spool).await;
            drop(turn);
            match &outcome {
                Ok(restored) => {
                    let (operation, namespace) = ("snapshot.restore", "default");
                    let (what, by) = (format!("{} records", restored.records), restored.by.map(|by| by.to_string()));
                    tracing::info!(event = "acl.changed", operation, namespace, what, by, "restored everything");
                }
                // Refused: nothing was done.
                Err(
                    ServiceError::Invalid(_)
                    | ServiceError::Denied(_)
                    | ServiceError::Forbidden(_)
                    | ServiceError::UnknownSecret,
                ) => {}
                Err(error) => {
                    let error = format_chain(error);
                    tracing::error!(event = "acl.restore.failed", error, "a restore did not come to its end");
                }
            }
            outcome
        });
        restoring.await.unwrap_or(Err(StoreError::Stopped.into()))
    }

    /// Waits until none is under way.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A snapshot holds what all may do, and replaces it.
fn permitted(caller: &Caller) -> Result<(), Denied> {
    let home = NamespaceName::default_one();
    caller.require(Privilege::OperatorWrite, &home)?;
    caller.require(Privilege::AclWrite, &home)
}

/// Whether the record with that key is of a restore, and no part of what is restored.
fn in_a_restore(key: &str) -> bool {
    key.starts_with(keys::RESTORES)
}
