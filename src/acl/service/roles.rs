//! Roles: drafts and their validation.

use super::error::ServiceError;
use super::links::truncate;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::records::RecordKind;
use super::rejection::{Conflict, InvalidRequest};
use super::transaction::Transaction;
use crate::model::id::Id;
use crate::model::links::{LinkOwner, Links};
use crate::model::names::{NamespaceName, is_role_name};
use crate::model::role::{NewRole, RoleRecord};
use crate::store::Key;

impl RecordKind for RoleRecord {
    const KEY: &'static str = "role";
    const NAME: &'static str = "role";
    type Id = Id;
    type Draft = NewRole;

    fn id(&self) -> &Id {
        &self.id
    }

    fn namespace(&self) -> &NamespaceName {
        &self.namespace
    }

    fn key(namespace: &NamespaceName, id: &Id) -> Result<Key, InvalidRequest> {
        Ok(record_keys::role(namespace, *id))
    }

    fn name_key(namespace: &NamespaceName, name: &str) -> Option<Key> {
        is_role_name(name).then(|| record_keys::role_name(namespace, name))
    }

    fn claim(&self, is_new: bool) -> Option<(Key, Conflict)> {
        let conflict = if is_new { Conflict::RoleName } else { Conflict::RoleRenamed };
        Some((record_keys::role_name(&self.namespace, &self.name), conflict(self.name.clone())))
    }

    async fn build(
        records: &NamespacedRecords,
        namespace: &NamespaceName,
        draft: &NewRole,
        previous: Option<&Self>,
    ) -> Result<(Self, Transaction), ServiceError> {
        validate_name(draft)?;
        let mut role = Self {
            id: previous.map_or_else(Id::random, |old| old.id),
            name: draft.name.clone(),
            namespace: namespace.clone(),
            description: draft.description.clone(),
            links: Links::default(),
        };
        // A taken name of a new role is refused before a broken link.
        if let Some((name, conflict)) = role.claim(true).filter(|_| previous.is_none()) {
            records.require_absent(&name, conflict).await?;
        }
        role.links = records.links().validate(namespace, &draft.links, LinkOwner::Role).await?;
        Ok((role, Transaction::default()))
    }

    /// Selects the roles that link the policy with an id.
    fn filter(text: &str) -> impl Fn(&Self) -> bool {
        let policy: Option<Id> = text.parse().ok();
        move |role: &Self| policy.is_some_and(|policy| role.links.policies.contains(&policy))
    }
}

fn validate_name(draft: &NewRole) -> Result<(), InvalidRequest> {
    if draft.name.is_empty() {
        return Err(InvalidRequest::RoleNameMissing);
    }
    if !is_role_name(&draft.name) {
        return Err(InvalidRequest::RoleName(truncate(&draft.name)));
    }
    Ok(())
}
