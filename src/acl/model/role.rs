//! Role records: named sets of links.

use serde::{Deserialize, Serialize};

use super::content_hash::content_hash;
use super::id::Id;
use super::links::{AclLinks, Links};
use super::names::NamespaceName;

/// A role as stored. Tokens link it by id, so it can be renamed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoleRecord {
    /// Id.
    pub id: Id,
    /// Name, unique within the namespace.
    pub name: String,
    /// Namespace.
    pub namespace: NamespaceName,
    /// Description.
    #[serde(default)]
    pub description: String,
    /// Links that it grants.
    #[serde(default)]
    pub links: Links,
}

/// A role to be created, or the new content of one. An update replaces all fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewRole {
    /// Name of letters, digits, `-` and `_`.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Policies, identities and templates that it links.
    #[serde(flatten)]
    pub links: AclLinks,
}

impl RoleRecord {
    /// Returns the hash of its mutable fields.
    pub(crate) fn content_hash(&self) -> String {
        content_hash([self.name.clone(), self.description.clone()].into_iter().chain(self.links.hash_input(&[])))
    }
}
