//! Links of tokens, roles and namespaces.

use serde::{Deserialize, Serialize};

use super::go_json::{empty_is_none, null_is_default};
use crate::model::id::Id;

/// Link to a policy or role by id, name or both. With both, the id decides; servers return both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AclLink {
    /// Unique id, assigned by the server.
    #[serde(rename = "ID", deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// Name, unique in its namespace.
    #[serde(deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl AclLink {
    /// Creates a link by id.
    pub fn by_id(id: Id) -> Self {
        Self { id: Some(id), name: None }
    }

    /// Creates a link by name.
    pub fn by_name(name: impl Into<String>) -> Self {
        Self { id: None, name: Some(name.into()) }
    }
}

/// Links of a token or role, except roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AclLinks {
    /// Policies.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<AclLink>,
    /// Policies generated from templates.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub templated_policies: Vec<AclTemplatedPolicy>,
    /// Services that the token may register and discover.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub service_identities: Vec<AclServiceIdentity>,
    /// Nodes that the token may register.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub node_identities: Vec<AclNodeIdentity>,
}

/// Policy generated from a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AclTemplatedPolicy {
    /// Name of the template, such as `builtin/service`.
    pub template_name: String,
    /// Variables of the template: strings or maps of strings.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "serde_json::Map::is_empty")]
    pub template_variables: serde_json::Map<String, serde_json::Value>,
    /// Datacenters in which it is valid; empty for all.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// Rights of a service over its own name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AclServiceIdentity {
    /// Name of the service: at most 256 lower-case letters, digits, `-` and `_`, with a letter or digit at both ends.
    pub service_name: String,
    /// Datacenters in which it is valid; empty for all.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// Rights of a node over its own name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AclNodeIdentity {
    /// Name of the node, under the rules of service names.
    pub node_name: String,
    /// Datacenter in which it is valid.
    pub datacenter: String,
}
