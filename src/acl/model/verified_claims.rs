//! Claims of a verified identity, as selectors and bind names refer to them.

use std::collections::BTreeMap;

/// Values that an auth method's mappings took from the verified claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VerifiedClaims {
    /// Single values, as `value.NAME`; `None` if the token lacks the claim.
    pub values: BTreeMap<String, Option<String>>,
    /// Lists, as `list.NAME`; `None` if the token lacks the claim.
    pub lists: BTreeMap<String, Option<Vec<String>>>,
}

impl VerifiedClaims {
    /// Creates an instance with all names and no values, to validate selectors and bind names against.
    pub(crate) fn empty<'a>(
        values: impl IntoIterator<Item = &'a str>,
        lists: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            values: values.into_iter().map(|name| (name.to_owned(), None)).collect(),
            lists: lists.into_iter().map(|name| (name.to_owned(), None)).collect(),
        }
    }

    /// Returns the claims of a login that has all values, to validate names with placeholders.
    pub(crate) fn with_example_values(&self) -> Self {
        let values = self.values.keys().map(|name| (name.clone(), Some("someone".to_owned()))).collect();
        Self { values, lists: self.lists.clone() }
    }

    /// Lists the names that a selector may use, for an error message.
    pub(in crate::model) fn describe_names(&self) -> String {
        let values = self.values.keys().map(|name| format!("value.{name}"));
        let names: Vec<_> = values.chain(self.lists.keys().map(|name| format!("list.{name}"))).collect();
        if names.is_empty() { "none, as the auth method maps no claims".to_owned() } else { names.join(", ") }
    }
}
