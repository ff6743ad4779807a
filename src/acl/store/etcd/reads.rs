//! Range reads.

use std::time::Duration;

use etcd_client::{Client, GetOptions, GetResponse};
use tokio::time::Instant;

use super::error::{FailureKind, MemberErrors};
use super::keys::{number, revision};
use super::{Etcd, at, kind_of};
use crate::store::{Freshness, Listing, Page, Revision, StoreError};

/// Records per request; reduced if they are large, as a gRPC message holds 4 MiB.
pub(super) const CHUNK_RECORDS: usize = 1024;

/// Time to search for a member at the required revision if the nearest one lags behind.
const CATCH_UP: Duration = Duration::from_secs(1);

impl Etcd {
    /// Reads a key range with the given freshness, never older than the last known change of the kind.
    pub(super) async fn range(
        &self,
        kind: &str,
        key: Vec<u8>,
        options: GetOptions,
        freshness: Freshness,
    ) -> Result<GetResponse, MemberErrors> {
        let ask = |options: GetOptions| {
            let key = key.clone();
            move |client: Client| {
                let key = key.clone();
                let options = options.clone();
                async move { client.kv_client().get(key, Some(options)).await }
            }
        };
        if freshness == Freshness::Linearizable {
            return self.members.read(self.members.deadline(), ask(options)).await;
        }
        let last_change = self.kinds.last(kind);
        let response = self.nearest.read(self.nearest.deadline(), ask(options.clone().with_serializable())).await?;
        if at(response.header()) >= last_change {
            return Ok(response);
        }
        // No member has caught up in time: the caller accepts a stale answer.
        Ok(self.members.read(Instant::now() + CATCH_UP, ask(options)).await.unwrap_or(response))
    }

    /// Reads a page of a list at one revision.
    pub(super) async fn page(&self, prefix: &str, page: &Page, freshness: Freshness) -> Result<Listing, StoreError> {
        let kind = kind_of(prefix);
        let end = prefix_end(self.prefix.prepend_to(prefix));
        let first = match &page.after {
            // The smallest key after it.
            Some(after) => self.prefix.prepend_to(&format!("{}\0", after.as_str())),
            None => self.prefix.prepend_to(prefix),
        };
        let mut start = first.clone();
        let mut listing = Listing { entries: Vec::new(), more: true, revision: Revision(0) };
        let mut chunk = CHUNK_RECORDS;
        let mut snapshot = 0;
        while listing.more && (listing.entries.len() < page.limit || snapshot == 0) {
            // Without a limit etcd returns everything.
            let limit = (page.limit - listing.entries.len()).clamp(1, chunk);
            let options = GetOptions::new()
                .with_range(end.clone())
                .with_revision(snapshot)
                .with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            let mut response = match self.range(kind, start.clone(), options, freshness).await {
                Err(errors) if errors.kind() == FailureKind::TooLarge && limit > 1 => {
                    chunk = limit / 2;
                    continue;
                }
                // The revision was compacted: start over.
                Err(errors) if errors.kind() == FailureKind::Compacted && snapshot != 0 => {
                    (snapshot, start) = (0, first.clone());
                    listing.entries.clear();
                    continue;
                }
                result => result?,
            };
            if snapshot == 0 {
                snapshot = number(at(response.header()));
            }
            listing.more = response.more();
            for record in response.take_kvs() {
                start = [record.key(), b"\0"].concat();
                listing.entries.push(self.prefix.record(record)?);
            }
        }
        if listing.entries.len() > page.limit {
            listing.entries.truncate(page.limit);
            listing.more = true;
        }
        // Changes reported after the read are not part of it.
        let last_change = self.kinds.last(kind).min(revision(snapshot));
        let newest = listing.entries.iter().map(|(_, record)| record.modified).max();
        listing.revision = last_change.max(newest.unwrap_or_default());
        Ok(listing)
    }
}

/// Returns the end of a prefix's key range: the final slash becomes the next character.
pub(super) fn prefix_end(mut prefix: Vec<u8>) -> Vec<u8> {
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}
