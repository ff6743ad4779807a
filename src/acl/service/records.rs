//! Create, read, list, update and delete: once for all kinds of records in a namespace.
//!
//! A kind is an implementation of [`RecordKind`] with what differs: keys, drafts, validation and references.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::namespaced_records::{NamespacedRecords, WritableNamespace, is_unreadable};
use super::rejection::{Conflict, Forbidden, InvalidRequest, NotFound};
use super::transaction::{Transaction, retry_on_conflict};
use super::typed_store::{Stored, decode};
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::store::{Freshness, Key, Record};

/// Kind of record in a namespace.
pub(crate) trait RecordKind: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// First segment of the store keys.
    const KEY: &'static str;
    /// Name of the kind in messages.
    const NAME: &'static str;
    /// Id of a record, or its name if the kind has no ids.
    type Id: ?Sized + Display + Serialize;
    /// Fields of a record as a request gives them.
    type Draft;

    /// Returns the id.
    fn id(&self) -> &Self::Id;

    /// Returns the namespace.
    fn namespace(&self) -> &NamespaceName;

    /// Describes a record in messages.
    fn describe(id: &Self::Id) -> String {
        format!("{} {id}", Self::NAME)
    }

    /// Returns the key of the record with an id. Fails if no record can have it.
    fn key(namespace: &NamespaceName, id: &Self::Id) -> Result<Key, InvalidRequest>;

    /// Returns the key of the index entry of a name; `None` if no record can have the name.
    fn name_key(_namespace: &NamespaceName, _name: &str) -> Option<Key> {
        None
    }

    /// Returns the key that no other record may have, and the conflict if one has it: the key of the name.
    fn claim(&self, _is_new: bool) -> Option<(Key, Conflict)> {
        None
    }

    /// Validates a draft, resolves its references and builds the record, with preconditions of the write. An update gives the
    /// record that it replaces.
    async fn build(
        records: &NamespacedRecords,
        namespace: &NamespaceName,
        draft: &Self::Draft,
        previous: Option<&Self>,
    ) -> Result<(Self, Transaction), ServiceError>;

    /// Refuses to delete records that must not be.
    fn require_deletable(&self) -> Result<(), Forbidden> {
        Ok(())
    }

    /// Returns false if the record counts as deleted, although it is still in the store.
    async fn exists(&self, _records: &NamespacedRecords, _freshness: Freshness) -> Result<bool, ServiceError> {
        Ok(true)
    }

    /// Removes the records for which [`RecordKind::exists`] is false.
    fn retain_existing(
        _entries: &mut Vec<Stored<Self>>,
        _records: &NamespacedRecords,
        _freshness: Freshness,
    ) -> impl Future<Output = Result<(), ServiceError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Parses the filter of a list.
    fn filter(_text: &str) -> impl Fn(&Self) -> bool {
        |_: &Self| true
    }
}

