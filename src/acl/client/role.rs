//! Roles.

use serde::{Deserialize, Serialize};

use super::records::AclRecord;
use crate::model::go_json::{empty_is_none, null_is_default};
use crate::model::id::Id;
use crate::model::links::AclLinks;
use crate::model::role::NewRole;

/// A role as the server returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Role {
    /// Unique id, assigned by the server.
    #[serde(rename = "ID")]
    pub id: Id,
    /// Name, unique in its namespace.
    pub name: String,
    /// Free text for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// Policies, identities and templates that it links.
    #[serde(flatten)]
    pub links: AclLinks,
    /// Hash of its mutable fields.
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) hash: String,
    /// Namespace of the record.
    #[serde(default, deserialize_with = "empty_is_none", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Index of its creation.
    #[serde(default)]
    pub(crate) create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub(crate) modify_index: u64,
}

impl From<&Role> for NewRole {
    fn from(role: &Role) -> Self {
        let Role { name, description, links, .. } = role.clone();
        Self { name, description, links }
    }
}

impl AclRecord for Role {
    type Id = Id;
    type New = NewRole;
    type Update = NewRole;
    /// Policy that the roles link.
    type Filter = Option<Id>;

    const KIND: &'static str = "role";
    const PLURAL: &'static str = "roles";
    const PATH: &'static [&'static str] = &["acl", "role"];
    const LIST_PATH: &'static [&'static str] = &["acl", "roles"];
    const SINCE: Option<&'static str> = Some("1.5.0");

    fn parameters(policy: &Option<Id>) -> Vec<(&'static str, String)> {
        policy.iter().map(|policy| ("policy", policy.to_string())).collect()
    }
}
