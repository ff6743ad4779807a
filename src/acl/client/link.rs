//! What tokens, roles and namespaces link.

use serde::{Deserialize, Serialize};

use super::wire::{empty_is_none, null_is_default};
use crate::acl::model::id::Id;

/// A link to a policy or a role, by its id, its name or both; with both, the id decides. A server answers with both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Link {
    /// Its id.
    #[serde(rename = "ID", deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// Its name.
    #[serde(deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Link {
    /// A link by id.
    pub fn by_id(id: Id) -> Self {
        Self { id: Some(id), name: None }
    }

    /// A link by name.
    pub fn by_name(name: impl Into<String>) -> Self {
        Self { id: None, name: Some(name.into()) }
    }
}

/// What a token or a role links beside roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Links {
    /// Policies.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Link>,
    /// Policies made from a template.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub templated_policies: Vec<TemplatedPolicy>,
    /// Services that it may register and find.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub service_identities: Vec<ServiceIdentity>,
    /// Nodes that it may register.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub node_identities: Vec<NodeIdentity>,
}

/// A policy made from a template, with the template's variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TemplatedPolicy {
    /// The template, such as `builtin/service`.
    pub template_name: String,
    /// What it is filled with: texts, or maps of texts.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "serde_json::Map::is_empty")]
    pub template_variables: serde_json::Map<String, serde_json::Value>,
    /// The datacenters where it counts; all, if there are none.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// The rights of a service over its own name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceIdentity {
    /// The service: at most 256 lower-case letters, digits, `-` and `_`, with a letter or digit at both ends.
    pub service_name: String,
    /// The datacenters where it counts; all, if there are none.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// The rights of a node over its own name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeIdentity {
    /// The node, under the rules of a service's name.
    pub node_name: String,
    /// The datacenter where it counts.
    pub datacenter: String,
}
