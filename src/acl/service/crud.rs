//! Create, read, update and delete for one record of any kind.

use serde::de::DeserializeOwned;

use super::acl_service::{AclService, WritableNamespace};
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::repository::Stored;
use super::transaction::{Transaction, retry_on_conflict};
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::store::{Freshness, Key};

impl AclService {
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
    /// See [`AclService::get_record`].
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

    /// Reads a record for an update; `what` describes it in the error if it does not exist.
    ///
    /// # Errors
    /// It does not exist; the store failed.
    pub(super) async fn load_for_update<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        key: &Key,
        what: impl FnOnce() -> String,
    ) -> Result<Stored<R>, ServiceError> {
        let found = self.repository.get(key, Freshness::Linearizable).await?;
        found.ok_or_else(|| ServiceError::NotFound(format!("cannot find {}", what())))
    }

    /// Checks that a name is not taken; `taken` builds the error text.
    ///
    /// # Errors
    /// The name is taken; the store failed.
    pub(super) async fn require_absent(&self, name: &Key, taken: impl FnOnce() -> String) -> Result<(), ServiceError> {
        let found = self.repository.store().get(name, Freshness::Linearizable).await?;
        if found.is_some() { Err(ServiceError::Conflict(taken())) } else { Ok(()) }
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
        before: &Stored<R>,
        value: R,
    ) -> Result<Stored<R>, ServiceError> {
        let modified = self.repository.commit(target.require_unchanged(transaction)).await?;
        Ok(Stored { value: value.into(), created: before.created, modified })
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
            let Some(before) = self.repository.get::<R>(key, Freshness::Linearizable).await? else { return Ok(false) };
            let mut transaction = Transaction::default().unchanged(key, before.modified).delete(key.clone());
            if let Some(name) = name_key(&before.value)? {
                transaction = transaction.delete(name);
            }
            self.repository.commit(target.require_unchanged(transaction)).await?;
            Ok(true)
        };
        retry_on_conflict(attempt).await
    }
}
