//! Roles.

use super::acl_service::Directory;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::keys;
use super::links::{LinksDraft, shortened};
use super::lists::Found;
use super::repository::{Changes, Stored, retrying};
use crate::acl::model::id::Id;
use crate::acl::model::links::Holder;
use crate::acl::model::names::{NamespaceName, is_role_name};
use crate::acl::model::role::RoleRecord;
use crate::acl::store::Freshness;

/// What a role is to be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoleDraft {
    /// Its name.
    pub name: String,
    /// Free text.
    pub description: String,
    /// What it gives.
    pub links: LinksDraft,
}

impl Directory {
    /// Makes a role.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, the draft cannot be a role, or its name is taken.
    pub async fn create_role(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &RoleDraft,
    ) -> Result<Stored<RoleRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_create_role(namespace, draft)).await
    }

    async fn try_create_role(
        &self,
        namespace: &NamespaceName,
        draft: &RoleDraft,
    ) -> Result<Stored<RoleRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        named(draft)?;
        let by_name = keys::role_name(namespace, &draft.name);
        let taken = || format!("Invalid Role: A Role with Name {:?} already exists", draft.name);
        self.free(&by_name, taken).await?;
        let role = RoleRecord {
            id: Id::random(),
            name: draft.name.clone(),
            namespace: home.name.clone(),
            description: draft.description.clone(),
            links: self.links(namespace, &draft.links, Holder::Role).await?,
        };
        let by_id = keys::role(namespace, role.id);
        let changes = Changes::default().absent(&by_name).absent(&by_id).put(by_id, &role)?.put(by_name, &role.id)?;
        self.make(&home, changes, role).await
    }

    /// The role of that id; `None` if there is none.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace is not there.
    pub async fn role(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<RoleRecord>>, ServiceError> {
        self.seen(caller, namespace, Some(keys::role(namespace, id)), freshness).await
    }

    /// The role of that name; `None` if there is none.
    ///
    /// # Errors
    /// The caller lacks `acl:read`; the namespace is not there.
    pub async fn role_by_name(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Stored<RoleRecord>>, ServiceError> {
        let by_name = is_role_name(name).then(|| keys::role_name(namespace, name));
        self.seen_by_name(caller, namespace, by_name, keys::role, freshness).await
    }

    /// Roles of one namespace, or of all; with `policy` those that link the policy of that id.
    ///
    /// # Errors
    /// The caller lacks `acl:read` in the one namespace, or there is none of that name.
    pub async fn roles(
        &self,
        caller: &Caller,
        namespace: Option<&NamespaceName>,
        policy: Option<&str>,
        freshness: Freshness,
    ) -> Result<Found<RoleRecord>, ServiceError> {
        let mut found = self.found::<RoleRecord>(caller, "role", namespace, freshness).await?;
        if let Some(policy) = policy {
            let policy: Option<Id> = policy.parse().ok();
            found.entries.retain(|role| policy.is_some_and(|policy| role.value.links.policies.contains(&policy)));
        }
        Ok(found)
    }

    /// Replaces what a role is; what the draft leaves out is cleared.
    ///
    /// # Errors
    /// The caller lacks `acl:write`, there is no such role, the draft cannot be a role, or its name is taken.
    pub async fn update_role(
        &self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        draft: &RoleDraft,
    ) -> Result<Stored<RoleRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retrying(|| self.try_update_role(namespace, id, draft)).await
    }

    async fn try_update_role(
        &self,
        namespace: &NamespaceName,
        id: Id,
        draft: &RoleDraft,
    ) -> Result<Stored<RoleRecord>, ServiceError> {
        let home = self.home(namespace).await?;
        let by_id = keys::role(namespace, id);
        let before = self.to_change::<RoleRecord>(&by_id, || format!("role {id}")).await?;
        named(draft)?;
        let role = RoleRecord {
            id,
            name: draft.name.clone(),
            namespace: home.name.clone(),
            description: draft.description.clone(),
            links: self.links(namespace, &draft.links, Holder::Role).await?,
        };
        let mut changes = Changes::default().unchanged(&by_id, before.modified).put(by_id, &role)?;
        if role.name != before.value.name {
            let by_name = keys::role_name(namespace, &role.name);
            let taken = || format!("Invalid Role: A role with name {:?} already exists", role.name);
            self.free(&by_name, taken).await?;
            changes = changes.renamed(keys::role_name(namespace, &before.value.name), by_name, &id)?;
        }
        self.change(&home, changes, &before, role).await
    }

    /// Deletes a role; false if there is none. Tokens that link it live on without it.
    ///
    /// # Errors
    /// The caller lacks `acl:write`.
    pub async fn delete_role(&self, caller: &Caller, namespace: &NamespaceName, id: Id) -> Result<bool, ServiceError> {
        let by_name = |role: &RoleRecord| Ok(Some(keys::role_name(namespace, &role.name)));
        self.remove(caller, namespace, &keys::role(namespace, id), by_name).await
    }
}

fn named(draft: &RoleDraft) -> Result<(), ServiceError> {
    if draft.name.is_empty() {
        return Err(ServiceError::Invalid("Invalid Role: no Name is set".to_owned()));
    }
    if !is_role_name(&draft.name) {
        let text = "Invalid Role: invalid Name. Only alphanumeric characters, '-' and '_' are allowed";
        return Err(ServiceError::Invalid(format!("{text} ({:?})", shortened(&draft.name))));
    }
    Ok(())
}
