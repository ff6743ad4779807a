//! Policies.

use serde::{Deserialize, Serialize};

use super::records::AclRecord;
use crate::model::go_json::{empty_is_none, null_is_default};
use crate::model::id::Id;
use crate::model::policy::NewPolicy;

/// A policy as the server returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Policy {
    /// Unique id. Not an [`Id`], as generated policies of identities and templates have longer ones.
    #[serde(rename = "ID")]
    pub id: String,
    /// Name, unique in its namespace.
    pub name: String,
    /// Free text for people.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Rules in HCL or JSON; absent in lists.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub rules: String,
    /// Datacenters in which it is valid; empty for all.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
    /// Hash of its mutable fields.
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) hash: String,
    /// Namespace of the record.
    #[serde(deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Index of its creation.
    pub(crate) create_index: u64,
    /// Index of its last change.
    pub(crate) modify_index: u64,
}

impl From<&Policy> for NewPolicy {
    fn from(policy: &Policy) -> Self {
        let Policy { name, description, rules, datacenters, .. } = policy.clone();
        Self { name, description, rules, datacenters }
    }
}

impl AclRecord for Policy {
    type Id = Id;
    type New = NewPolicy;
    type Update = NewPolicy;
    type Filter = ();

    const KIND: &'static str = "policy";
    const PLURAL: &'static str = "policies";
    const PATH: &'static [&'static str] = &["acl", "policy"];
    const LIST_PATH: &'static [&'static str] = &["acl", "policies"];
}
