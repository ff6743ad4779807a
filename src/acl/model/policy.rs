//! Policies: what the tokens that link them may do.

use serde::{Deserialize, Serialize};

use super::content_hash::content_hash;
use super::id::Id;
use super::names::NamespaceName;

/// A policy as it is stored. Tokens and roles link it by id, so that its name may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// Its id.
    pub id: Id,
    /// Its name, unique in its namespace.
    pub name: String,
    /// The namespace it lives in.
    pub namespace: NamespaceName,
    /// Free text.
    #[serde(default)]
    pub description: String,
    /// What it allows and denies; empty for a policy that only has a name so far.
    #[serde(default)]
    pub rules: String,
    /// Where it counts; everywhere when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// The built-in policy that allows everything.
pub const GLOBAL_MANAGEMENT: Id = Id::special(1);
/// The built-in policy that allows reading everything.
pub const GLOBAL_READ_ONLY: Id = Id::special(2);

impl PolicyRecord {
    /// The hash of what may change in it.
    pub fn content_hash(&self) -> String {
        let texts = [&self.name, &self.description, &self.rules].into_iter().chain(&self.datacenters);
        content_hash(texts.cloned())
    }

    /// Whether it counts in that datacenter.
    pub fn counts_in(&self, datacenter: &str) -> bool {
        self.datacenters.is_empty() || self.datacenters.iter().any(|it| it == datacenter)
    }
}
