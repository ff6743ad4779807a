//! Typed access to the records of the store.

use std::sync::Arc;

use keyward_telemetry::metrics::Metrics;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::error::ServiceError;
use super::record_cache::RecordCache;
use super::record_keys;
use super::transaction::Transaction;
use super::unreadable_records::UnreadableRecords;
use crate::AclMetrics;
use crate::store::{Check, CommitError, Freshness, Key, Page, Record, Revision, Store, StoreError, Verification};

/// A record with its revisions.
#[derive(Debug, Clone)]
pub(crate) struct Stored<T> {
    /// Deserialized value.
    pub value: Arc<T>,
    /// Revision that created it.
    pub created: Revision,
    /// Revision that changed it last.
    pub modified: Revision,
}

/// Typed view of the store, with a cache of deserialized records.
#[derive(Debug, Clone)]
pub(crate) struct TypedStore {
    store: Arc<dyn Store>,
    cache: Arc<RecordCache>,
    unreadable: Arc<UnreadableRecords>,
    /// Permits to read a page, in the order of the requests.
    page_turns: Arc<Semaphore>,
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct PageOf<T> {
    /// Records in key order, without unreadable ones.
    pub entries: Vec<(Key, Stored<T>)>,
    /// Key of the first unreadable record.
    pub unreadable: Option<Key>,
    /// Key to continue after; `None` at the end.
    pub next: Option<Key>,
    /// Revision of the last change of any record of the kind.
    pub revision: Revision,
}

/// All records of a kind, or of a kind in a namespace.
#[derive(Debug)]
pub(crate) struct ListOf<T> {
    /// Records in key order, without unreadable ones.
    pub entries: Vec<Stored<T>>,
    /// Revision of the last change of any record of the kind.
    pub revision: Revision,
}

/// Pages that are read before other tasks run and sockets are polled. Reading one takes a millisecond of the only thread.
const PAGES_IN_A_TURN: usize = 1;

/// Records in one page.
pub(crate) const PAGE: usize = 256;

impl TypedStore {
    /// Creates a typed view of a store.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            cache: Arc::default(),
            unreadable: Arc::default(),
            page_turns: Arc::new(Semaphore::new(PAGES_IN_A_TURN)),
        }
    }

    /// Counts unreadable records in `metrics`.
    #[must_use]
    pub(crate) fn with_metrics(self, metrics: &Metrics) -> Self {
        Self { unreadable: Arc::new(UnreadableRecords::new(metrics.get::<AclMetrics>().unreadable)), ..self }
    }

    /// Returns the underlying store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Reads a record; `None` if it does not exist.
    pub(crate) async fn get<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
        key: &Key,
        freshness: Freshness,
    ) -> Result<Option<Stored<T>>, ServiceError> {
        let Some(Record { value, created, modified }) = self.store.get(key, freshness).await? else { return Ok(None) };
        if let Some(value) = self.cache.get(key, modified) {
            return Ok(Some(Stored { value, created, modified }));
        }
        let stored = decode(key, &Record { value, created, modified })?;
        self.cache.insert(key, modified, &stored.value);
        Ok(Some(stored))
    }

    /// Returns true and reports the record if the error means that one record is unreadable: bulk operations continue
    /// without it.
    pub(crate) fn skip_unreadable(&self, error: &ServiceError) -> bool {
        let ServiceError::Store(StoreError::Unreadable { key }) = error else { return false };
        self.unreadable.report(&Key::from(key.clone()));
        true
    }

    /// Reports damage that a verification of the store found.
    pub(super) fn record_damage(&self, verification: &Verification) {
        for key in &verification.damaged_keys {
            self.unreadable.report(&Key::from(key.clone()));
        }
        for kind in &verification.damaged_kinds {
            self.unreadable.report_kind(kind);
        }
    }

    /// Returns whether a record under `prefix` is known to be unreadable; does not access the store.
    pub(crate) fn has_unreadable(&self, prefix: &str) -> bool {
        self.unreadable.has(prefix)
    }

    /// Reads a page of the records under `prefix`, which ends with a slash, after the key `after`. Unreadable records
    /// are reported and skipped: failing would make all others inaccessible. Lets other tasks run first, also if many
    /// lists are read at once: they wait for their turn.
    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        prefix: &str,
        after: Option<Key>,
        freshness: Freshness,
    ) -> Result<PageOf<T>, ServiceError> {
        let page = Page { after: after.clone(), limit: PAGE };
        self.wait_for_turn().await;
        let listing = self.store.list(prefix, page, freshness).await?;
        let next = listing.entries.last().filter(|_| listing.more).map(|(key, _)| key.clone());
        let mut entries = Vec::with_capacity(listing.entries.len());
        let mut unreadable = Vec::new();
        for (key, record) in listing.entries {
            match decode(&key, &record) {
                Ok(record) => entries.push((key, record)),
                Err(_) => unreadable.push(key),
            }
        }
        self.unreadable.update(prefix, after.as_ref(), next.as_ref(), &unreadable);
        Ok(PageOf { entries, unreadable: unreadable.into_iter().next(), next, revision: listing.revision })
    }

    /// Waits until it is this list's turn. The permit is held while the other tasks run and sockets are polled, so that no other
    /// list goes on before that has happened, however many are read. Nobody holds it while a store is read.
    pub(super) async fn wait_for_turn(&self) {
        let permit = self.page_turns.acquire().await;
        tokio::task::yield_now().await;
        drop(permit);
    }

    /// Reads all records under `prefix`, as [`TypedStore::page`] does. For kinds with few records.
    pub(crate) async fn all<T: DeserializeOwned>(
        &self,
        prefix: &str,
        freshness: Freshness,
    ) -> Result<ListOf<T>, ServiceError> {
        let mut page = self.page(prefix, None, freshness).await?;
        let revision = page.revision;
        let mut entries: Vec<Stored<T>> = page.entries.into_iter().map(|(_, record)| record).collect();
        while page.next.is_some() {
            page = self.page(prefix, page.next, freshness).await?;
            entries.extend(page.entries.into_iter().map(|(_, record)| record));
        }
        Ok(ListOf { entries, revision })
    }

    /// Returns the revision of the last change of the kind that `prefix` starts with.
    pub(crate) async fn revision(&self, prefix: &str, freshness: Freshness) -> Result<Revision, ServiceError> {
        if let Some(last) = self.store.last(prefix.split('/').next().unwrap_or_default()) {
            return Ok(last);
        }
        Ok(self.store.list(prefix, Page { after: None, limit: 0 }, freshness).await?.revision)
    }

    /// Commits a transaction atomically; rejected during a restore.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Revision, ServiceError> {
        let mut batch = transaction.batch;
        let mark = record_keys::restore_marker();
        // First, because the store reports the first failed check.
        batch.checks.insert(0, Check::Absent(mark.clone()));
        match self.store.commit(batch).await {
            Err(CommitError::Conflict(key)) if key == mark => Err(ServiceError::Restoring),
            outcome => Ok(outcome?),
        }
    }
}

