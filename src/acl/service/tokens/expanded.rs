//! Everything that decides what a token may do.

use crate::acl::model::id::Id;
use crate::acl::model::links::Links;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::policy::PolicyRecord;
use crate::acl::model::role::RoleRecord;
use crate::acl::model::templated::SyntheticPolicy;
use crate::acl::model::token::TokenRecord;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::service::repository::Stored;
use crate::acl::store::Freshness;

/// Everything that decides what a token may do, each once: what it links, what its roles link, and what its namespace gives
/// to every token. What was deleted is left out; what counts in other datacenters only is in it.
#[derive(Debug, Default)]
pub struct Expanded {
    /// Policies.
    pub policies: Vec<Stored<PolicyRecord>>,
    /// What identities and templated policies stand for.
    pub synthetic: Vec<SyntheticPolicy>,
    /// Roles.
    pub roles: Vec<Stored<RoleRecord>>,
    /// The policies among them that its namespace gives.
    pub default_policies: Vec<Id>,
    /// The roles among them that its namespace gives.
    pub default_roles: Vec<Id>,
}

impl Directory {
    /// Everything that decides what a token may do.
    ///
    /// # Errors
    /// The store failed.
    pub async fn expanded(&self, token: &TokenRecord, freshness: Freshness) -> Result<Expanded, ServiceError> {
        let namespace = &token.birth().namespace;
        let mut all = Expanded::default();
        self.expand(namespace, &token.links, &token.roles, freshness, &mut all).await?;
        let home = self.namespace(namespace, freshness).await?;
        if let Some(defaults) = home.as_ref().and_then(|home| home.value.defaults.as_ref()) {
            let links = Links { policies: defaults.policies.clone(), ..Links::default() };
            self.expand(&NamespaceName::default_one(), &links, &defaults.roles, freshness, &mut all).await?;
            all.default_policies.clone_from(&defaults.policies);
            all.default_policies.retain(|id| all.policies.iter().any(|policy| policy.value.id == *id));
            all.default_roles.clone_from(&defaults.roles);
            all.default_roles.retain(|id| all.roles.iter().any(|role| role.value.id == *id));
        }
        Ok(all)
    }

    async fn expand(
        &self,
        namespace: &NamespaceName,
        links: &Links,
        roles: &[Id],
        freshness: Freshness,
        all: &mut Expanded,
    ) -> Result<(), ServiceError> {
        self.expand_links(namespace, links, freshness, all).await?;
        for id in roles {
            if all.roles.iter().any(|role| role.value.id == *id) {
                continue;
            }
            let Some(role) = self.records.get::<RoleRecord>(&keys::role(namespace, *id), freshness).await? else {
                continue;
            };
            self.expand_links(namespace, &role.value.links, freshness, all).await?;
            all.roles.push(role);
        }
        Ok(())
    }

    async fn expand_links(
        &self,
        namespace: &NamespaceName,
        links: &Links,
        freshness: Freshness,
        all: &mut Expanded,
    ) -> Result<(), ServiceError> {
        for id in &links.policies {
            if !all.policies.iter().any(|policy| policy.value.id == *id) {
                all.policies.extend(self.records.get(&keys::policy(namespace, *id), freshness).await?);
            }
        }
        for policy in links.synthetic() {
            if !all.synthetic.contains(&policy) {
                all.synthetic.push(policy);
            }
        }
        Ok(())
    }
}
