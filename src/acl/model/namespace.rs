//! Namespace records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::go_json::null_is_default;
use super::id::Id;
use super::links::AclLink;
use super::names::NamespaceName;
use super::timestamp::Timestamp;

/// A namespace as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceRecord {
    /// Name, spelled as it was when the namespace was created.
    pub name: NamespaceName,
    /// Description.
    #[serde(default)]
    pub description: String,
    /// Default policies and roles of its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<DefaultLinks>,
    /// Metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// Time at which it was marked for deletion. It rejects writes and its tokens are invalid from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// Default links of all tokens of a namespace, used for resources that their own links do not cover. Policies and roles
/// of the `default` namespace, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DefaultLinks {
    /// Policy ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Id>,
    /// Role ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Id>,
}

impl DefaultLinks {
    /// Returns true if nothing is linked. Empty lists of a request are stored and returned as such.
    pub(crate) fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.roles.is_empty()
    }
}

/// Default policies and roles of a namespace; they apply to each of its tokens where no linked rule matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NamespaceDefaults {
    /// Policies.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub policy_defaults: Vec<AclLink>,
    /// Roles.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub role_defaults: Vec<AclLink>,
}

impl NamespaceDefaults {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.policy_defaults.is_empty() && self.role_defaults.is_empty()
    }
}

/// A namespace to be created, or the new content of one. An update replaces all fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NewNamespace {
    /// Name, a DNS label.
    pub name: String,
    /// Free text for people.
    pub description: String,
    /// Default policies and roles of its tokens.
    #[serde(rename = "ACLs", skip_serializing_if = "Option::is_none")]
    pub acls: Option<NamespaceDefaults>,
    /// Metadata of the owner.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
}

/// Validates metadata against Consul's limits for node and service metadata; returns the error text, or `None`.
pub(crate) fn meta_error(meta: &BTreeMap<String, String>) -> Option<String> {
    if meta.len() > 64 {
        return Some(format!("Meta has {} pairs, at most 64 can be kept", meta.len()));
    }
    let long = |text: &str, limit: usize| text.chars().count() > limit;
    meta.iter().find_map(|(key, value)| {
        if key.is_empty() {
            Some("Meta has an empty key".to_owned())
        } else if long(key, 128) {
            Some("a key of Meta is longer than 128 characters".to_owned())
        } else if long(value, 512) {
            Some(format!("the value of {key:?} in Meta is longer than 512 characters"))
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_limited_in_number_and_length() {
        let check = |pairs: Vec<(String, String)>, error: Option<&str>| {
            assert_eq!(meta_error(&pairs.into_iter().collect()).as_deref(), error);
        };
        let one = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        let many = |count: usize| (0..count).map(|number| (number.to_string(), String::new())).collect();
        check(many(0), None);
        check(many(64), None);
        check(many(65), Some("Meta has 65 pairs, at most 64 can be kept"));
        check(one(&"é".repeat(128), &"é".repeat(512)), None);
        check(one("", "a"), Some("Meta has an empty key"));
        check(one(&"k".repeat(129), ""), Some("a key of Meta is longer than 128 characters"));
        check(one("k", &"v".repeat(513)), Some("the value of \"k\" in Meta is longer than 512 characters"));
    }
}
