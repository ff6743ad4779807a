//! Records of namespaces: the state of the namespace, commits, and unreadable records.

use serde::de::DeserializeOwned;

use super::error::ServiceError;
use super::record_keys;
use super::rejection::{Conflict, NotFound};
use super::transaction::Transaction;
use super::typed_store::{PAGE, Stored, TypedStore, decode};
use crate::model::names::NamespaceName;
use crate::model::namespace::NamespaceRecord;
use crate::store::{CommitError, Freshness, Key, Page, Record, Revision, StoreError};

/// A namespace that accepts writes: it exists and is not marked for deletion.
#[derive(Debug, Clone)]
pub(crate) struct WritableNamespace {
    /// Name, spelled as it was when the namespace was created.
    pub name: NamespaceName,
    key: Key,
    at: Revision,
}

impl WritableNamespace {
    /// Adds the precondition that the namespace record is unchanged since it was read.
    pub(super) fn require_unchanged(&self, transaction: Transaction) -> Transaction {
        transaction.require_unchanged(&self.key, self.at)
    }
}

/// Operations on the records of namespaces, whatever their kind.
#[derive(Debug, Clone)]
pub(crate) struct NamespacedRecords {
    pub(super) typed_store: TypedStore,
}

impl NamespacedRecords {
    pub(super) fn new(typed_store: TypedStore) -> Self {
        Self { typed_store }
    }

    /// Returns the namespace record; `None` if it does not exist.
    pub(crate) async fn namespace(
        &self,
        name: &NamespaceName,
        freshness: Freshness,
    ) -> Result<Option<Stored<NamespaceRecord>>, ServiceError> {
        self.typed_store.get(&record_keys::namespace(name), freshness).await
    }

    /// Returns the namespace for a write.
    pub(super) async fn writable_namespace(&self, name: &NamespaceName) -> Result<WritableNamespace, ServiceError> {
        let namespace = self.active_namespace(name).await?;
        Ok(WritableNamespace {
            name: namespace.value.name.clone(),
            key: record_keys::namespace(name),
            at: namespace.modified,
        })
    }

    /// Returns the namespace record unless it is marked for deletion.
    pub(super) async fn active_namespace(&self, name: &NamespaceName) -> Result<Stored<NamespaceRecord>, ServiceError> {
        let Some(namespace) = self.namespace(name, Freshness::Linearizable).await? else {
            return Err(namespace_not_found(name));
        };
        if namespace.value.deleted_at.is_some() { Err(namespace_marked(&namespace.value.name)) } else { Ok(namespace) }
    }

    /// Checks that the namespace exists, for reads in it.
    pub(crate) async fn require_namespace(
        &self,
        name: &NamespaceName,
        freshness: Freshness,
    ) -> Result<(), ServiceError> {
        if self.namespace(name, freshness).await?.is_some() { Ok(()) } else { Err(namespace_not_found(name)) }
    }

    /// Commits the transaction that creates a record.
    pub(super) async fn commit_new<R>(
        &self,
        target: &WritableNamespace,
        transaction: Transaction,
        value: R,
    ) -> Result<Stored<R>, ServiceError> {
        let revision = self.typed_store.commit(target.require_unchanged(transaction)).await?;
        Ok(Stored { value: value.into(), created: revision, modified: revision })
    }

    /// Commits the transaction that replaces a record.
    pub(super) async fn commit_update<R>(
        &self,
        target: &WritableNamespace,
        transaction: Transaction,
        previous: &Stored<R>,
        value: R,
    ) -> Result<Stored<R>, ServiceError> {
        let modified = self.typed_store.commit(target.require_unchanged(transaction)).await?;
        Ok(Stored { value: value.into(), created: previous.created, modified })
    }

    /// Returns the revision of an unreadable record whose key ends with an id. Fails with a conflict if the record was
    /// replaced or deleted meanwhile.
    pub(super) async fn unreadable_revision<R: DeserializeOwned>(&self, key: &Key) -> Result<Revision, ServiceError> {
        // Only lists return damaged records. At most 16 keys differ from this one in the last digit of the id alone.
        let mut after = key.as_str().to_owned();
        after.pop();
        let prefix = after.trim_end_matches(|letter: char| letter != '/').to_owned();
        let page = Page { after: Some(Key::from(after)), limit: 16 };
        let listing = self.typed_store.store().list(&prefix, page, Freshness::Linearizable).await?;
        let record = listing.entries.into_iter().find(|(listed, _)| listed == key).map(|(_, record)| record);
        match record.filter(|record| decode::<R>(key, record).is_err()) {
            // No check of a batch matches it.
            Some(Record { modified: Revision(0), .. }) => {
                Err(StoreError::Unreadable { key: key.as_str().to_owned() }.into())
            }
            Some(Record { modified, .. }) => Ok(modified),
            None => Err(CommitError::Conflict(key.clone()).into()),
        }
    }

    /// Returns the keys under `prefix`, which ends with a slash, of the records that match.
    pub(super) async fn find_keys(
        &self,
        prefix: &str,
        is_match: impl Fn(&Key, &Record) -> bool,
    ) -> Result<Vec<Key>, ServiceError> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = Page { after, limit: PAGE };
            self.typed_store.wait_for_turn().await;
            let listing = self.typed_store.store().list(prefix, page, Freshness::Linearizable).await?;
            after = listing.entries.last().filter(|_| listing.more).map(|(key, _)| key.clone());
            found.extend(listing.entries.into_iter().filter(|(key, record)| is_match(key, record)).map(|(key, _)| key));
            if after.is_none() {
                return Ok(found);
            }
        }
    }
}

/// Returns true if the error means that a record is unreadable.
pub(super) fn is_unreadable(error: &ServiceError) -> bool {
    matches!(error, ServiceError::Store(StoreError::Unreadable { .. }))
}

pub(super) fn namespace_not_found(name: &NamespaceName) -> ServiceError {
    NotFound::Namespace(name.as_str().to_owned()).into()
}

pub(super) fn namespace_marked(name: &NamespaceName) -> ServiceError {
    Conflict::NamespaceMarked(name.as_str().to_owned()).into()
}
