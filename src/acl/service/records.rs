//! Create, read, update and delete for one record of any kind.

use serde::de::DeserializeOwned;

use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::keys;
use super::rejection::{Conflict, NotFound};
use super::repository::{Repository, Stored};
use super::transaction::{Transaction, retry_on_conflict};
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::namespace::NamespaceRecord;
use crate::acl::store::{Freshness, Key, Revision};

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

/// Operations on single records of a namespace, whatever their kind.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(super) repository: Repository,
}

impl Records {
    pub(super) fn new(repository: Repository) -> Self {
        Self { repository }
    }

    /// Returns the namespace record; `None` if it does not exist.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) async fn namespace(
        &self,
        name: &NamespaceName,
        freshness: Freshness,
    ) -> Result<Option<Stored<NamespaceRecord>>, ServiceError> {
        self.repository.get(&keys::namespace(name), freshness).await
    }

    /// Returns the namespace for a write.
    ///
    /// # Errors
    /// It does not exist or is marked for deletion.
    pub(super) async fn writable_namespace(&self, name: &NamespaceName) -> Result<WritableNamespace, ServiceError> {
        let namespace = self.active_namespace(name).await?;
        Ok(WritableNamespace { name: namespace.value.name.clone(), key: keys::namespace(name), at: namespace.modified })
    }

    /// Returns the namespace record unless it is marked for deletion.
    ///
    /// # Errors
    /// It does not exist or is marked for deletion.
    pub(super) async fn active_namespace(&self, name: &NamespaceName) -> Result<Stored<NamespaceRecord>, ServiceError> {
        let Some(namespace) = self.namespace(name, Freshness::Linearizable).await? else {
            return Err(namespace_not_found(name));
        };
        if namespace.value.deleted_at.is_some() { Err(namespace_marked(&namespace.value.name)) } else { Ok(namespace) }
    }

    /// Checks that the namespace exists, for reads in it.
    ///
    /// # Errors
    /// It does not exist.
    pub(crate) async fn require_namespace(
        &self,
        name: &NamespaceName,
        freshness: Freshness,
    ) -> Result<(), ServiceError> {
        if self.namespace(name, freshness).await?.is_some() { Ok(()) } else { Err(namespace_not_found(name)) }
    }

    /// Reads a record for a caller; `None` if it does not exist.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace does not exist; the store failed.
    pub(super) async fn get_record<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        key: Option<Key>,
        freshness: Freshness,
    ) -> Result<Option<Stored<R>>, ServiceError> {
        caller.require(Privilege::AclRead, namespace)?;
        self.require_namespace(namespace, freshness).await?;
        let Some(key) = key else { return Ok(None) };
        self.repository.get(&key, freshness).await
    }

    /// Reads a record by the index entry of its name; `by_id` builds the key of the record.
    ///
    /// # Errors
    /// See [`Records::get_record`].
    pub(super) async fn get_record_by_name<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        by_name: Option<Key>,
        by_id: fn(&NamespaceName, Id) -> Key,
        freshness: Freshness,
    ) -> Result<Option<Stored<R>>, ServiceError> {
        let Some(id) = self.get_record::<Id>(caller, namespace, by_name, freshness).await? else { return Ok(None) };
        self.repository.get(&by_id(namespace, *id.value), freshness).await
    }

    /// Reads a record for an update; `describe` names it in the error if it does not exist.
    ///
    /// # Errors
    /// It does not exist; the store failed.
    pub(super) async fn load_for_update<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        key: &Key,
        describe: impl FnOnce() -> String,
    ) -> Result<Stored<R>, ServiceError> {
        let record = self.repository.get(key, Freshness::Linearizable).await?;
        record.ok_or_else(|| NotFound::Record(describe()).into())
    }

    /// Checks that a name is not taken; `conflict` builds the error.
    ///
    /// # Errors
    /// The name is taken; the store failed.
    pub(super) async fn require_absent(
        &self,
        name: &Key,
        conflict: impl FnOnce() -> Conflict,
    ) -> Result<(), ServiceError> {
        let existing = self.repository.store().get(name, Freshness::Linearizable).await?;
        if existing.is_some() { Err(conflict().into()) } else { Ok(()) }
    }

    /// Commits the transaction that creates a record.
    ///
    /// # Errors
    /// A precondition failed; the store failed.
    pub(super) async fn commit_new<R>(
        &self,
        target: &WritableNamespace,
        transaction: Transaction,
        value: R,
    ) -> Result<Stored<R>, ServiceError> {
        let revision = self.repository.commit(target.require_unchanged(transaction)).await?;
        Ok(Stored { value: value.into(), created: revision, modified: revision })
    }

    /// Commits the transaction that replaces a record.
    ///
    /// # Errors
    /// A precondition failed; the store failed.
    pub(super) async fn commit_update<R>(
        &self,
        target: &WritableNamespace,
        transaction: Transaction,
        previous: &Stored<R>,
        value: R,
    ) -> Result<Stored<R>, ServiceError> {
        let modified = self.repository.commit(target.require_unchanged(transaction)).await?;
        Ok(Stored { value: value.into(), created: previous.created, modified })
    }

    /// Deletes a record and the index entry of its name that `name_key` returns. Returns false if it does not exist.
    ///
    /// # Errors
    /// The caller lacks `acl:write`; `name_key` returned an error; the store failed.
    pub(super) async fn delete_record<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        key: &Key,
        name_key: impl Fn(&R) -> Result<Option<Key>, ServiceError>,
    ) -> Result<bool, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        let attempt = async || {
            let target = self.writable_namespace(namespace).await?;
            let Some(previous) = self.repository.get::<R>(key, Freshness::Linearizable).await? else {
                return Ok(false);
            };
            let mut transaction = Transaction::default().require_unchanged(key, previous.modified).delete(key.clone());
            if let Some(name) = name_key(&previous.value)? {
                transaction = transaction.delete(name);
            }
            self.repository.commit(target.require_unchanged(transaction)).await?;
            Ok(true)
        };
        retry_on_conflict(attempt).await
    }
}

pub(super) fn namespace_not_found(name: &NamespaceName) -> ServiceError {
    NotFound::Namespace(name.as_str().to_owned()).into()
}

pub(super) fn namespace_marked(name: &NamespaceName) -> ServiceError {
    Conflict::NamespaceMarked(name.as_str().to_owned()).into()
}
