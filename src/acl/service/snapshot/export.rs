//! Export of a snapshot: all records of one revision, in chunks, while writes continue.

use super::{is_restore_record, require_snapshot_privileges};
use crate::model::snapshot::{SnapshotHeader, SnapshotWriter};
use crate::service::acl_service::AclService;
use crate::service::caller::Caller;
use crate::service::error::ServiceError;
use crate::store::{Export, Freshness, StoreError};

/// Records per chunk; bounds the memory if each has the largest size.
const PAGE_SIZE: usize = 64;

/// A snapshot that is being exported.
#[derive(Debug)]
pub(crate) struct SnapshotExport {
    export: Export,
    header: SnapshotHeader,
    writer: Option<SnapshotWriter>,
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
        Ok(Self { export, header, writer: None, ended: None })
    }

    /// Returns the next bytes; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ServiceError> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => SnapshotWriter::begin(&self.header, &mut bytes).map_err(ServiceError::Encode)?,
        };
        let records = self.export.next(PAGE_SIZE).await?;
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
        self.writer = Some(writer);
        Ok(Some(bytes))
    }

    /// Returns the number of records once the export is complete.
    pub(crate) fn records(&self) -> Option<u64> {
        self.ended
    }
}
