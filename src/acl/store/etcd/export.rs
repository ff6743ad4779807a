//! Export of all records at one revision, in chunks.

use std::sync::Arc;

use etcd_client::{Client, GetOptions};

use super::at;
use super::error::{FailureKind, MemberErrors};
use super::keys::{Prefix, number, revision};
use super::members::Members;
use super::reads::{CHUNK_RECORDS, prefix_end};
use crate::store::{Key, Record, Revision, StoreError};

/// All records at the revision of its start. Fails if etcd compacts this revision.
#[derive(Debug)]
pub(crate) struct Export {
    members: Arc<Members>,
    prefix: Prefix,
    revision: i64,
    /// Next key to read; `None` at the end.
    start: Option<Vec<u8>>,
    chunk: usize,
}

impl Export {
    pub(super) async fn begin(members: &Arc<Members>, prefix: &Prefix) -> Result<Self, MemberErrors> {
        let start = prefix.prepend_to("");
        // No record has this key: the response is read for its revision.
        let ask = |client: Client| {
            let start = start.clone();
            async move { client.kv_client().get(start, None).await }
        };
        let response = members.read(members.deadline(), ask).await?;
        let revision = number(at(response.header()));
        Ok(Self {
            members: Arc::clone(members),
            prefix: prefix.clone(),
            revision,
            start: Some(start),
            chunk: CHUNK_RECORDS,
        })
    }

    pub(crate) fn revision(&self) -> Revision {
        revision(self.revision)
    }

    /// Returns the next records, at most `limit`; empty at the end.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<(Key, Record)>, StoreError> {
        let mut entries = Vec::new();
        while entries.is_empty()
            && let Some(start) = &self.start
        {
            let limit = limit.clamp(1, self.chunk);
            let options = GetOptions::new()
                .with_range(prefix_end(self.prefix.prepend_to("")))
                .with_revision(self.revision)
                .with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            let ask = |client: Client| {
                let start = start.clone();
                let options = options.clone();
                async move { client.kv_client().get(start, Some(options)).await }
            };
            let mut response = match self.members.read(self.members.deadline(), ask).await {
                Err(errors) if errors.kind() == FailureKind::TooLarge && limit > 1 => {
                    self.chunk = limit / 2;
                    continue;
                }
                result => result?,
            };
            let last = response.kvs().last().map(|record| [record.key(), b"\0"].concat());
            self.start = last.filter(|_| response.more());
            let records = response.take_kvs().into_iter();
            // The store's metadata is not a record.
            let records = records.filter(|record| self.prefix.strip_from(record.key()).is_some());
            entries = records.map(|record| self.prefix.record(record)).collect::<Result<_, _>>()?;
        }
        Ok(entries)
    }
}
