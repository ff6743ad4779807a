//! Policies and roles that determine a token's permissions.

use crate::model::id::Id;
use crate::model::links::Links;
use crate::model::names::NamespaceName;
use crate::model::policy::PolicyRecord;
use crate::model::role::RoleRecord;
use crate::model::templated::SyntheticPolicy;
use crate::model::token::TokenRecord;
use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::record_keys;
use crate::service::typed_store::Stored;
use crate::store::Freshness;

/// Everything that determines a token's permissions, without duplicates: its links, its roles' links, and the defaults
/// of its namespace. Deleted targets are omitted; policies of other datacenters are included.
#[derive(Debug, Default)]
pub(crate) struct ExpandedToken {
    /// Policies.
    pub policies: Vec<Stored<PolicyRecord>>,
    /// Synthetic policies of identities and templated policies.
    pub synthetic: Vec<SyntheticPolicy>,
    /// Roles.
    pub roles: Vec<Stored<RoleRecord>>,
    /// Ids of the policies that are namespace defaults.
    pub default_policies: Vec<Id>,
    /// Ids of the roles that are namespace defaults.
    pub default_roles: Vec<Id>,
}

impl ExpandedToken {
    /// Loads everything that determines the permissions of a token.
    pub(crate) async fn load(
        service: &AclService,
        token: &TokenRecord,
        freshness: Freshness,
    ) -> Result<Self, ServiceError> {
        let namespace = &token.immutable().namespace;
        let mut all = Self::default();
        all.add(service, namespace, &token.links, &token.roles, freshness).await?;
        let record = service.records.namespace(namespace, freshness).await?;
        if let Some(defaults) = record.as_ref().and_then(|record| record.value.defaults.as_ref()) {
            let links = Links { policies: defaults.policies.clone(), ..Links::default() };
            all.add(service, &NamespaceName::default_namespace(), &links, &defaults.roles, freshness).await?;
            all.default_policies.clone_from(&defaults.policies);
            all.default_policies.retain(|id| all.policies.iter().any(|policy| policy.value.id == *id));
            all.default_roles.clone_from(&defaults.roles);
            all.default_roles.retain(|id| all.roles.iter().any(|role| role.value.id == *id));
        }
        Ok(all)
    }

    async fn add(
        &mut self,
        service: &AclService,
        namespace: &NamespaceName,
        links: &Links,
        roles: &[Id],
        freshness: Freshness,
    ) -> Result<(), ServiceError> {
        self.add_links(service, namespace, links, freshness).await?;
        for id in roles {
            if self.roles.iter().any(|role| role.value.id == *id) {
                continue;
            }
            let Some(role) =
                service.typed_store.get::<RoleRecord>(&record_keys::role(namespace, *id), freshness).await?
            else {
                continue;
            };
            self.add_links(service, namespace, &role.value.links, freshness).await?;
            self.roles.push(role);
        }
        Ok(())
    }

    async fn add_links(
        &mut self,
        service: &AclService,
        namespace: &NamespaceName,
        links: &Links,
        freshness: Freshness,
    ) -> Result<(), ServiceError> {
        for id in &links.policies {
            if !self.policies.iter().any(|policy| policy.value.id == *id) {
                self.policies.extend(service.typed_store.get(&record_keys::policy(namespace, *id), freshness).await?);
            }
        }
        for policy in links.synthetic_policies() {
            if !self.synthetic.contains(&policy) {
                self.synthetic.push(policy);
            }
        }
        Ok(())
    }
}
