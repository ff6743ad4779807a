//! Looks at the records: one range of keys at a time.

use std::time::Duration;

use etcd_client::{Client, GetOptions, GetResponse};
use tokio::time::Instant;

use super::error::{Kind, Troubles};
use super::keys::{number, revision};
use super::{Etcd, at, kind_of};
use crate::acl::store::{Freshness, Listing, Page, Revision, StoreError};

/// Records that are asked for at once. Fewer where they are large: a message holds 4 MiB.
pub(super) const CHUNK: usize = 1024;

/// How long a member that lags behind what was told already is passed over for one that knows the newest.
const CATCH_UP: Duration = Duration::from_secs(1);

impl Etcd {
    /// One range of keys, as new as asked for, and no older than what was told of that kind.
    pub(super) async fn range(
        &self,
        kind: &str,
        key: Vec<u8>,
        how: GetOptions,
        freshness: Freshness,
    ) -> Result<GetResponse, Troubles> {
        let ask = |how: GetOptions| {
            let key = key.clone();
            move |client: Client| {
                let (key, how) = (key.clone(), how.clone());
                async move { client.kv_client().get(key, Some(how)).await }
            }
        };
        if freshness == Freshness::Linearizable {
            return self.members.read(self.members.end(), ask(how)).await;
        }
        let told = self.kinds.last(kind);
        let answer = self.nearest.read(self.nearest.end(), ask(how.clone().with_serializable())).await?;
        if at(answer.header()) >= told {
            return Ok(answer);
        }
        Ok(self.members.read(Instant::now() + CATCH_UP, ask(how)).await.unwrap_or(answer))
    }

    /// A page of a list, all of it as it was at one revision.
    pub(super) async fn page(&self, prefix: &str, page: &Page, freshness: Freshness) -> Result<Listing, StoreError> {
        let kind = kind_of(prefix);
        let end = after_all(self.prefix.with(prefix));
        let first = match &page.after {
            // The first key that could come after it.
            Some(after) => self.prefix.with(&format!("{}\0", after.as_str())),
            None => self.prefix.with(prefix),
        };
        let mut start = first.clone();
        let mut listing = Listing { entries: Vec::new(), more: true, revision: Revision(0) };
        let (mut chunk, mut snapshot) = (CHUNK, 0);
        while listing.more && (listing.entries.len() < page.limit || snapshot == 0) {
            // Without a limit etcd gives all.
            let limit = (page.limit - listing.entries.len()).clamp(1, chunk);
            let how = GetOptions::new()
                .with_range(end.clone())
                .with_revision(snapshot)
                .with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            let mut found = match self.range(kind, start.clone(), how, freshness).await {
                Err(troubles) if troubles.kind() == Kind::TooMuch && limit > 1 => {
                    chunk = limit / 2;
                    continue;
                }
                // What the list began with is gone: from the start again.
                Err(troubles) if troubles.kind() == Kind::Compacted && snapshot != 0 => {
                    (snapshot, start) = (0, first.clone());
                    listing.entries.clear();
                    continue;
                }
                found => found?,
            };
            if snapshot == 0 {
                snapshot = number(at(found.header()));
            }
            listing.more = found.more();
            for record in found.take_kvs() {
                start = [record.key(), b"\0"].concat();
                listing.entries.push(self.prefix.record(record)?);
            }
        }
        if listing.entries.len() > page.limit {
            listing.entries.truncate(page.limit);
            listing.more = true;
        }
        // What was told after the records were read is not in them.
        let told = self.kinds.last(kind).min(revision(snapshot));
        let newest = listing.entries.iter().map(|(_, record)| record.modified).max();
        listing.revision = told.max(newest.unwrap_or_default());
        Ok(listing)
    }
}

/// The end of the range of all keys that start so: the slash at its end becomes the character that follows the slash.
pub(super) fn after_all(mut prefix: Vec<u8>) -> Vec<u8> {
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}
