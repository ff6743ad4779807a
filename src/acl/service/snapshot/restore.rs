//! Restore: replaces all records by those of a snapshot.
//!
//! The snapshot is validated as a whole first. Then the marker is written, which locks the store for everyone else
//! ([`RestoreMarker`]); running requests get time to finish; records are replaced in batches; and the namespaces,
//! without which nothing is accessible, are written last, together with the deletion of the marker. An interrupted
//! restore leaves the marker, and the next one starts over.

use std::time::Duration;

use keyward_telemetry::error_chain::format_chain;

use super::existing_keys::ExistingKeys;
use super::restore_writes::RestoreWriter;
use super::spool::{SnapshotPieces, Spool, invalid};
use super::{RestoreResult, is_restore_record, require_snapshot_privileges};
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::secret::PlainSecret;
use crate::model::snapshot::{SnapshotError, SnapshotHeader, SnapshotPiece};
use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::record_keys;
use crate::service::rejection::{Conflict, Forbidden, InvalidRequest};
use crate::service::restore_lock::RestoreMarker;
use crate::service::seal::{self, SealKeys};
use crate::store::{Batch, Check, CommitError, Freshness, Key, Page, Revision, Write};

/// Proof that the caller may restore.
#[derive(Debug)]
pub(crate) struct AuthorizedRestore {
    accessor: Option<Id>,
    /// Revision of the marker of an interrupted restore.
    marker: Option<Revision>,
}

impl AuthorizedRestore {
    /// Returns the accessor of the caller's token, or of the one that began the interrupted restore; `None` for the
    /// anonymous token.
    pub(crate) fn accessor(&self) -> Option<Id> {
        self.accessor
    }
}

/// Time between the marker and the first change, in which running requests finish.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Keys per read.
const PAGE_SIZE: usize = 64;

const NAMESPACES: &str = "namespace/";

/// Replacement of all records by those of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restore<'a> {
    service: &'a AclService,
}

impl AclService {
    /// Returns the restore of snapshots.
    pub(crate) fn restore(&self) -> Restore<'_> {
        Restore { service: self }
    }
}

