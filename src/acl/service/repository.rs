//! Records of the store as the types that they are.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ServiceError;
use super::keys;
use super::record_cache::Parsed;
use crate::acl::model::id::Id;
use crate::acl::store::{
    Batch, Check, CommitError, Freshness, Key, Page, Record, Revision, Store, StoreError, Verification, Write,
};
use crate::metrics::Metrics;

/// A record that was read.
#[derive(Debug, Clone)]
pub struct Stored<T> {
    /// What it holds.
    pub value: Arc<T>,
    /// When it was made, as a point of the store's history.
    pub created: Revision,
    /// When it was last changed.
    pub modified: Revision,
}

/// The store, with types.
#[derive(Debug, Clone)]
pub struct Records {
    store: Arc<dyn Store>,
    parsed: Arc<Parsed>,
    unreadable: Arc<Unreadable>,
}

/// A part of a list.
#[derive(Debug)]
pub struct Part<T> {
    /// The records, in the order of their keys, without those that cannot be read.
    pub entries: Vec<(Key, Stored<T>)>,
    /// The first of those that cannot be read.
    pub unreadable: Option<Key>,
    /// The key to go on after; `None` at the end.
    pub next: Option<Key>,
    /// The last change of any record of that kind.
    pub revision: Revision,
}

/// All records of a kind, or of a kind in a namespace.
#[derive(Debug)]
pub struct All<T> {
    /// The records, in the order of their keys, without those that cannot be read.
    pub entries: Vec<Stored<T>>,
    /// Whether there are some that cannot be read.
    pub unreadable: bool,
    /// The last change of any record of that kind.
    pub revision: Revision,
}

/// Records of a page.
pub const PAGE: usize = 256;

impl Records {
    /// Those of that store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, parsed: Arc::default(), unreadable: Arc::default() }
    }

    /// The same, which counts records that cannot be read.
    #[must_use]
    pub fn counting(self, metrics: &Metrics) -> Self {
        let found = metrics.acl_unreadable.clone();
        Self { unreadable: Arc::new(Unreadable { told: Mutex::default(), found }), ..self }
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The record of that key.
    ///
    /// # Errors
    /// The store failed, or the record is not of that type.
    pub async fn get<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
        key: &Key,
        freshness: Freshness,
    ) -> Result<Option<Stored<T>>, ServiceError> {
        let Some(Record { value, created, modified }) = self.store.get(key, freshness).await? else { return Ok(None) };
        if let Some(value) = self.parsed.get(key, modified) {
            return Ok(Some(Stored { value, created, modified }));
        }
        let stored = typed(key, &Record { value, created, modified })?;
        self.parsed.keep(key, modified, &stored.value);
        Ok(Some(stored))
    }

    /// Whether an error is that a record cannot be read, which is told then: work on many goes on without it.
    pub fn passes_over(&self, error: &ServiceError) -> bool {
        let ServiceError::Store(StoreError::Unreadable { key }) = error else { return false };
        self.unreadable.tell(&Key::from(key.clone()));
        true
    }

    /// Takes note of damage that was found in the whole store, and tells of it.
    pub(super) fn note_damage(&self, found: &Verification) {
        for key in &found.damaged_keys {
            self.unreadable.tell(&Key::from(key.clone()));
        }
        for kind in &found.damaged_kinds {
            self.unreadable.tell_kind(kind);
        }
    }

    /// Whether it is known, without a look, that some record whose key starts with `prefix` cannot be read.
    pub fn has_unreadable(&self, prefix: &str) -> bool {
        self.unreadable.has(prefix)
    }

    /// The records whose keys start with `prefix`, which ends with a slash: those after `after`, a page of them. One that
    /// cannot be read is told of and left out: all others would be out of reach with it.
    ///
    /// # Errors
    /// The store failed.
    pub async fn page<T: DeserializeOwned>(
        &self,
        prefix: &str,
        after: Option<Key>,
        freshness: Freshness,
    ) -> Result<Part<T>, ServiceError> {
        let page = Page { after: after.clone(), limit: PAGE };
        let listing = self.store.list(prefix, page, freshness).await?;
        let next = listing.entries.last().filter(|_| listing.more).map(|(key, _)| key.clone());
        let (mut entries, mut unreadable) = (Vec::with_capacity(listing.entries.len()), Vec::new());
        for (key, record) in listing.entries {
            match typed(&key, &record) {
                Ok(record) => entries.push((key, record)),
                Err(_) => unreadable.push(key),
            }
        }
        self.unreadable.seen(prefix, after.as_ref(), next.as_ref(), &unreadable);
        Ok(Part { entries, unreadable: unreadable.into_iter().next(), next, revision: listing.revision })
    }

    /// All records whose keys start with `prefix`, as [`Records::page`] gives them. For kinds of which there are few.
    ///
    /// # Errors
    /// The store failed.
    pub async fn all<T: DeserializeOwned>(&self, prefix: &str, freshness: Freshness) -> Result<All<T>, ServiceError> {
        let mut part = self.page(prefix, None, freshness).await?;
        let (revision, mut unreadable) = (part.revision, part.unreadable.is_some());
        let mut entries: Vec<Stored<T>> = part.entries.into_iter().map(|(_, record)| record).collect();
        while part.next.is_some() {
            part = self.page(prefix, part.next, freshness).await?;
            unreadable |= part.unreadable.is_some();
            entries.extend(part.entries.into_iter().map(|(_, record)| record));
        }
        Ok(All { entries, unreadable, revision })
    }

    /// The last change of any record of the kind that `prefix` starts with.
    ///
    /// # Errors
    /// The store failed.
    pub async fn revision(&self, prefix: &str, freshness: Freshness) -> Result<Revision, ServiceError> {
        if let Some(last) = self.store.last(prefix.split('/').next().unwrap_or_default()) {
            return Ok(last);
        }
        Ok(self.store.list(prefix, Page { after: None, limit: 0 }, freshness).await?.revision)
    }

    /// Writes what `changes` holds, all of it or nothing; nothing into a store that is being restored.
    ///
    /// # Errors
    /// A check does not hold, the store is being restored, or it failed.
    pub async fn commit(&self, changes: Changes) -> Result<Revision, ServiceError> {
        let (mut batch, mark) = (changes.batch, keys::restore_mark());
        // First, as the first check that does not hold is told.
        batch.checks.insert(0, Check::Absent(mark.clone()));
        match self.store.commit(batch).await {
            Err(CommitError::Conflict(key)) if key == mark => Err(ServiceError::Restoring),
            outcome => Ok(outcome?),
        }
    }
}

