//! Policy records: named sets of rules.

use serde::{Deserialize, Serialize};

use super::content_hash::content_hash;
use super::id::Id;
use super::names::NamespaceName;

/// A policy as stored. Tokens and roles link it by id, so it can be renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyRecord {
    /// Id.
    pub id: Id,
    /// Name, unique within the namespace.
    pub name: String,
    /// Namespace.
    pub namespace: NamespaceName,
    /// Description.
    #[serde(default)]
    pub description: String,
    /// Rules, in HCL or JSON; may be empty.
    #[serde(default)]
    pub rules: String,
    /// Datacenters in which it applies; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// A policy to be created, or the new content of one. An update replaces all fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewPolicy {
    /// Name of letters, digits, `-` and `_`.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Rules in HCL or JSON.
    pub rules: String,
    /// Datacenters in which it is valid; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// Built-in policy that allows everything.
pub(crate) const GLOBAL_MANAGEMENT: Id = Id::reserved(1);
/// Built-in policy that allows reading everything.
pub(crate) const GLOBAL_READ_ONLY: Id = Id::reserved(2);

/// Name of that policy at first; no other policy may have it.
pub(crate) const GLOBAL_READ_ONLY_NAME: &str = "builtin/global-read-only";

impl PolicyRecord {
    /// Returns the hash of its mutable fields.
    pub(crate) fn content_hash(&self) -> String {
        let texts = [&self.name, &self.description, &self.rules].into_iter().chain(&self.datacenters);
        content_hash(texts.cloned())
    }

    /// Returns whether it applies in a datacenter.
    pub(crate) fn applies_in(&self, datacenter: &str) -> bool {
        self.datacenters.is_empty() || self.datacenters.iter().any(|name| name == datacenter)
    }
}
