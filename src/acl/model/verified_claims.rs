//! What is known of a caller that proved who it is: what selectors and bind names speak of.

use std::collections::BTreeMap;

/// What a method's mappings took from the verified claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Texts, as `value.NAME`; empty where the claim is not there.
    pub values: BTreeMap<String, String>,
    /// Lists of texts, as `list.NAME`; empty where the claim is not there.
    pub lists: BTreeMap<String, Vec<String>>,
}

impl Known {
    /// What is known of nobody in particular: all names, and nothing under them. What is written about callers is judged
    /// on it.
    pub fn blank<'a>(values: impl IntoIterator<Item = &'a str>, lists: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            values: values.into_iter().map(|name| (name.to_owned(), String::new())).collect(),
            lists: lists.into_iter().map(|name| (name.to_owned(), Vec::new())).collect(),
        }
    }

    /// The names that a selector may use, for an error.
    pub(super) fn names(&self) -> String {
        let values = self.values.keys().map(|name| format!("value.{name}"));
        let names: Vec<_> = values.chain(self.lists.keys().map(|name| format!("list.{name}"))).collect();
        if names.is_empty() { "nothing, as the auth method maps no claims".to_owned() } else { names.join(", ") }
    }
}