/// Records that cannot be read: each is told of once, and known until it can be read, or is gone.
#[derive(Debug, Default)]
struct Unreadable {
    told: Mutex<BTreeSet<Key>>,
    found: Counter<u64, AtomicU64>,
}

impl Unreadable {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a look at all keys that start with `prefix` and are after `after`, to `last` where that is not the end.
    fn seen(&self, prefix: &str, after: Option<&Key>, last: Option<&Key>, unreadable: &[Key]) {
        let looked_at = |key: &Key| {
            let past_end = last.is_some_and(|last| key > last);
            key.as_str().starts_with(prefix) && after.is_none_or(|after| key > after) && !past_end
        };
        // That records of a kind are missing is seen by no look at those that are there.
        let is_kind = |key: &Key| key.as_str().ends_with('/');
        self.lock().retain(|key| is_kind(key) || !looked_at(key) || unreadable.contains(key));
        for key in unreadable {
            self.tell(key);
        }
    }

    fn has(&self, prefix: &str) -> bool {
        let told = self.lock();
        told.len() >= TOLD
            || told.iter().any(|key| {
                let key = key.as_str();
                key.starts_with(prefix) || (key.ends_with('/') && prefix.starts_with(key))
            })
    }

    fn tell_kind(&self, kind: &str) {
        if self.lock().insert(keys::within(kind, None).into()) {
            self.found.inc();
            tracing::error!(
                event = "acl.store.damaged",
                kind,
                "records of this kind are missing, or are others than were written: restore a snapshot from before"
            );
        }
    }

    fn tell(&self, key: &Key) {
        let mut told = self.lock();
        if told.len() < TOLD && told.insert(key.clone()) {
            self.found.inc();
            let key = key.as_str();
            tracing::error!(
                event = "acl.record.unreadable",
                key,
                "a record cannot be read, and is left out of lists: restore a snapshot from before it was damaged"
            );
        }
    }
}

/// How many records that cannot be read are told of by name. Where there are more, the store is of no use.
const TOLD: usize = 1000;

/// A record as the type that it is.
///
/// # Errors
/// It is not of that type.
pub fn typed<T: DeserializeOwned>(key: &Key, record: &Record) -> Result<Stored<T>, ServiceError> {
    let value =
        serde_json::from_slice(&record.value).map_err(|_| StoreError::Unreadable { key: key.as_str().to_owned() })?;
    Ok(Stored { value: Arc::new(value), created: record.created, modified: record.modified })
}

/// A batch as it is put together.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    batch: Batch,
}

impl Changes {
    /// There must be no record of that key.
    #[must_use]
    pub fn absent(mut self, key: &Key) -> Self {
        self.batch.checks.push(Check::Absent(key.clone()));
        self
    }

    /// The record of that key must be as it was at that revision.
    #[must_use]
    pub fn unchanged(mut self, key: &Key, at: Revision) -> Self {
        self.batch.checks.push(Check::Unchanged(key.clone(), at));
        self
    }

    /// Makes or replaces a record.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn put(mut self, key: Key, value: &impl Serialize) -> Result<Self, ServiceError> {
        let value = serde_json::to_vec(value).map_err(ServiceError::Encode)?;
        self.batch.writes.push(Write::Put(key, value));
        Ok(self)
    }

    /// Removes a record, if it is there.
    #[must_use]
    pub fn delete(mut self, key: Key) -> Self {
        self.batch.writes.push(Write::Delete(key));
        self
    }

    /// Lets the row of one name give way to that of another; both hold the id.
    ///
    /// # Errors
    /// The id cannot be written as JSON.
    pub fn renamed(self, from: Key, to: Key, id: &Id) -> Result<Self, ServiceError> {
        self.absent(&to).delete(from).put(to, id)
    }

    /// Writes what is put together already.
    #[must_use]
    pub fn write(mut self, write: Write) -> Self {
        self.batch.writes.push(write);
        self
    }

    /// How many writes it has.
    pub fn writes(&self) -> usize {
        self.batch.writes.len()
    }
}

/// Does `attempt` again while it loses races for a record.
///
/// # Errors
/// Its own, and [`ServiceError::Crowded`] after many losses.
pub async fn retrying<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, ServiceError>
where
    F: Future<Output = Result<T, ServiceError>>,
{
    for _ in 0..ATTEMPTS {
        match attempt().await {
            Err(ServiceError::Commit(CommitError::Conflict(_))) => {}
            outcome => return outcome,
        }
    }
    Err(ServiceError::Crowded)
}

/// A record that is fought over so hard is more likely a mistake in a check.
const ATTEMPTS: usize = 100;
