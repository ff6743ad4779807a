//! Operations on roles.

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use super::links::{LinksDraft, truncate};
use super::lists::RecordList;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::rejection::{Conflict, InvalidRequest};
use super::transaction::{Transaction, retry_on_conflict};
use super::typed_store::Stored;
use crate::model::id::Id;
use crate::model::links::LinkOwner;
use crate::model::names::{NamespaceName, is_role_name};
use crate::model::role::RoleRecord;
use crate::store::Freshness;

/// Fields of a role as a request gives them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RoleDraft {
    /// Name, unique within the namespace.
    pub name: String,
    /// Description.
    pub description: String,
    /// Links that it grants.
    pub links: LinksDraft,
}

/// Operations on roles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Roles<'a> {
    records: &'a NamespacedRecords,
}

impl AclService {
    /// Returns the operations on roles.
    pub(crate) fn roles(&self) -> Roles<'_> {
        Roles { records: &self.records }
    }
}

impl Roles<'_> {
    /// Creates a role. Needs `acl:write`.
    pub(crate) async fn create(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        draft: &RoleDraft,
    ) -> Result<Stored<RoleRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_create(namespace, draft)).await
    }

    async fn try_create(
        self,
        namespace: &NamespaceName,
        draft: &RoleDraft,
    ) -> Result<Stored<RoleRecord>, ServiceError> {
        let target = self.records.writable_namespace(namespace).await?;
        validate_name(draft)?;
        let by_name = record_keys::role_name(namespace, &draft.name);
        let conflict = || Conflict::RoleName(draft.name.clone());
        self.records.require_absent(&by_name, conflict).await?;
        let role = RoleRecord {
            id: Id::random(),
            name: draft.name.clone(),
            namespace: target.name.clone(),
            description: draft.description.clone(),
            links: self.records.links().validate(namespace, &draft.links, LinkOwner::Role).await?,
        };
        let by_id = record_keys::role(namespace, role.id);
        let transaction = Transaction::default()
            .require_absent(&by_name)
            .require_absent(&by_id)
            .put(by_id, &role)?
            .put(by_name, &role.id)?;
        self.records.commit_new(&target, transaction, role).await
    }

    /// Returns the role by id; `None` if it does not exist. Needs `acl:read`.
    pub(crate) async fn get(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Stored<RoleRecord>>, ServiceError> {
        self.records.get_record(caller, namespace, Some(record_keys::role(namespace, id)), freshness).await
    }

    /// Returns the role by name; `None` if it does not exist. Needs `acl:read`.
    pub(crate) async fn get_by_name(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Stored<RoleRecord>>, ServiceError> {
        let by_name = is_role_name(name).then(|| record_keys::role_name(namespace, name));
        self.records.get_record_by_name(caller, namespace, by_name, record_keys::role, freshness).await
    }

    /// Lists the roles of one namespace, or of all; with `policy` only those that link this policy id. Needs `acl:read`
    /// in the given namespace.
    pub(crate) async fn list(
        self,
        caller: &Caller,
        namespace: Option<&NamespaceName>,
        policy: Option<&str>,
        freshness: Freshness,
    ) -> Result<RecordList<RoleRecord>, ServiceError> {
        let mut list = self.records.list_records::<RoleRecord>(caller, "role", namespace, freshness).await?;
        if let Some(policy) = policy {
            let policy: Option<Id> = policy.parse().ok();
            list.entries.retain(|role| policy.is_some_and(|policy| role.value.links.policies.contains(&policy)));
        }
        Ok(list)
    }

    /// Replaces a role; fields missing in the draft are cleared. Needs `acl:write`.
    pub(crate) async fn update(
        self,
        caller: &Caller,
        namespace: &NamespaceName,
        id: Id,
        draft: &RoleDraft,
    ) -> Result<Stored<RoleRecord>, ServiceError> {
        caller.require(Privilege::AclWrite, namespace)?;
        retry_on_conflict(|| self.try_update(namespace, id, draft)).await
    }

    async fn try_update(
        self,
        namespace: &NamespaceName,
        id: Id,
        draft: &RoleDraft,
    ) -> Result<Stored<RoleRecord>, ServiceError> {
        let target = self.records.writable_namespace(namespace).await?;
        let by_id = record_keys::role(namespace, id);
        let previous = self.records.load_for_update::<RoleRecord>(&by_id, || format!("role {id}")).await?;
        validate_name(draft)?;
        let role = RoleRecord {
            id,
            name: draft.name.clone(),
            namespace: target.name.clone(),
            description: draft.description.clone(),
            links: self.records.links().validate(namespace, &draft.links, LinkOwner::Role).await?,
        };
        let mut transaction = Transaction::default().require_unchanged(&by_id, previous.modified).put(by_id, &role)?;
        if role.name != previous.value.name {
            let by_name = record_keys::role_name(namespace, &role.name);
            let conflict = || Conflict::RoleRenamed(role.name.clone());
            self.records.require_absent(&by_name, conflict).await?;
            transaction =
                transaction.move_name_entry(record_keys::role_name(namespace, &previous.value.name), by_name, &id)?;
        }
        self.records.commit_update(&target, transaction, &previous, role).await
    }

    /// Deletes a role; returns false if it does not exist. Tokens that link it remain. Needs `acl:write`.
    pub(crate) async fn delete(self, caller: &Caller, namespace: &NamespaceName, id: Id) -> Result<bool, ServiceError> {
        let by_name = |role: &RoleRecord| Ok(Some(record_keys::role_name(namespace, &role.name)));
        self.records.delete_record(caller, namespace, &record_keys::role(namespace, id), by_name).await
    }
}

fn validate_name(draft: &RoleDraft) -> Result<(), InvalidRequest> {
    if draft.name.is_empty() {
        return Err(InvalidRequest::RoleNameMissing);
    }
    if !is_role_name(&draft.name) {
        return Err(InvalidRequest::RoleName(truncate(&draft.name)));
    }
    Ok(())
}
