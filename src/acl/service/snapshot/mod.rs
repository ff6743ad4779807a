//! Export and restore of all records as one file.
//!
//! Secrets stay encrypted as in the store; the file reveals none without the server's key.

// 0: parts of a restore
mod spool;
mod existing_keys;
mod restore_writes;

// 1: restore and export
mod restore;
mod export;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

pub(crate) use self::export::SnapshotExport;
pub(crate) use self::spool::Spool;
use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::{Denied, ServiceError};
use super::record_keys;
use super::rejection::Conflict;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::secret::PlainSecret;
use crate::store::{Revision, StoreError};

/// Result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RestoreResult {
    /// Number of records.
    pub records: u64,
    /// Revision of the store afterwards.
    pub revision: Revision,
    /// Accessor of the token that restored.
    pub by: Option<Id>,
}

/// Runs restores, one at a time. A restore continues if the requesting client goes away.
#[derive(Debug)]
pub(crate) struct RestoreRunner {
    folder: PathBuf,
    turn: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl RestoreRunner {
    /// Creates a runner that spools uploads to `folder`.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, turn: Arc::new(Semaphore::new(1)), tasks: TaskTracker::new() }
    }

    /// Acquires the permit for a restore, released on drop. Fails if another restore is running.
    pub(crate) fn begin(&self) -> Result<OwnedSemaphorePermit, ServiceError> {
        let turn = Arc::clone(&self.turn).try_acquire_owned();
        turn.map_err(|_| Conflict::RestoreRunning.into())
    }

    /// Creates a spool file for an upload.
    pub(crate) async fn spool(&self, _turn: &OwnedSemaphorePermit) -> Result<Spool, ServiceError> {
        Spool::create(&self.folder).await
    }

    /// Validates a snapshot and restores it. If it is invalid here or the caller is not allowed, nothing was changed.
    /// If the store failed, it may stay locked until a restore succeeds.
    pub(crate) async fn run(
        &self,
        turn: OwnedSemaphorePermit,
        service: &Arc<AclService>,
        presented: Option<PlainSecret>,
        spool: Spool,
    ) -> Result<RestoreResult, ServiceError> {
        let service = Arc::clone(service);
        let restoring = self.tasks.spawn(async move {
            let outcome = service.restore().run(presented.as_ref(), spool).await;
            drop(turn);
            if let Ok(restored) = &outcome {
                let operation = "snapshot.restore";
                let namespace = "default";
                let what = format!("{} records", restored.records);
                let by = restored.by.map(|by| by.to_string());
                tracing::info!(event = "acl.changed", operation, namespace, what, by, "restored a snapshot");
            }
            outcome
        });
        restoring.await.unwrap_or(Err(StoreError::Stopped.into()))
    }

    /// Waits until no restore is running.
    pub(crate) async fn wait_until_idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Checks the privileges for snapshots: `operator:write` and `acl:write`, as a snapshot contains and replaces all
/// permissions.
fn require_snapshot_privileges(caller: &Caller) -> Result<(), Denied> {
    let default_namespace = NamespaceName::default_namespace();
    caller.require(Privilege::OperatorWrite, &default_namespace)?;
    caller.require(Privilege::AclWrite, &default_namespace)
}

/// Returns whether the key belongs to the restore records, which are not part of a snapshot.
fn is_restore_record(key: &str) -> bool {
    key.starts_with(record_keys::RESTORES)
}
