//! Namespaces.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::id::Id;
use super::names::NamespaceName;
use super::timestamp::Timestamp;

/// A namespace as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceRecord {
    /// Its name, as it was written when it was made.
    pub name: NamespaceName,
    /// Free text.
    #[serde(default)]
    pub description: String,
    /// What its tokens may do besides what they link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Defaults>,
    /// Free pairs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// When it was marked for deletion. From then on nothing is written into it and its tokens open nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// What all tokens of a namespace have, where nothing that they link covers a resource. Policies and roles of the
/// `default` namespace, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defaults {
    /// Policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Id>,
    /// Roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Id>,
}

impl Defaults {
    /// True if nothing is linked. A namespace that was written with empty lists is shown with them.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.roles.is_empty()
    }
}

/// What is wrong with the free pairs of a namespace, in words: they are as bounded as those of a node or a service are
/// elsewhere. `None` if they can be taken.
pub fn meta_mistake(meta: &BTreeMap<String, String>) -> Option<String> {
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
    fn pairs_are_bounded_in_number_and_length() {
        let check = |pairs: Vec<(String, String)>, mistake: Option<&str>| {
            assert_eq!(meta_mistake(&pairs.into_iter().collect()).as_deref(), mistake);
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
