//! A snapshot is taken: all records as they were at one moment, piece by piece, while the store is written on.

use super::{in_a_restore, permitted};
use crate::acl::model::snapshot::{Header, Writer};
use crate::acl::service::acl_service::Directory;
use crate::acl::service::caller::Caller;
use crate::acl::service::error::ServiceError;
use crate::acl::store::{Export, Freshness, StoreError};

/// Records that are read at once: as many as memory bears where each is as large as one can be.
const RECORDS: usize = 64;

/// A snapshot on its way.
#[derive(Debug)]
pub struct Snapshot {
    export: Export,
    header: Header,
    writer: Option<Writer>,
    ended: Option<u64>,
}

impl Directory {
    /// Begins a snapshot of how the store is now.
    ///
    /// # Errors
    /// The caller lacks `operator:write` or `acl:write` in `default`; the store failed.
    pub async fn snapshot(&self, caller: &Caller) -> Result<Snapshot, ServiceError> {
        permitted(caller)?;
        let epoch = self.epoch(Freshness::Linearizable).await?;
        // For people, and for a quick refusal: what counts is the record of the keys, which is among the others.
        let keys = self.keys_now().await?;
        let export = self.records.store().export().await?;
        // A restore that began before the export did is seen now.
        if !self.epoch(Freshness::Linearizable).await?.is(epoch) {
            return Err(ServiceError::Restoring);
        }
        let header = Header {
            datacenter: self.datacenter.clone(),
            key_ids: keys.named.all().map(|key| key.id().to_owned()).collect(),
            revision: export.revision().0,
            taken: self.now(),
        };
        Ok(Snapshot { export, header, writer: None, ended: None })
    }
}

impl Snapshot {
    /// The bytes that come next; `None` after the last.
    ///
    /// # Errors
    /// The store failed.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ServiceError> {
        if self.ended.is_some() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => Writer::begin(&self.header, &mut bytes).map_err(ServiceError::Encode)?,
        };
        let records = self.export.next(RECORDS).await?;
        if records.is_empty() {
            self.ended = Some(writer.end(&mut bytes));
            return Ok(Some(bytes));
        }
        for (key, record) in records.iter().filter(|(key, _)| !in_a_restore(key.as_str())) {
            let unreadable = || StoreError::Unreadable { key: key.as_str().to_owned() };
            // The store gives a damaged record without its value: in a snapshot it would be taken for whole.
            if record.value.is_empty() {
                return Err(unreadable().into());
            }
            writer.record(key.as_str(), &record.value, &mut bytes).map_err(|_| unreadable())?;
        }
        self.writer = Some(writer);
        Ok(Some(bytes))
    }

    /// How many records it has, once it has ended.
    pub fn records(&self) -> Option<u64> {
        self.ended
    }
}