/// Deserializes a record.
pub(crate) fn decode<T: DeserializeOwned>(key: &Key, record: &Record) -> Result<Stored<T>, ServiceError> {
    // Checked once, as the parser would check each string.
    let text = std::str::from_utf8(&record.value).ok();
    let value = text.and_then(|text| serde_json::from_str(text).ok());
    let value = value.ok_or_else(|| StoreError::Unreadable { key: key.as_str().to_owned() })?;
    Ok(Stored { value: Arc::new(value), created: record.created, modified: record.modified })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Batch, Embedded, Write};

    #[tokio::test]
    async fn other_tasks_run_between_the_pages_of_all_lists() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(Embedded::open(folder.path(), "dc1").unwrap());
        let pages = 4;
        let writes =
            (0..pages * PAGE).map(|number| Write::Put(format!("token/default/{number:04}").into(), b"{}".to_vec()));
        let writes: Vec<_> = writes.collect();
        for writes in writes.chunks(Batch::MAX_OPERATIONS) {
            store.commit(Batch { checks: vec![], writes: writes.to_vec() }).await.unwrap();
        }
        let typed = TypedStore::new(store);
        let mut lists = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let typed = typed.clone();
            lists.spawn(async move {
                let all = typed.all::<serde_json::Value>("token/default/", Freshness::Linearizable).await;
                all.unwrap().entries.len()
            });
        }
        let (mut turns, mut ended) = (0, 0);
        while ended < 16 {
            tokio::task::yield_now().await;
            turns += 1;
            while let Some(list) = lists.try_join_next() {
                assert_eq!(list.unwrap(), pages * PAGE);
                ended += 1;
            }
        }
        assert!(turns >= 16 * pages, "{turns} turns of other tasks for {} pages", 16 * pages);
    }
}
