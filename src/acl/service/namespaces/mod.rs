//! Namespaces.

mod removal;

use std::collections::BTreeMap;

use super::acl_service::{Directory, marked, no_namespace};
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::keys;
use super::links::{LinkDraft, Linked, shortened};
use super::lists::{Found, LeftOut};
use super::repository::{All, Changes, Stored, retrying};
use crate::acl::model::names::NamespaceName;
use crate::acl::model::namespace::{Defaults, NamespaceRecord, meta_mistake};
use crate::acl::store::Freshness;

/// What a namespace is to be, besides its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceDraft {
    /// Free text.
    pub description: String,
    /// Links that count for each of its tokens; `None` where the request says nothing of them.
    pub defaults: Option<DefaultsDraft>,
    /// Free pairs.
    pub meta: BTreeMap<String, String>,
}

/// Defaults of a namespace as a request gives them: policies and roles of `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefaultsDraft {
    /// Policies.
    pub policies: Vec<LinkDraft>,
    /// Roles.
    pub roles: Vec<LinkDraft>,
}

impl DefaultsDraft {
    fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.roles.is_empty()
    }
}

impl Directory {
    /// Makes a namespace.
    ///
    /// # Errors
    /// The caller lacks `operator:write`, or `acl:write` where defaults are linked; the draft cannot be a namespace; its
    /// name is taken.
    pub async fn create_namespace(
        &self,
        caller: &Caller,
        name: &str,
        draft: &NamespaceDraft,
    ) -> Result<Stored<NamespaceRecord>, ServiceError> {
        permitted(caller, draft)?;
        if name.is_empty() {
            return Err(ServiceError::Invalid("Must specify a Name for Namespace creation".to_owned()));
        }
        let name: NamespaceName = name.parse().map_err(|reason| {
            ServiceError::Invalid(format!("Invalid Namespace: invalid Name {:?}: {reason}", shortened(name)))
        })?;
        retrying(|| self.try_create_namespace(&name, draft)).await
    }

    async fn try_create_namespace(
        &self,
        name: &NamespaceName,
        draft: &NamespaceDraft,
    ) -> Result<Stored<NamespaceRecord>, ServiceError> {
        if let Some(there) = self.namespace(name, Freshness::Linearizable).await? {
            return Err(match there.value.deleted_at {
                Some(_) => marked(&there.value.name),
                None => ServiceError::Taken(format!(
                    "Invalid Namespace: A Namespace with Name {:?} already exists",
                    there.value.name.as_str()
                )),
            });
        }
        let namespace = self.namespace_record(name.clone(), draft).await?;
        let key = keys::namespace(name);
        let revision = self.records.commit(Changes::default().absent(&key).put(key, &namespace)?).await?;
        Ok(Stored { value: namespace.into(), created: revision, modified: revision })
    }

    /// The namespace of that name as the caller may see it; `None` if there is none.
    ///
    /// # Errors
    /// The caller has neither `operator:read` nor any access within the namespace.
    pub async fn seen_namespace(
        &self,
        caller: &Caller,
        name: &NamespaceName,
        freshness: Freshness,
    ) -> Result<Option<Stored<NamespaceRecord>>, ServiceError> {
        if caller.may_see(name) {
            self.namespace(name, freshness).await
        } else {
            Err(caller.lacks("operator:read").into())
        }
    }

    /// The namespaces that the caller may see.
    ///
    /// # Errors
    /// The store failed.
    pub async fn namespaces(
        &self,
        caller: &Caller,
        freshness: Freshness,
    ) -> Result<Found<NamespaceRecord>, ServiceError> {
        let All { mut entries, unreadable, revision } = self.records.all("namespace/", freshness).await?;
        let all = entries.len();
        entries.retain(|namespace: &Stored<NamespaceRecord>| caller.may_see(&namespace.value.name));
        let unreadable = unreadable || self.records.has_unreadable("namespace/");
        let left_out = LeftOut { unseen: entries.len() < all, unreadable };
        Ok(Found { entries, left_out, revision })
    }

