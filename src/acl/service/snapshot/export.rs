//! Export of a snapshot: all records of one revision, in chunks, while writes continue.

use super::{is_restore_record, require_snapshot_privileges};
use crate::model::snapshot::{SnapshotHeader, SnapshotWriter};
use crate::service::acl_service::AclService;
use crate::service::caller::Caller;
use crate::service::error::ServiceError;
use crate::service::typed_store::TypedStore;
use crate::store::{Export, Freshness, StoreError};

/// Most records in a piece.
const PIECE_RECORDS: usize = 256;

/// Records in the first piece; bounds the memory if each has the largest size.
const FIRST_PIECE: usize = 64;

/// Intended size of a piece in bytes, for which the records of the next one are counted.
const PIECE_BYTES: usize = 64 * 1024;

/// A snapshot that is being exported.
#[derive(Debug)]
pub(crate) struct SnapshotExport {
    typed_store: TypedStore,
    export: Export,
    header: SnapshotHeader,
    writer: Option<SnapshotWriter>,
    /// Records in the next piece.
    limit: usize,
    ended: Option<u64>,
}

impl SnapshotExport {
    /// Starts an export of the store's current state. Needs `operator:write` and `acl:write` in `default`.
    pub(crate) async fn start(service: &AclService, caller: &Caller) -> Result<Self, ServiceError> {
        require_snapshot_privileges(caller)?;
        let epoch = service.epoch(Freshness::Linearizable).await?;
        // For operators and early rejection; the key record among the data is authoritative.
        let keys = service.reload_keys().await?;
        let export = service.typed_store.store().export().await?;
        // Detects a restore that began before the export.
        if !service.epoch(Freshness::Linearizable).await?.is(epoch) {
            return Err(ServiceError::Restoring);
        }
        let header = SnapshotHeader {
            datacenter: service.datacenter.clone(),
            key_ids: keys.active.keys().map(|key| key.id().to_owned()).collect(),
            revision: export.revision().0,
            created_at: service.now(),
        };
        let typed_store = service.typed_store.clone();
        Ok(Self { typed_store, export, header, writer: None, limit: FIRST_PIECE, ended: None })
    }

    /// Returns the next bytes; `None` after the last. Lets other tasks run first.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ServiceError> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => SnapshotWriter::begin(&self.header, &mut bytes).map_err(ServiceError::Encode)?,
        };
        self.typed_store.wait_for_turn().await;
        let records = self.export.next(self.limit).await?;
        if records.is_empty() {
            self.ended = Some(writer.end(&mut bytes));
            return Ok(Some(bytes));
        }
        for (key, record) in records.iter().filter(|(key, _)| !is_restore_record(key.as_str())) {
            let unreadable = || StoreError::Unreadable { key: key.as_str().to_owned() };
            // The store returns damaged records with an empty value, which the snapshot would present as intact.
            if record.value.is_empty() {
                return Err(unreadable().into());
            }
            writer.record(key.as_str(), &record.value, &mut bytes).map_err(|_| unreadable())?;
        }
        self.limit = (self.limit * PIECE_BYTES / bytes.len().max(1)).clamp(1, PIECE_RECORDS);
        self.writer = Some(writer);
        Ok(Some(bytes))
    }

    /// Returns the number of records once the export is complete.
    pub(crate) fn records(&self) -> Option<u64> {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use keyward_machine::clock::Clock;
    use tokio::task::JoinSet;

    use super::*;
    use crate::model::authorize::DefaultPolicy;
    use crate::service::seal::Sealer;
    use crate::store::{Batch, Embedded, Store, Write};

    #[tokio::test]
    async fn other_tasks_run_between_the_pieces_of_a_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
        let sealer = Sealer::open(&folder.path().join("seal.key"), &*store).await.unwrap();
        for number in 0..8 {
            let value = vec![b' '; 4096];
            let write = |record| Write::Put(format!("token/default/{number}{record:04}").into(), value.clone());
            store.commit(Batch { checks: vec![], writes: (0..100).map(write).collect() }).await.unwrap();
        }
        let service = AclService::new(store, sealer, "dc1".to_owned(), DefaultPolicy::Deny, Clock::System);
        service.create_builtins().await.unwrap();
        let secret = service.bootstrap(None, None).await.unwrap().secret;
        let caller = service.authenticator().authenticate(Some(&secret), Freshness::Linearizable).await.unwrap();
        let turns = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&turns);
        let mut other = JoinSet::new();
        other.spawn(async move {
            loop {
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let mut snapshot = SnapshotExport::start(&service, &caller).await.unwrap();
        let (mut pieces, mut before, mut largest) = (0, 0, 0);
        while let Some(piece) = snapshot.next().await.unwrap() {
            let now = turns.load(Ordering::Relaxed);
            assert!(now > before, "no other task ran before piece {pieces}");
            (pieces, before) = (pieces + 1, now);
            if pieces > 2 {
                largest = largest.max(piece.len());
            }
        }
        assert!(pieces > 8 * 100 * 4096 / PIECE_BYTES / 2, "{pieces} pieces");
        assert!(largest < 2 * PIECE_BYTES, "a piece of {largest} bytes");
    }
}
