//! Resolves links between ids and names.

use std::collections::{BTreeSet, HashMap};

use super::error::ServiceError;
use super::namespaced_records::NamespacedRecords;
use super::record_keys;
use super::rejection::InvalidRequest;
use crate::model::id::Id;
use crate::model::links::{
    AclLink, AclLinks, LinkOwner, Links, node_identities, service_identities, templated_policies,
};
use crate::model::names::{NamespaceName, is_policy_or_builtin_name, is_role_name};
use crate::model::policy::PolicyRecord;
use crate::model::role::RoleRecord;
use crate::store::Freshness;

/// Link with the current name of its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// Id.
    pub id: Id,
    /// Name; empty if the target cannot be read.
    pub name: String,
}

/// Kind of a link's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LinkKind {
    /// A policy.
    Policy,
    /// A role.
    Role,
}

impl LinkKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Role => "role",
        }
    }
}

/// Resolution of links in the records of a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkResolver<'a> {
    records: &'a NamespacedRecords,
}

impl NamespacedRecords {
    /// Returns the resolver of links between records.
    pub(super) fn links(&self) -> LinkResolver<'_> {
        LinkResolver { records: self }
    }
}

impl LinkResolver<'_> {
    /// Validates links and resolves names to ids.
    pub(super) async fn validate(
        self,
        namespace: &NamespaceName,
        draft: &AclLinks,
        owner: LinkOwner,
    ) -> Result<Links, ServiceError> {
        let links = Links {
            policies: self.resolve(namespace, LinkKind::Policy, &draft.policies).await?,
            service_identities: service_identities(draft.service_identities.clone(), owner)
                .map_err(invalid_identity)?,
            node_identities: node_identities(draft.node_identities.clone(), owner).map_err(invalid_identity)?,
            templated_policies: templated_policies(draft.templated_policies.clone()).map_err(invalid_identity)?,
        };
        Ok(links)
    }

    /// Resolves links to ids, without duplicates, in order.
    pub(super) async fn resolve(
        self,
        namespace: &NamespaceName,
        kind: LinkKind,
        drafts: &[AclLink],
    ) -> Result<Vec<Id>, ServiceError> {
        let mut ids = Vec::new();
        let mut resolved = BTreeSet::new();
        for draft in drafts {
            // Each lookup is a call on etcd.
            if !resolved.insert((&draft.id, &draft.name)) {
                continue;
            }
            let id = self.resolve_one(namespace, kind, draft).await?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    async fn resolve_one(self, namespace: &NamespaceName, kind: LinkKind, draft: &AclLink) -> Result<Id, ServiceError> {
        let word = kind.as_str();
        let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(id) = non_empty(&draft.id) {
            let none = || InvalidRequest::LinkId { kind: word, id: truncate(&id) };
            let parsed: Id = id.parse().map_err(|_| none())?;
            let link = self.get(namespace, kind, parsed, Freshness::Linearizable).await?.ok_or_else(none)?;
            // An unreadable target has no known name.
            let Some(name) = non_empty(&draft.name).filter(|name| !link.name.is_empty() && *name != link.name) else {
                return Ok(parsed);
            };
            // A client may write back the name from before a rename; that of another record is ambiguous.
            if self.id_by_name(namespace, kind, &name).await?.is_none() {
                return Ok(parsed);
            }
            let name = truncate(&name);
            let actual = link.name;
            return Err(InvalidRequest::LinkNames { kind: word, id, name, actual }.into());
        }
        let Some(name) = non_empty(&draft.name) else {
            return Err(InvalidRequest::EmptyLink { kind: word }.into());
        };
        let id = self.id_by_name(namespace, kind, &name).await?;
        id.ok_or_else(|| InvalidRequest::LinkName { kind: word, name: truncate(&name) }.into())
    }

    /// Looks up the record of a name; `None` if there is none.
    async fn id_by_name(
        self,
        namespace: &NamespaceName,
        kind: LinkKind,
        name: &str,
    ) -> Result<Option<Id>, ServiceError> {
        // Other names could address other keys.
        let key = match kind {
            LinkKind::Policy => is_policy_or_builtin_name(name).then(|| record_keys::policy_name(namespace, name)),
            LinkKind::Role => is_role_name(name).then(|| record_keys::role_name(namespace, name)),
        };
        let Some(key) = key else { return Ok(None) };
        Ok(self.records.typed_store.get::<Id>(&key, Freshness::Linearizable).await?.map(|entry| *entry.value))
    }

    /// Returns a link with its target's name; `None` if the target was deleted. An unreadable target has an empty name,
    /// so that the linking record stays readable.
    pub(crate) async fn get(
        self,
        namespace: &NamespaceName,
        kind: LinkKind,
        id: Id,
        freshness: Freshness,
    ) -> Result<Option<Link>, ServiceError> {
        let name = match kind {
            LinkKind::Policy => {
                let record =
                    self.records.typed_store.get::<PolicyRecord>(&record_keys::policy(namespace, id), freshness).await;
                record.map(|record| record.map(|record| record.value.name.clone()))
            }
            LinkKind::Role => {
                let record =
                    self.records.typed_store.get::<RoleRecord>(&record_keys::role(namespace, id), freshness).await;
                record.map(|record| record.map(|record| record.value.name.clone()))
            }
        };
        match name {
            Ok(name) => Ok(name.map(|name| Link { id, name })),
            Err(error) if self.records.typed_store.skip_unreadable(&error) => {
                Ok(Some(Link { id, name: String::new() }))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns links with their targets' names, without deleted targets.
    pub(crate) async fn load(
        self,
        namespace: &NamespaceName,
        kind: LinkKind,
        ids: &[Id],
        freshness: Freshness,
    ) -> Result<Vec<Link>, ServiceError> {
        let mut links = Vec::with_capacity(ids.len());
        for id in ids {
            links.extend(self.get(namespace, kind, *id, freshness).await?);
        }
        Ok(links)
    }
}

/// Links that were loaded for other records of the same list and namespace.
#[derive(Debug, Default)]
pub(crate) struct LinkCache {
    namespace: Option<NamespaceName>,
    links: HashMap<(LinkKind, Id), Option<Link>>,
}

/// Most links of a [`LinkCache`]. A full one is emptied.
const MAX_CACHED: usize = 1024;

impl LinkCache {
    /// Loads links as [`LinkResolver::load`] does.
    pub(crate) async fn load(
        &mut self,
        resolver: LinkResolver<'_>,
        namespace: &NamespaceName,
        kind: LinkKind,
        ids: &[Id],
        freshness: Freshness,
    ) -> Result<Vec<Link>, ServiceError> {
        let mut links = Vec::with_capacity(ids.len());
        for id in ids {
            if self.namespace.as_ref() != Some(namespace) || self.links.len() >= MAX_CACHED {
                *self = Self { namespace: Some(namespace.clone()), links: HashMap::new() };
            }
            if let Some(link) = self.links.get(&(kind, *id)) {
                links.extend(link.clone());
                continue;
            }
            let link = resolver.get(namespace, kind, *id, freshness).await?;
            links.extend(link.clone());
            self.links.insert((kind, *id), link);
        }
        Ok(links)
    }
}

/// Builds the error of an invalid identity or templated policy.
pub(super) fn invalid_identity(error: impl std::fmt::Display) -> ServiceError {
    InvalidRequest::Identity(error.to_string()).into()
}

/// Truncates a caller's text for an error message.
pub(super) fn truncate(text: &str) -> String {
    text.chars().take(300).collect()
}