    /// Replaces what a namespace is; what the draft leaves out is cleared. Its name stays as it was first written.
    ///
    /// # Errors
    /// The caller lacks `operator:write`, or `acl:write` where defaults are linked or were; there is no such namespace, or
    /// it is marked for deletion; the draft cannot be a namespace.
    pub async fn update_namespace(
        &self,
        caller: &Caller,
        name: &NamespaceName,
        draft: &NamespaceDraft,
    ) -> Result<Stored<NamespaceRecord>, ServiceError> {
        permitted(caller, draft)?;
        retrying(|| self.try_update_namespace(caller, name, draft)).await
    }

    async fn try_update_namespace(
        &self,
        caller: &Caller,
        name: &NamespaceName,
        draft: &NamespaceDraft,
    ) -> Result<Stored<NamespaceRecord>, ServiceError> {
        let before = self.unmarked(name).await?;
        // To drop a default policy that denies gives its tokens rights, as to link one does.
        if before.value.defaults.as_ref().is_some_and(|defaults| !defaults.is_empty()) {
            caller.require(Privilege::AclWrite, &NamespaceName::default_one())?;
        }
        let namespace = self.namespace_record(before.value.name.clone(), draft).await?;
        let key = keys::namespace(name);
        let changes = Changes::default().unchanged(&key, before.modified).put(key, &namespace)?;
        let modified = self.records.commit(changes).await?;
        Ok(Stored { value: namespace.into(), created: before.created, modified })
    }

    /// Marks a namespace for deletion; false if it was marked before. From then on nothing is written into it and its
    /// tokens open nothing; what lives in it is removed in the background, and then the namespace.
    ///
    /// # Errors
    /// The caller lacks `operator:write`; there is no such namespace, or it is `default`.
    pub async fn delete_namespace(&self, caller: &Caller, name: &NamespaceName) -> Result<bool, ServiceError> {
        caller.require(Privilege::OperatorWrite, name)?;
        if name.is_default() {
            return Err(ServiceError::Invalid("Delete operation not permitted on the default namespace".to_owned()));
        }
        retrying(|| self.try_delete_namespace(name)).await
    }

    async fn try_delete_namespace(&self, name: &NamespaceName) -> Result<bool, ServiceError> {
        let Some(before) = self.namespace(name, Freshness::Linearizable).await? else {
            return Err(no_namespace(name));
        };
        if before.value.deleted_at.is_some() {
            return Ok(false);
        }
        let namespace = NamespaceRecord { deleted_at: Some(self.now()), ..(*before.value).clone() };
        let key = keys::namespace(name);
        self.records.commit(Changes::default().unchanged(&key, before.modified).put(key, &namespace)?).await?;
        Ok(true)
    }

    async fn namespace_record(
        &self,
        name: NamespaceName,
        draft: &NamespaceDraft,
    ) -> Result<NamespaceRecord, ServiceError> {
        if let Some(mistake) = meta_mistake(&draft.meta) {
            return Err(ServiceError::Invalid(format!("Invalid Namespace: {mistake}")));
        }
        let home = NamespaceName::default_one();
        let defaults = match &draft.defaults {
            Some(defaults) => Some(Defaults {
                policies: self.linked(&home, Linked::Policy, &defaults.policies).await?,
                roles: self.linked(&home, Linked::Role, &defaults.roles).await?,
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

/// Who links defaults could give their rights to all tokens of the namespace.
fn permitted(caller: &Caller, draft: &NamespaceDraft) -> Result<(), ServiceError> {
    let home = NamespaceName::default_one();
    caller.require(Privilege::OperatorWrite, &home)?;
    if draft.defaults.as_ref().is_some_and(|defaults| !defaults.is_empty()) {
        caller.require(Privilege::AclWrite, &home)?;
    }
    Ok(())
}
