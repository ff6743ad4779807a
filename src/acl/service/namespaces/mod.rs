//! Operations on namespaces.

mod removal;

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::links::{LinkKind, truncate};
use super::lists::RecordPages;
use super::namespaced_records::{namespace_marked, namespace_not_found};
use super::record_keys;
use super::rejection::{Conflict, InvalidRequest};
use super::transaction::{Transaction, retry_on_conflict};
use super::typed_store::Stored;
use crate::model::names::NamespaceName;
use crate::model::namespace::{DefaultLinks, NamespaceRecord, NewNamespace, meta_error};
use crate::store::Freshness;

/// Operations on namespaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Namespaces<'a> {
    service: &'a AclService,
}

impl AclService {
    /// Returns the operations on namespaces.
    pub(crate) fn namespaces(&self) -> Namespaces<'_> {
        Namespaces { service: self }
    }
}

impl Namespaces<'_> {
    /// Creates a namespace. Needs `operator:write`, and `acl:write` if the draft has defaults.
    pub(crate) async fn create(
        self,
        caller: &Caller,
        draft: &NewNamespace,
    ) -> Result<Stored<NamespaceRecord>, ServiceError> {
        require_privileges(caller, draft)?;
        let name = &draft.name;
        if name.is_empty() {
            return Err(InvalidRequest::NamespaceNameMissing.into());
        }
        let name = name
            .parse::<NamespaceName>()
            .map_err(|error| InvalidRequest::NamespaceName { name: truncate(name), reason: error.to_string() })?;
        retry_on_conflict(|| self.try_create(&name, draft)).await
    }

    async fn try_create(
        self,
        name: &NamespaceName,
        draft: &NewNamespace,
    ) -> Result<Stored<NamespaceRecord>, ServiceError> {
        if let Some(existing) = self.service.records.namespace(name, Freshness::Linearizable).await? {
            return Err(match existing.value.deleted_at {
                Some(_) => namespace_marked(&existing.value.name),
                None => Conflict::NamespaceName(existing.value.name.as_str().to_owned()).into(),
            });
        }
        let namespace = self.build_record(name.clone(), draft).await?;
        let key = record_keys::namespace(name);
        let revision =
            self.service.typed_store.commit(Transaction::default().require_absent(&key).put(key, &namespace)?).await?;
        Ok(Stored { value: namespace.into(), created: revision, modified: revision })
    }

    /// Returns the namespace; `None` if it does not exist. Refuses callers with neither `operator:read` nor a rule that shows
    /// the namespace.
    pub(crate) async fn get_visible(
        self,
        caller: &Caller,
        name: &NamespaceName,
        freshness: Freshness,
    ) -> Result<Option<Stored<NamespaceRecord>>, ServiceError> {
        if caller.can_see_namespace(name) {
            self.service.records.namespace(name, freshness).await
        } else {
            Err(caller.denied("operator:read").into())
        }
    }

    /// Opens the list of the namespaces that the caller may see; [`Namespaces::next_visible`] reads it.
    pub(crate) async fn open_list(self, caller: &Caller, freshness: Freshness) -> Result<RecordPages, ServiceError> {
        let mut search = self.service.open_namespaces(freshness).await?;
        // The headers say it, and are sent before most of a long list is read.
        while !search.omitted.forbidden && self.next_visible(&mut search, caller).await?.is_some() {}
        let mut pages = self.service.open_namespaces(freshness).await?;
        pages.omitted.forbidden = search.omitted.forbidden;
        Ok(pages)
    }

    /// Returns those of the next page that the caller may see; `None` at the end.
    pub(crate) async fn next_visible(
        self,
        pages: &mut RecordPages,
        caller: &Caller,
    ) -> Result<Option<Vec<Stored<NamespaceRecord>>>, ServiceError> {
        let Some(mut page) = pages.next::<NamespaceRecord>(self.service).await? else { return Ok(None) };
        let all = page.len();
        page.retain(|namespace| caller.can_see_namespace(&namespace.value.name));
        pages.omitted.forbidden |= page.len() < all;
        Ok(Some(page))
    }

    /// Replaces a namespace; fields missing in the draft are cleared. The spelling of its name is kept. Needs
    /// `operator:write`, and `acl:write` if the draft or the namespace has defaults.
    pub(crate) async fn update(
        self,
        caller: &Caller,
        name: &NamespaceName,
        draft: &NewNamespace,
    ) -> Result<Stored<NamespaceRecord>, ServiceError> {
        require_privileges(caller, draft)?;
        retry_on_conflict(|| self.try_update(caller, name, draft)).await
    }

    async fn try_update(
        self,
        caller: &Caller,
        name: &NamespaceName,
        draft: &NewNamespace,
    ) -> Result<Stored<NamespaceRecord>, ServiceError> {
        let previous = self.service.records.active_namespace(name).await?;
        // Removing a default policy with deny rules grants permissions, as adding one does.
        if previous.value.defaults.as_ref().is_some_and(|defaults| !defaults.is_empty()) {
            caller.require(Privilege::AclWrite, &NamespaceName::default_namespace())?;
        }
        let namespace = self.build_record(previous.value.name.clone(), draft).await?;
        let key = record_keys::namespace(name);
        let transaction = Transaction::default().require_unchanged(&key, previous.modified).put(key, &namespace)?;
        let modified = self.service.typed_store.commit(transaction).await?;
        Ok(Stored { value: namespace.into(), created: previous.created, modified })
    }

    /// Marks a namespace for deletion; returns false if it already was. It rejects writes and its tokens are invalid
    /// from then on; a background task deletes its contents and then the namespace. Needs `operator:write`. `default`
    /// cannot be deleted.
    pub(crate) async fn delete(self, caller: &Caller, name: &NamespaceName) -> Result<bool, ServiceError> {
        caller.require(Privilege::OperatorWrite, name)?;
        if name.is_default() {
            return Err(InvalidRequest::DefaultNamespace.into());
        }
        retry_on_conflict(|| self.try_delete(name)).await
    }

    async fn try_delete(self, name: &NamespaceName) -> Result<bool, ServiceError> {
        let Some(previous) = self.service.records.namespace(name, Freshness::Linearizable).await? else {
            return Err(namespace_not_found(name));
        };
        // Its `deleted_at` stays: the removal checks that the record is unchanged.
        if previous.value.deleted_at.is_some() {
            return Ok(false);
        }
        let namespace = NamespaceRecord { deleted_at: Some(self.service.now()), ..(*previous.value).clone() };
        let key = record_keys::namespace(name);
        self.service
            .typed_store
            .commit(Transaction::default().require_unchanged(&key, previous.modified).put(key, &namespace)?)
            .await?;
        Ok(true)
    }

    async fn build_record(self, name: NamespaceName, draft: &NewNamespace) -> Result<NamespaceRecord, ServiceError> {
        if let Some(error) = meta_error(&draft.meta) {
            return Err(InvalidRequest::NamespaceMeta(error).into());
        }
        let default_namespace = NamespaceName::default_namespace();
        let defaults = match &draft.acls {
            Some(defaults) => Some(DefaultLinks {
                policies: self
                    .service
                    .links()
                    .resolve(&default_namespace, LinkKind::Policy, &defaults.policy_defaults)
                    .await?,
                roles: self
                    .service
                    .links()
                    .resolve(&default_namespace, LinkKind::Role, &defaults.role_defaults)
                    .await?,
            }),
            None => None,
        };
        Ok(NamespaceRecord {
            name,
            description: draft.description.clone(),
            defaults,
            meta: draft.meta.clone(),
            deleted_at: None,
        })
    }
}

/// Checks the privileges for a draft: `operator:write`, and `acl:write` if it has default links, which grant their
/// permissions to all tokens of the namespace.
fn require_privileges(caller: &Caller, draft: &NewNamespace) -> Result<(), ServiceError> {
    let default_namespace = NamespaceName::default_namespace();
    caller.require(Privilege::OperatorWrite, &default_namespace)?;
    if draft.acls.as_ref().is_some_and(|defaults| !defaults.is_empty()) {
        caller.require(Privilege::AclWrite, &default_namespace)?;
    }
    Ok(())
}
