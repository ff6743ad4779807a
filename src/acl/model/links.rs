//! Links of tokens and roles: policies by id, identities and templated policies by name.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::go_json::{empty_is_none, null_is_default};
use super::id::Id;
use super::names::is_identity_name;
use super::templated::{self, SyntheticPolicy, TemplateError};

/// Links that tokens and roles share. Policies are linked by id, so they can be renamed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Links {
    /// Policy ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Id>,
    /// Service identities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service_identities: Vec<ServiceIdentity>,
    /// Node identities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_identities: Vec<NodeIdentity>,
    /// Templated policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templated_policies: Vec<TemplatedPolicy>,
}

/// Link to a policy or role by id, name or both, as requests and responses have it. With both, the id decides; servers return
/// both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AclLink {
    /// Unique id, assigned by the server.
    #[serde(rename = "ID", deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name, unique in its namespace.
    #[serde(deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl AclLink {
    /// Creates a link by id.
    pub fn by_id(id: Id) -> Self {
        Self { id: Some(id.to_string()), name: None }
    }

    /// Creates a link by name.
    pub fn by_name(name: impl Into<String>) -> Self {
        Self { id: None, name: Some(name.into()) }
    }
}

/// Links of a token or role, except roles, as requests and responses have them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AclLinks {
    /// Policies.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<AclLink>,
    /// Policies generated from templates.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub templated_policies: Vec<TemplatedPolicy>,
    /// Services that the token may register and discover.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub service_identities: Vec<ServiceIdentity>,
    /// Nodes that the token may register.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub node_identities: Vec<NodeIdentity>,
}

/// Permissions of a service's own process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceIdentity {
    /// Name of the service.
    pub service_name: String,
    /// Datacenters in which it applies; all if empty.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// Permissions of a node's own agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeIdentity {
    /// Name of the node.
    pub node_name: String,
    /// Datacenter in which it applies.
    pub datacenter: String,
}

/// Link to a policy template with its variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TemplatedPolicy {
    /// Name of the template.
    pub template_name: String,
    /// Strings or nested maps; unused keys are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_variables: Option<Map<String, Value>>,
    /// Datacenters in which it applies; all if empty.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// Owner of links, for error messages and restrictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkOwner {
    /// A token.
    Token {
        /// Valid in this datacenter only.
        local: bool,
    },
    /// A role.
    Role,
}

impl LinkOwner {
    fn as_str(self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Role => "role",
        }
    }
}

/// Error of an identity, in Consul's wording.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdentityError {
    /// A service identity has no name.
    #[error("Service identity is missing the service name field on this {}", .0.as_str())]
    NoServiceName(LinkOwner),
    /// A service identity has an invalid name.
    #[error(
        "Service identity {0:?} has an invalid name. Only lowercase alphanumeric characters, '-' and '_' are allowed"
    )]
    ServiceName(String),
    /// A service identity of a local token has datacenters.
    #[error("Service identity {0:?} cannot specify a list of datacenters on a local token")]
    DatacentersOfLocal(String),
    /// A node identity has no name.
    #[error("Node identity is missing the node name field on this {}", .0.as_str())]
    NoNodeName(LinkOwner),
    /// A node identity has no datacenter.
    #[error("Node identity is missing the datacenter field on this {}", .0.as_str())]
    NoDatacenter(LinkOwner),
    /// A node identity has an invalid name.
    #[error("Node identity has an invalid name. Only lowercase alphanumeric characters, '-' and '_' are allowed")]
    NodeName,
}

/// Most characters of a value in an error message.
const MAX_QUOTED_CHARS: usize = 300;

/// Validates service identities and merges those with the same name: the result applies in the union of their
/// datacenters.
pub(crate) fn service_identities(
    identities: Vec<ServiceIdentity>,
    owner: LinkOwner,
) -> Result<Vec<ServiceIdentity>, IdentityError> {
    let mut merged: Vec<ServiceIdentity> = Vec::new();
    for mut identity in identities {
        let name = &identity.service_name;
        if name.is_empty() {
            return Err(IdentityError::NoServiceName(owner));
        }
        if !is_identity_name(name) {
            return Err(IdentityError::ServiceName(name.chars().take(MAX_QUOTED_CHARS).collect()));
        }
        if owner == (LinkOwner::Token { local: true }) && !identity.datacenters.is_empty() {
            return Err(IdentityError::DatacentersOfLocal(name.clone()));
        }
        identity.datacenters.sort();
        identity.datacenters.dedup();
        match merged.iter_mut().find(|other| other.service_name == identity.service_name) {
            // One without datacenters covers all.
            Some(same) if same.datacenters.is_empty() || identity.datacenters.is_empty() => same.datacenters.clear(),
            Some(same) => {
                same.datacenters.append(&mut identity.datacenters);
                same.datacenters.sort();
                same.datacenters.dedup();
            }
            None => merged.push(identity),
        }
    }
    Ok(merged)
}

