//! What is done with one record of a namespace, whatever its kind.

use serde::de::DeserializeOwned;

use super::acl_service::{Directory, Home};
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::repository::{Changes, Stored, retrying};
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::store::{Freshness, Key};

impl Directory {
    /// The record of that key, for a caller; `None` if there is none.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace is not there; the store failed.
    pub(super) async fn seen<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        key: Option<Key>,
        freshness: Freshness,
    ) -> Result<Option<Stored<R>>, ServiceError> {
        caller.require(Privilege::AclRead, namespace)?;
        self.existing(namespace, freshness).await?;
        let Some(key) = key else { return Ok(None) };
        self.records.get(&key, freshness).await
    }

    /// The record that the row of a name leads to; `by_id` tells where the records of that kind are.
    ///
    /// # Errors
    /// As [`Directory::seen`].
    pub(super) async fn seen_by_name<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        by_name: Option<Key>,
        by_id: fn(&NamespaceName, Id) -> Key,
        freshness: Freshness,
    ) -> Result<Option<Stored<R>>, ServiceError> {
        let Some(id) = self.seen::<Id>(caller, namespace, by_name, freshness).await? else { return Ok(None) };
        self.records.get(&by_id(namespace, *id.value), freshness).await
    }

    /// The record of that key, to change it; `what` it is called, where it is not there.
    ///
    /// # Errors
    /// It is not there; the store failed.
    pub(super) async fn to_change<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        key: &Key,
        what: impl FnOnce() -> String,
    ) -> Result<Stored<R>, ServiceError> {
        let found = self.records.get(key, Freshness::Linearizable).await?;
        found.ok_or_else(|| ServiceError::Missing(format!("cannot find {}", what())))
    }

    /// Refuses a name whose row is there, as `taken` says.
    ///
    /// # Errors
    /// It is; the store failed.
    pub(super) async fn free(&self, name: &Key, taken: impl FnOnce() -> String) -> Result<(), ServiceError> {
        let found = self.records.store().get(name, Freshness::Linearizable).await?;
        if found.is_some() { Err(ServiceError::Taken(taken())) } else { Ok(()) }
    }

    /// Writes a new record, which is among the `changes`.
    ///
    /// # Errors
    /// A check does not hold; the store failed.
    pub(super) async fn make<R>(&self, home: &Home, changes: Changes, value: R) -> Result<Stored<R>, ServiceError> {
        let revision = self.records.commit(home.hold(changes)).await?;
        Ok(Stored { value: value.into(), created: revision, modified: revision })
    }

    /// Writes what a record is now, which is among the `changes`.
    ///
    /// # Errors
    /// A check does not hold; the store failed.
    pub(super) async fn change<R>(
        &self,
        home: &Home,
        changes: Changes,
        before: &Stored<R>,
        value: R,
    ) -> Result<Stored<R>, ServiceError> {
        let modified = self.records.commit(home.hold(changes)).await?;
        Ok(Stored { value: value.into(), created: before.created, modified })
    }

    /// Removes a record, and what `beside` it says: the row of its name, where it has one. False if there is none.
    ///
    /// # Errors
    /// The caller lacks `acl:write`; `beside` refuses; the store failed.
    pub(super) async fn remove<R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        key: &Key,
        beside: impl Fn(&R) -> Result<Option<Key>, ServiceError>,
    ) -> Result<bool, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        let attempt = async || {
            let home = self.home(namespace).await?;
            let Some(before) = self.records.get::<R>(key, Freshness::Linearizable).await? else { return Ok(false) };
            let mut changes = Changes::default().unchanged(key, before.modified).delete(key.clone());
            if let Some(name) = beside(&before.value)? {
                changes = changes.delete(name);
            }
            self.records.commit(home.hold(changes)).await?;
            Ok(true)
        };
        retrying(attempt).await
    }
}
