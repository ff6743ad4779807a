//! What the binding rules give to a caller.

use serde_json::{Map, Value};

use super::LoginError;
use crate::acl::model::auth_method::AuthMethodRecord;
use crate::acl::model::binding_rule::{BindingRuleRecord, Bound};
use crate::acl::model::id::Id;
use crate::acl::model::links::{
    Holder, Links, NodeIdentity, ServiceIdentity, TemplatedPolicy, node_identities, service_identities,
    templated_policies,
};
use crate::acl::model::selector::Selector;
use crate::acl::model::verified_claims::Known;
use crate::acl::service::acl_service::Directory;
use crate::acl::service::error::ServiceError;
use crate::acl::service::keys;
use crate::acl::store::Freshness;

/// What a token gets.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) links: Links,
    pub(super) roles: Vec<Id>,
}

impl Directory {
    /// What the rules of a method give to a caller of whom that is known; `None` if nothing. `blank` has the names of what
    /// the method knows.
    pub(super) async fn bind(
        &self,
        method: &AuthMethodRecord,
        blank: &Known,
        known: &Known,
    ) -> Result<Option<Given>, LoginError> {
        let prefix = keys::within("binding-rule", Some(&method.namespace));
        let rules = self.records.all::<BindingRuleRecord>(&prefix, Freshness::Linearizable).await?.entries;
        let mut given = Given::default();
        let mut bound_any = false;
        for rule in rules.iter().map(|rule| &rule.value).filter(|rule| rule.method_id == method.id) {
            if !fits(rule, blank, known) {
                continue;
            }
            let bound = rule.bind.bind(known).map_err(|reason| LoginError::Bind { rule: rule.id, reason })?;
            bound_any |= self.give(method, bound, &mut given).await?;
        }
        if !bound_any {
            return Ok(None);
        }
        let holder = Holder::Token { local: method.makes_local_tokens() };
        let links = &mut given.links;
        links.service_identities =
            service_identities(std::mem::take(&mut links.service_identities), holder).map_err(ServiceError::invalid)?;
        links.node_identities =
            node_identities(std::mem::take(&mut links.node_identities), holder).map_err(ServiceError::invalid)?;
        links.templated_policies =
            templated_policies(std::mem::take(&mut links.templated_policies)).map_err(ServiceError::invalid)?;
        Ok(Some(given))
    }

    /// Whether there was something to give: a role or policy that is not there is passed over.
    async fn give(&self, method: &AuthMethodRecord, bound: Bound, given: &mut Given) -> Result<bool, ServiceError> {
        let (ids, key) = match bound {
            Bound::Service(service_name) => {
                given.links.service_identities.push(ServiceIdentity { service_name, datacenters: Vec::new() });
                return Ok(true);
            }
            Bound::Node(node_name) => {
                given.links.node_identities.push(NodeIdentity { node_name, datacenter: self.datacenter.clone() });
                return Ok(true);
            }
            Bound::Template(template_name, name) => {
                let template_variables = name.map(|name| Map::from_iter([("name".to_owned(), Value::String(name))]));
                given.links.templated_policies.push(TemplatedPolicy {
                    template_name,
                    template_variables,
                    datacenters: Vec::new(),
                });
                return Ok(true);
            }
            Bound::Role(name) => (&mut given.roles, keys::role_name(&method.namespace, &name)),
            Bound::Policy(name) => (&mut given.links.policies, keys::policy_name(&method.namespace, &name)),
        };
        let Some(found) = self.records.get::<Id>(&key, Freshness::Linearizable).await? else { return Ok(false) };
        if !ids.contains(&found.value) {
            ids.push(*found.value);
        }
        Ok(true)
    }
}

fn fits(rule: &BindingRuleRecord, blank: &Known, known: &Known) -> bool {
    if rule.selector.is_empty() {
        return true;
    }
    match Selector::parse(&rule.selector, blank) {
        Ok(selector) => selector.fits(known),
        // What the method knows may have changed since the rule was written.
        Err(error) => {
            let rule = rule.id;
            tracing::warn!(event = "acl.rule.broken", %rule, %error, "a binding rule's selector is passed over");
            false
        }
    }
}
