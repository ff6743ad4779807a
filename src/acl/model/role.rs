//! Role records: named sets of links.

use serde::{Deserialize, Serialize};

use super::content_hash::content_hash;
use super::id::Id;
use super::links::Links;
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

impl RoleRecord {
    /// Returns the hash of its mutable fields.
    pub(crate) fn content_hash(&self) -> String {
        content_hash([self.name.clone(), self.description.clone()].into_iter().chain(self.links.hash_input(&[])))
    }
}