/// Validates node identities and removes duplicates.
pub(crate) fn node_identities(
    identities: Vec<NodeIdentity>,
    owner: LinkOwner,
) -> Result<Vec<NodeIdentity>, IdentityError> {
    let mut merged: Vec<NodeIdentity> = Vec::new();
    for identity in identities {
        if identity.node_name.is_empty() {
            return Err(IdentityError::NoNodeName(owner));
        }
        if identity.datacenter.is_empty() {
            return Err(IdentityError::NoDatacenter(owner));
        }
        if !is_identity_name(&identity.node_name) {
            return Err(IdentityError::NodeName);
        }
        if !merged.contains(&identity) {
            merged.push(identity);
        }
    }
    Ok(merged)
}

/// Validates templated policies and removes duplicates.
pub(crate) fn templated_policies(policies: Vec<TemplatedPolicy>) -> Result<Vec<TemplatedPolicy>, TemplateError> {
    let mut merged: Vec<TemplatedPolicy> = Vec::new();
    for policy in policies {
        policy.validate()?;
        if !merged.contains(&policy) {
            merged.push(policy);
        }
    }
    Ok(merged)
}

impl TemplatedPolicy {
    /// Validates the template and its variables.
    fn validate(&self) -> Result<(), TemplateError> {
        let unknown = || TemplateError::Unknown(self.template_name.clone());
        let template = templated::find(&self.template_name).ok_or_else(unknown)?;
        templated::render_for_link(template, self.template_variables.as_ref().unwrap_or(&Map::new()))?;
        let Some(variables) = &self.template_variables else { return Ok(()) };
        if let Some((name, _)) = variables.iter().find(|(_, value)| !is_variable(value, MAX_VARIABLE_DEPTH)) {
            let template = self.template_name.clone();
            let name = name.clone();
            return Err(TemplateError::BadVariable { template, name });
        }
        match (variables.get("name"), variables.get("Name")) {
            (Some(one), Some(other)) if one != other => {
                Err(TemplateError::TwoNames { template: self.template_name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn to_synthetic(&self) -> Result<SyntheticPolicy, TemplateError> {
        let none = Map::new();
        let variables = self.template_variables.as_ref().unwrap_or(&none);
        SyntheticPolicy::from_template(&self.template_name, variables, &self.datacenters)
    }
}

/// Deepest nesting of a variable. JSON parsers limit the depth, and variables are nested deeper in stored records and
/// lists than in the request.
const MAX_VARIABLE_DEPTH: usize = 16;

/// Returns whether a value is a string, or a map of such up to a depth. `null` counts as missing.
fn is_variable(value: &Value, depth: usize) -> bool {
    match value {
        Value::Null | Value::String(_) => true,
        Value::Object(map) => depth > 0 && map.values().all(|value| is_variable(value, depth - 1)),
        _ => false,
    }
}

impl Links {
    /// Returns the synthetic policies of its identities and templated policies.
    pub(crate) fn synthetic_policies(&self) -> Vec<SyntheticPolicy> {
        let services = self
            .service_identities
            .iter()
            .map(|identity| SyntheticPolicy::from_service_identity(&identity.service_name, &identity.datacenters));
        let nodes = self
            .node_identities
            .iter()
            .map(|identity| SyntheticPolicy::from_node_identity(&identity.node_name, &identity.datacenter));
        let templates = self.templated_policies.iter().map(TemplatedPolicy::to_synthetic);
        // They were validated when they were linked.
        services.chain(nodes).chain(templates).filter_map(Result::ok).collect()
    }

    /// Returns the texts for the content hash in Consul's order: policies, the ids in `between`, service identities,
    /// node identities, templated policies.
    pub(crate) fn hash_input(&self, between: &[Id]) -> Vec<String> {
        let mut texts: Vec<String> = self.policies.iter().chain(between).map(ToString::to_string).collect();
        for identity in &self.service_identities {
            texts.push(identity.service_name.clone());
            texts.extend(identity.datacenters.iter().cloned());
        }
        for identity in &self.node_identities {
            texts.extend([identity.node_name.clone(), identity.datacenter.clone()]);
        }
        for policy in &self.templated_policies {
            texts.push(policy.template_name.clone());
            texts.extend(policy.template_variables.iter().filter_map(|them| serde_json::to_string(them).ok()));
            texts.extend(policy.datacenters.iter().cloned());
        }
        texts
    }
}

#[cfg(test)]
mod tests;
