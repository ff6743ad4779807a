//! Evaluates binding rules for a login.

use keyward_telemetry::error_chain::format_chain;
use serde_json::{Map, Value};

use super::LoginError;
use crate::model::auth_method::AuthMethodRecord;
use crate::model::binding_rule::{BindTarget, BindingRuleRecord, bind_namespace};
use crate::model::id::Id;
use crate::model::links::{
    LinkOwner, Links, NodeIdentity, ServiceIdentity, TemplatedPolicy, node_identities, service_identities,
    templated_policies,
};
use crate::model::names::NamespaceName;
use crate::model::selector::Selector;
use crate::model::verified_claims::VerifiedClaims;
use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::links::invalid_identity;
use crate::service::record_keys;
use crate::store::Freshness;

/// Links and roles that a login grants.
#[derive(Debug)]
pub(super) struct Grant {
    /// Namespace of the token.
    pub(super) namespace: NamespaceName,
    pub(super) links: Links,
    pub(super) roles: Vec<Id>,
}

impl Grant {
    /// Evaluates the rules of a method for verified claims; `None` if none grants anything. `claim_names` holds the
    /// names that the method maps.
    pub(super) async fn evaluate(
        service: &AclService,
        method: &AuthMethodRecord,
        claim_names: &VerifiedClaims,
        claims: &VerifiedClaims,
    ) -> Result<Option<Self>, LoginError> {
        let prefix = record_keys::kind_prefix("binding-rule", Some(&method.namespace));
        let namespace = Self::evaluate_namespace(service, method, claim_names, claims).await?;
        let mut grant = Self { namespace, links: Links::default(), roles: Vec::new() };
        let mut bound_any = false;
        let mut after = None;
        loop {
            let page =
                service.typed_store.page::<BindingRuleRecord>(&prefix, after.take(), Freshness::Linearizable).await?;
            // By id: rules of a deleted method may remain for a while, and a new method may have its name.
            let rules = page.entries.iter().map(|(_, rule)| &rule.value).filter(|rule| rule.method_id == method.id);
            for rule in rules {
                if !selects(&rule.selector, &rule.id, claim_names, claims) {
                    continue;
                }
                let bound = rule.bind.bind(claims).map_err(|reason| LoginError::Bind { rule: rule.id, reason })?;
                bound_any |= grant.add(service, bound).await?;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if !bound_any {
            return Ok(None);
        }
        let owner = LinkOwner::Token { local: method.makes_local_tokens() };
        let links = &mut grant.links;
        links.service_identities =
            service_identities(std::mem::take(&mut links.service_identities), owner).map_err(invalid_identity)?;
        links.node_identities =
            node_identities(std::mem::take(&mut links.node_identities), owner).map_err(invalid_identity)?;
        links.templated_policies =
            templated_policies(std::mem::take(&mut links.templated_policies)).map_err(invalid_identity)?;
        Ok(Some(grant))
    }

    /// Returns the namespace of the token: that of the first namespace rule that matches, else that of the method.
    async fn evaluate_namespace(
        service: &AclService,
        method: &AuthMethodRecord,
        claim_names: &VerifiedClaims,
        claims: &VerifiedClaims,
    ) -> Result<NamespaceName, LoginError> {
        let mut rules = method.namespace_rules.iter();
        let Some(rule) = rules.find(|rule| selects(&rule.selector, &method.name, claim_names, claims)) else {
            return Ok(method.namespace.clone());
        };
        let namespace = bind_namespace(&rule.bind_namespace, claims)
            .map_err(|reason| LoginError::BindNamespace { reason: reason.to_string() })?;
        match service.records.active_namespace(&namespace).await {
            Ok(found) => Ok(found.value.name.clone()),
            Err(ServiceError::NotFound(_) | ServiceError::Conflict(_)) => {
                Err(LoginError::BindNamespace { reason: format!("namespace {:?} does not exist", namespace.as_str()) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a bind target to the grant; returns false for a role or policy that does not exist.
    async fn add(&mut self, service: &AclService, bound: BindTarget) -> Result<bool, ServiceError> {
        let (ids, key) = match bound {
            BindTarget::Service(service_name) => {
                self.links.service_identities.push(ServiceIdentity { service_name, datacenters: Vec::new() });
                return Ok(true);
            }
            BindTarget::Node(node_name) => {
                self.links.node_identities.push(NodeIdentity { node_name, datacenter: service.datacenter.clone() });
                return Ok(true);
            }
            BindTarget::Template(template_name, name) => {
                let template_variables = name.map(|name| Map::from_iter([("name".to_owned(), Value::String(name))]));
                self.links.templated_policies.push(TemplatedPolicy {
                    template_name,
                    template_variables,
                    datacenters: Vec::new(),
                });
                return Ok(true);
            }
            BindTarget::Role(name) => (&mut self.roles, record_keys::role_name(&self.namespace, &name)),
            BindTarget::Policy(name) => (&mut self.links.policies, record_keys::policy_name(&self.namespace, &name)),
        };
        let Some(entry) = service.typed_store.get::<Id>(&key, Freshness::Linearizable).await? else { return Ok(false) };
        if !ids.contains(&entry.value) {
            ids.push(*entry.value);
        }
        Ok(true)
    }
}

fn selects(
    selector: &str,
    rule: &dyn std::fmt::Display,
    claim_names: &VerifiedClaims,
    claims: &VerifiedClaims,
) -> bool {
    if selector.is_empty() {
        return true;
    }
    match Selector::parse(selector, claim_names) {
        Ok(selector) => selector.matches(claims),
        // The claim mappings may have changed since the rule was written.
        Err(error) => {
            let rule = rule.to_string();
            let error = format_chain(&error);
            tracing::warn!(event = "acl.rule.broken", rule, error, "ignoring a binding rule with an invalid selector");
            false
        }
    }
}
