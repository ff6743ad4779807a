//! All records as they were at one revision, read piece by piece.

use std::sync::Arc;

use etcd_client::{Client, GetOptions};

use super::at;
use super::error::{Kind, Troubles};
use super::keys::{Prefix, number, revision};
use super::members::Members;
use super::reads::{CHUNK, after_all};
use crate::acl::store::{Key, Record, Revision, StoreError};

/// All records as they were when it began. etcd forgets old revisions in time, as it is told to; then reading fails.
#[derive(Debug)]
pub(in crate::acl::store) struct Export {
    members: Arc<Members>,
    prefix: Prefix,
    revision: i64,
    /// The first key that was not read, until all were.
    start: Option<Vec<u8>>,
    chunk: usize,
}

impl Export {
    pub(super) async fn begin(members: &Arc<Members>, prefix: &Prefix) -> Result<Self, Troubles> {
        let start = prefix.with("");
        let ask = |client: Client| {
            let start = start.clone();
            async move { client.kv_client().get(start, None).await }
        };
        let answer = members.read(members.end(), ask).await?;
        let revision = number(at(answer.header()));
        Ok(Self { members: Arc::clone(members), prefix: prefix.clone(), revision, start: Some(start), chunk: CHUNK })
    }

    pub(in crate::acl::store) fn revision(&self) -> Revision {
        revision(self.revision)
    }

    /// The next records, at most so many; none at the end.
    pub(in crate::acl::store) async fn next(&mut self, limit: usize) -> Result<Vec<(Key, Record)>, StoreError> {
        let mut entries = Vec::new();
        while entries.is_empty()
            && let Some(start) = &self.start
        {
            let limit = limit.clamp(1, self.chunk);
            let how = GetOptions::new()
                .with_range(after_all(self.prefix.with("")))
                .with_revision(self.revision)
                .with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            let ask = |client: Client| {
                let (start, how) = (start.clone(), how.clone());
                async move { client.kv_client().get(start, Some(how)).await }
            };
            let mut found = match self.members.read(self.members.end(), ask).await {
                Err(troubles) if troubles.kind() == Kind::TooMuch && limit > 1 => {
                    self.chunk = limit / 2;
                    continue;
                }
                found => found?,
            };
            let last = found.kvs().last().map(|record| [record.key(), b"\0"].concat());
            self.start = last.filter(|_| found.more());
            let records = found.take_kvs().into_iter();
            // What the store says of itself is no record.
            let records = records.filter(|record| self.prefix.without(record.key()).is_some());
            entries = records.map(|record| self.prefix.record(record)).collect::<Result<_, _>>()?;
        }
        Ok(entries)
    }
}
