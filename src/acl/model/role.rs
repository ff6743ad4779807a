//! Roles: links under a name.

use serde::{Deserialize, Serialize};

use super::content_hash::content_hash;
use super::id::Id;
use super::links::Links;
use super::names::NamespaceName;

/// A role as it is stored. Tokens link it by id, so that its name may change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleRecord {
    /// Its id.
    pub id: Id,
    /// Its name, unique in its namespace.
    pub name: String,
    /// The namespace it lives in.
    pub namespace: NamespaceName,
    /// Free text.
    #[serde(default)]
    pub description: String,
    /// What it gives.
    #[serde(default)]
    pub links: Links,
}

impl RoleRecord {
    /// The hash of what may change in it.
    pub fn content_hash(&self) -> String {
        content_hash([self.name.clone(), self.description.clone()].into_iter().chain(self.links.hashed(&[])))
    }
}
