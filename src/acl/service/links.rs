//! Links as a request gives them, by id or by name, become ids; and ids become links to show.

use std::collections::BTreeSet;

use super::acl_service::Directory;
use super::error::ServiceError;
use super::keys;
use crate::acl::model::id::Id;
use crate::acl::model::links::{
    Holder, Links, NodeIdentity, ServiceIdentity, TemplatedPolicy, node_identities, service_identities,
    templated_policies,
};
use crate::acl::model::names::NamespaceName;
use crate::acl::model::policy::PolicyRecord;
use crate::acl::model::role::RoleRecord;
use crate::acl::store::Freshness;

/// A link to a policy or a role as a request gives it. Where it has both, they name the same one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkDraft {
    /// Its id.
    pub id: Option<String>,
    /// Its name.
    pub name: Option<String>,
}

/// What a token or a role is to link.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinksDraft {
    /// Policies.
    pub policies: Vec<LinkDraft>,
    /// Service identities.
    pub service_identities: Vec<ServiceIdentity>,
    /// Node identities.
    pub node_identities: Vec<NodeIdentity>,
    /// Templated policies.
    pub templated_policies: Vec<TemplatedPolicy>,
}

/// A link as it is shown, with the name that the linked one has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Id.
    pub id: Id,
    /// Name; empty if the linked one cannot be read.
    pub name: String,
}

/// What is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linked {
    /// A policy.
    Policy,
    /// A role.
    Role,
}

impl Linked {
    fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Role => "role",
        }
    }
}

impl Directory {
    /// Links of a holder in a namespace, judged and with names resolved.
    ///
    /// # Errors
    /// A link leads to nothing, or an identity or a template cannot be linked.
    pub(super) async fn links(
        &self,
        namespace: &NamespaceName,
        draft: &LinksDraft,
        holder: Holder,
    ) -> Result<Links, ServiceError> {
        let links = Links {
            policies: self.linked(namespace, Linked::Policy, &draft.policies).await?,
            service_identities: service_identities(draft.service_identities.clone(), holder)
                .map_err(ServiceError::invalid)?,
            node_identities: node_identities(draft.node_identities.clone(), holder).map_err(ServiceError::invalid)?,
            templated_policies: templated_policies(draft.templated_policies.clone()).map_err(ServiceError::invalid)?,
        };
        Ok(links)
    }

    /// The ids that links lead to, each once, in their order.
    ///
    /// # Errors
    /// A link leads to nothing.
    pub(super) async fn linked(
        &self,
        namespace: &NamespaceName,
        kind: Linked,
        drafts: &[LinkDraft],
    ) -> Result<Vec<Id>, ServiceError> {
        let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
        for draft in drafts {
            // On etcd each look is a call.
            if !seen.insert((&draft.id, &draft.name)) {
                continue;
            }
            let id = self.resolve(namespace, kind, draft).await?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    async fn resolve(&self, namespace: &NamespaceName, kind: Linked, draft: &LinkDraft) -> Result<Id, ServiceError> {
        let word = kind.word();
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(id) = given(&draft.id) {
            let none = || ServiceError::Invalid(format!("No such ACL {word} with ID {:?}", shortened(&id)));
            let parsed: Id = id.parse().map_err(|_| none())?;
            let link = self.link(namespace, kind, parsed, Freshness::Linearizable).await?.ok_or_else(none)?;
            // The name of one that cannot be read is not known.
            return match given(&draft.name).filter(|name| !link.name.is_empty() && *name != link.name) {
                None => Ok(parsed),
                Some(name) => Err(ServiceError::Invalid(format!(
                    "The link to ACL {word} {id} names it {:?}, and its name is {:?}: give the ID or the Name alone",
                    shortened(&name),
                    link.name
                ))),
            };
        }
        let Some(name) = given(&draft.name) else {
            return Err(ServiceError::Invalid(format!("A link to an ACL {word} has neither an ID nor a Name")));
        };
        let key = match kind {
            Linked::Policy => keys::policy_name(namespace, &name),
            Linked::Role => keys::role_name(namespace, &name),
        };
        // A slash would lead into other names' keys.
        let found = if name.contains('/') && !name.starts_with(BUILTIN) {
            None
        } else {
            self.records.get::<Id>(&key, Freshness::Linearizable).await?
        };
        match found {
            Some(id) => Ok(*id.value),
            None => Err(ServiceError::Invalid(format!("No such ACL {word} with name {:?}", shortened(&name)))),
        }
    }

    /// A link to show; `None` once the linked one was deleted. The name of one that cannot be read is empty: it is there, and
    /// what links it would be out of reach with it.
    ///
    /// # Errors
    /// The store failed.
    pub async fn link(
        &self,
        namespace: &NamespaceName,
        kind: Linked,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Link>, ServiceError> {
        let found = match kind {
            Linked::Policy => {
                let found = self.records.get::<PolicyRecord>(&keys::policy(namespace, id), freshness).await;
                found.map(|found| found.map(|found| found.value.name.clone()))
            }
            Linked::Role => {
                let found = self.records.get::<RoleRecord>(&keys::role(namespace, id), freshness).await;
                found.map(|found| found.map(|found| found.value.name.clone()))
            }
        };
        match found {
            Ok(name) => Ok(name.map(|name| Link { id, name })),
            Err(error) if self.records.passes_over(&error) => Ok(Some(Link { id, name: String::new() })),
            Err(error) => Err(error),
        }
    }

    /// Links to show; those whose linked one was deleted are left out.
    ///
    /// # Errors
    /// The store failed.
    pub async fn shown(
        &self,
        namespace: &NamespaceName,
        kind: Linked,
        ids: &[Id],
        freshness: Freshness,
    ) -> Result<Vec<Link>, ServiceError> {
        let mut links = Vec::with_capacity(ids.len());
        for id in ids {
            links.extend(self.link(namespace, kind, *id, freshness).await?);
        }
        Ok(links)
    }
}

/// What names of built-in policies start with; no other name holds a slash.
pub(super) const BUILTIN: &str = "builtin/";

/// As much of a caller's text as an error repeats.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}