impl NamespacedRecords {
    /// Creates a record. Needs `acl:write`.
    pub(crate) async fn create<K: RecordKind>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &K::Draft,
    ) -> Result<Stored<K>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        let attempt = async || {
            let (target, record, transaction) = self.prepare_create::<K>(namespace, draft).await?;
            self.commit_new(&target, transaction, record).await
        };
        retry_on_conflict(attempt).await
    }

    /// Builds a new record and the transaction that writes it.
    pub(super) async fn prepare_create<K: RecordKind>(
        &self,
        namespace: &NamespaceName,
        draft: &K::Draft,
    ) -> Result<(WritableNamespace, K, Transaction), ServiceError> {
        let target = self.writable_namespace(namespace).await?;
        let (record, mut transaction) = K::build(self, &target.name, draft, None).await?;
        let key = K::key(namespace, record.id())?;
        if let Some((name, conflict)) = record.claim(true) {
            self.require_absent(&name, conflict).await?;
            if name != key {
                transaction = transaction.require_absent(&name).put(name, record.id())?;
            }
        }
        let transaction = transaction.require_absent(&key).put(key, &record)?;
        Ok((target, record, transaction))
    }

    /// Reads a record; `None` if it does not exist. Needs `acl:read`.
    pub(crate) async fn get<K: RecordKind>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: &K::Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<K>>, ServiceError> {
        self.require_readable(caller, namespace, freshness).await?;
        let Ok(key) = K::key(namespace, id) else { return Ok(None) };
        let Some(record) = self.typed_store.get::<K>(&key, freshness).await? else { return Ok(None) };
        let exists = record.value.exists(self, freshness).await?;
        Ok(Some(record).filter(|_| exists))
    }

    /// Reads a record by its name; `None` if it does not exist. Needs `acl:read`.
    pub(crate) async fn get_by_name<K: RecordKind<Id = Id>>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Stored<K>>, ServiceError> {
        self.require_readable(caller, namespace, freshness).await?;
        let Some(by_name) = K::name_key(namespace, name) else { return Ok(None) };
        let Some(id) = self.typed_store.get::<Id>(&by_name, freshness).await? else { return Ok(None) };
        self.typed_store.get(&K::key(namespace, &id.value)?, freshness).await
    }

    async fn require_readable(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        freshness: Freshness,
    ) -> Result<(), ServiceError> {
        caller.require(Privilege::AclRead, namespace)?;
        self.require_namespace(namespace, freshness).await
    }

    /// Replaces the mutable fields of a record; fields missing in the draft are cleared. Needs `acl:write`.
    pub(crate) async fn update<K: RecordKind>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: &K::Id,
        draft: &K::Draft,
    ) -> Result<Stored<K>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_update(namespace, id, draft)).await
    }

    async fn try_update<K: RecordKind>(
        &self,
        namespace: &NamespaceName,
        id: &K::Id,
        draft: &K::Draft,
    ) -> Result<Stored<K>, ServiceError> {
        let target = self.writable_namespace(namespace).await?;
        let key = K::key(namespace, id)?;
        let previous = self.typed_store.get::<K>(&key, Freshness::Linearizable).await?;
        let previous = previous.ok_or_else(|| record_not_found::<K>(id))?;
        let (record, transaction) = K::build(self, &target.name, draft, Some(&previous.value)).await?;
        let mut transaction = transaction.require_unchanged(&key, previous.modified).put(key, &record)?;
        if let (Some((old, _)), Some((new, conflict))) = (previous.value.claim(false), record.claim(false))
            && old != new
        {
            self.require_absent(&new, conflict).await?;
            transaction = transaction.require_absent(&new).delete(old).put(new, record.id())?;
        }
        self.commit_update(&target, transaction, &previous, record).await
    }

    /// Deletes a record and the index entry of its name, also if it is unreadable. Returns false if it does not exist. Records
    /// that link it remain. Needs `acl:write`. An unreadable record that is built in is not deleted.
    pub(crate) async fn delete<K: RecordKind<Id = Id>>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
    ) -> Result<bool, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        let key = &K::key(namespace, &id)?;
        let attempt = async || {
            let target = self.writable_namespace(namespace).await?;
            let transaction = match self.typed_store.get::<K>(key, Freshness::Linearizable).await {
                Ok(Some(previous)) => {
                    previous.value.require_deletable()?;
                    let transaction =
                        Transaction::default().require_unchanged(key, previous.modified).delete(key.clone());
                    let name = previous.value.claim(false).map(|(name, _)| name);
                    name.into_iter().fold(transaction, Transaction::delete)
                }
                Ok(None) => return Ok(false),
                Err(error) if is_unreadable(&error) && !id.is_reserved() => {
                    self.delete_unreadable::<K>(namespace, key, id).await?
                }
                Err(error) => return Err(error),
            };
            self.typed_store.commit(target.require_unchanged(transaction)).await?;
            Ok(true)
        };
        retry_on_conflict(attempt).await
    }

    /// Builds the deletion of an unreadable record and of the index entries of its name: only the record has the name,
    /// so they are found by the id in them.
    async fn delete_unreadable<K: RecordKind>(
        &self,
        namespace: &NamespaceName,
        key: &Key,
        id: Id,
    ) -> Result<Transaction, ServiceError> {
        let modified = self.unreadable_revision::<K>(key).await?;
        let names = format!("{}-name/{}/", K::KEY, namespace.key());
        let is_of_id = |name: &Key, record: &Record| decode::<Id>(name, record).is_ok_and(|found| *found.value == id);
        let found = self.find_keys(&names, is_of_id).await?;
        let transaction = Transaction::default().require_unchanged(key, modified).delete(key.clone());
        Ok(found.into_iter().fold(transaction, Transaction::delete))
    }

    /// Checks that no record has a name.
    pub(super) async fn require_absent(&self, name: &Key, conflict: Conflict) -> Result<(), ServiceError> {
        let existing = self.typed_store.store().get(name, Freshness::Linearizable).await?;
        if existing.is_some() { Err(conflict.into()) } else { Ok(()) }
    }
}

/// Builds the error of a change of a record that does not exist.
pub(super) fn record_not_found<K: RecordKind>(id: &K::Id) -> ServiceError {
    NotFound::Record(K::describe(id)).into()
}