impl Restore<'_> {
    /// Authorizes a restore: the caller needs the privileges, or, if a restore was interrupted, must be the one that
    /// began it.
    pub(crate) async fn authorize(self, presented: Option<&PlainSecret>) -> Result<AuthorizedRestore, ServiceError> {
        let state = self.service.restore_lock.load_state(&self.service.typed_store, Freshness::Linearizable).await?;
        let Some(marker) = state.marker else {
            let caller = self.service.authenticator().authenticate(presented, Freshness::Linearizable).await?;
            require_snapshot_privileges(&caller)?;
            return Ok(AuthorizedRestore { accessor: caller.accessor(), marker: None });
        };
        let is_same_caller = match (&marker.value.by, presented) {
            // The key record may be from before or from the snapshot, so any key of the file counts.
            (Some(by), Some(secret)) => self.service.sealer.keys().file.keys().any(|key| key.hash(secret) == *by),
            (None, None) => true,
            _ => false,
        };
        if is_same_caller {
            Ok(AuthorizedRestore { accessor: marker.value.accessor, marker: Some(marker.modified) })
        } else {
            Err(Forbidden::Restore.into())
        }
    }

    /// Validates the spooled snapshot and replaces all records by it.
    pub(super) async fn run(
        self,
        presented: Option<&PlainSecret>,
        mut spool: Spool,
    ) -> Result<RestoreResult, ServiceError> {
        let records = self.validate(&mut spool.pieces().await?).await?;
        // Authorize again: the upload may have taken long.
        let authorized = self.authorize(presented).await?;
        let seal_keys = self.service.reload_keys().await.inspect_err(|error| {
            tracing::error!(
                event = "acl.restore.failed",
                error = format_chain(error),
                "a restore cannot read the sealing keys and did not begin: correct the key file or the store, then restore again"
            );
        })?;
        let marker = self.put_marker(&seal_keys, &authorized, presented).await.inspect_err(log_lock_failure)?;
        tracing::warn!(
            event = "acl.restore.started",
            records,
            "restoring a snapshot: the store is locked until it completes"
        );
        tokio::time::sleep(DRAIN_TIME).await;
        let replaced = self.replace(&mut spool, marker).await.inspect_err(log_replace_failure);
        // A full disk rejects the current batch only: those before it are written.
        let revision = replaced.map_err(|error| match error {
            ServiceError::Conflict(_) => error,
            error => ServiceError::RestoreFailed(Box::new(error)),
        })?;
        let finished = self.finish().await.inspect_err(|error| {
            tracing::error!(
                event = "acl.restore.failed",
                error = format_chain(error),
                "restored all records, but cannot check the anonymous token or create it again: restart the server, which does so"
            );
        });
        finished.map_err(|error| ServiceError::AnonymousTokenMissing(Box::new(error)))?;
        Ok(RestoreResult { records, revision, by: authorized.accessor })
    }

    /// Reads the state of the lock again, and creates the anonymous token if the snapshot lacks it, as its store may have.
    async fn finish(self) -> Result<(), ServiceError> {
        self.service.restore_lock.load_state(&self.service.typed_store, Freshness::Linearizable).await?;
        self.service.recreate_anonymous_token().await
    }

    /// Validates all pieces for this server; returns the number of records.
    async fn validate(self, pieces: &mut SnapshotPieces<'_>) -> Result<u64, ServiceError> {
        let default_namespace = record_keys::namespace(&NamespaceName::default_namespace());
        let mut has_default_namespace = false;
        while let Some(piece) = pieces.next().await? {
            match piece {
                SnapshotPiece::Header(header) => self.check_header(&header).await?,
                SnapshotPiece::Record(key, value) => {
                    if is_restore_record(&key) || key.len() + value.len() > Batch::MAX_BYTES {
                        return Err(InvalidRequest::SnapshotRecord(key).into());
                    }
                    has_default_namespace |= key == default_namespace.as_str();
                    if key == seal::key_record().as_str() {
                        self.require_keys(&String::from_utf8_lossy(&value))?;
                    }
                }
                SnapshotPiece::End(_) if !has_default_namespace => {
                    return Err(InvalidRequest::SnapshotNamespace.into());
                }
                SnapshotPiece::End(records) => {
                    // No data may follow.
                    return match pieces.next().await? {
                        None => Ok(records),
                        Some(_) => Err(invalid(&SnapshotError::TrailingData)),
                    };
                }
            }
        }
        Err(invalid(&SnapshotError::Truncated))
    }

    async fn check_header(self, header: &SnapshotHeader) -> Result<(), ServiceError> {
        if header.datacenter != self.service.datacenter {
            let found = header.datacenter.clone();
            let expected = self.service.datacenter.clone();
            return Err(InvalidRequest::SnapshotDatacenter { found, expected }.into());
        }
        let key_ids = header.key_ids.join(" ");
        if self.require_keys(&key_ids).is_err() {
            // An operator may have added the key for this restore.
            let reread = self.service.sealer.reload_file(&self.service.key_record().await?, false).await;
            reread.map_err(|error| InvalidRequest::Snapshot(format_chain(&error)))?;
        }
        self.require_keys(&key_ids)
    }

    /// Checks that the key file has all keys that the snapshot's secrets are encrypted with.
    fn require_keys(self, key_ids: &str) -> Result<(), ServiceError> {
        let keys = self.service.sealer.keys();
        match key_ids.split_whitespace().find(|id| keys.file.find(id).is_none()) {
            Some(id) => Err(InvalidRequest::SnapshotKey(id.to_owned()).into()),
            None => Ok(()),
        }
    }

    /// Writes the marker, or takes over the one of an interrupted restore.
    async fn put_marker(
        self,
        seal_keys: &SealKeys,
        authorized: &AuthorizedRestore,
        presented: Option<&PlainSecret>,
    ) -> Result<Revision, ServiceError> {
        let key = record_keys::restore_marker();
        let by = presented.map(|secret| seal_keys.current().hash(secret));
        let marker = RestoreMarker { by, accessor: authorized.accessor, started_at: self.service.now() };
        let value = serde_json::to_vec(&marker).map_err(ServiceError::Encode)?;
        let check = match authorized.marker {
            Some(at) => Check::Unchanged(key.clone(), at),
            None => Check::Absent(key.clone()),
        };
        let started_at = serde_json::to_vec(&marker.started_at).map_err(ServiceError::Encode)?;
        let writes = vec![Write::Put(key, value), Write::Put(record_keys::restore_last(), started_at)];
        // Not by `TypedStore::commit`, which rejects every batch while a marker exists.
        let put = self.service.typed_store.store().commit(Batch { checks: vec![check], writes }).await;
        let at = put.map_err(|error| match error {
            CommitError::Conflict(_) => ServiceError::from(Conflict::RestoreStarted),
            other => other.into(),
        })?;
        self.service.restore_lock.load_state(&self.service.typed_store, Freshness::Linearizable).await?;
        Ok(at)
    }

    /// Replaces all records. Unchanged ones are written too, so that all blocking queries wake up.
    async fn replace(self, spool: &mut Spool, marker: Revision) -> Result<Revision, ServiceError> {
        let store = self.service.typed_store.store();
        let mut writes = RestoreWriter::new(store, marker);
        // The namespaces go first: without them no token is valid, should the restore be interrupted.
        let mut after = None;
        loop {
            let page = Page { after, limit: PAGE_SIZE };
            let listing = store.list(NAMESPACES, page, Freshness::Linearizable).await?;
            after = listing.entries.last().filter(|_| listing.more).map(|(key, _)| key.clone());
            for (key, _) in listing.entries {
                writes.add(Write::Delete(key)).await?;
            }
            if after.is_none() {
                break;
            }
        }
        writes.flush().await?;

        let mut existing = ExistingKeys::new(store.export().await?);
        let mut existing_key = existing.next().await?;
        let mut pieces = spool.pieces().await?;
        while let Some((key, value)) = pieces.record().await? {
            let key = Key::from(key);
            while let Some(obsolete_key) = existing_key.take_if(|existing_key| *existing_key < key) {
                writes.add(Write::Delete(obsolete_key)).await?;
                existing_key = existing.next().await?;
            }
            if existing_key.as_ref() == Some(&key) {
                existing_key = existing.next().await?;
            }
            if !key.as_str().starts_with(NAMESPACES) {
                writes.add(Write::Put(key, value)).await?;
            }
        }
        while let Some(obsolete_key) = existing_key {
            writes.add(Write::Delete(obsolete_key)).await?;
            existing_key = existing.next().await?;
        }
        drop(existing);
        writes.flush().await?;

        let mut pieces = spool.pieces().await?;
        while let Some((key, value)) = pieces.record().await? {
            if key.starts_with(NAMESPACES) {
                writes.add(Write::Put(Key::from(key), value)).await?;
            } else if key.as_str() > NAMESPACES {
                break;
            }
        }
        writes.end().await
    }
}

/// Logs that the marker could not be written, or that the lock could not be read afterwards.
fn log_lock_failure(error: &ServiceError) {
    // The other restore has the lock, and logs its own failure.
    if matches!(error, ServiceError::Conflict(Conflict::RestoreStarted)) {
        return;
    }
    tracing::error!(
        event = "acl.restore.failed",
        error = format_chain(error),
        "a restore failed before it changed a record, but may have locked the store: restore again"
    );
}

/// Logs that the records could not be replaced.
fn log_replace_failure(error: &ServiceError) {
    let superseded = matches!(error, ServiceError::Conflict(Conflict::RestoreSuperseded));
    let error = format_chain(error);
    if superseded {
        tracing::error!(
            event = "acl.restore.failed",
            error,
            "a restore ended because another one took over: restore again only if that one fails too"
        );
    } else {
        tracing::error!(
            event = "acl.restore.failed",
            error,
            "a restore failed while it replaced the records: restore again to unlock the store"
        );
    }
}
