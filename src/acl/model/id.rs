//! Ids of ACL objects.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// UUID in hyphenated form. Version and variant bits are not checked, as clients of Consul send ids without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(Uuid);

impl Id {
    /// Returns a reserved id of a built-in object.
    pub(crate) const fn reserved(number: u8) -> Self {
        Self(Uuid::from_u128(number as u128))
    }

    /// Returns whether the id is reserved for built-in objects: `00000000-0000-0000-0000-0000000000` and two digits.
    pub(crate) const fn is_reserved(&self) -> bool {
        self.0.as_u128() < 0x100
    }

    /// Returns a random (version 4) UUID.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(formatter)
    }
}

impl FromStr for Id {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        // The parser also accepts forms without hyphens, in braces and as URN.
        let hyphenated = text.len() == 36 && !text.starts_with("urn:");
        if hyphenated { Uuid::try_parse(text).map(Self).map_err(|_| InvalidId) } else { Err(InvalidId) }
    }
}

impl TryFrom<String> for Id {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.to_string()
    }
}

/// Error: the text is not a hyphenated UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid UUID (example: \"6a1253d2-1785-24fd-91c2-f8e78c745511\")")]
pub struct InvalidId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(text.parse::<Id>().ok().map(|id| id.to_string()).as_deref(), expected, "{text}");
        };
        check("6a1253d2-1785-24fd-91c2-f8e78c745511", Some("6a1253d2-1785-24fd-91c2-f8e78c745511"));
        check("6A1253D2-1785-24FD-91C2-F8E78C745511", Some("6a1253d2-1785-24fd-91c2-f8e78c745511"));
        check("00000000-0000-0000-0000-000000000002", Some("00000000-0000-0000-0000-000000000002"));
        check("6a1253d2178524fd91c2f8e78c745511", None);
        check("{6a1253d2-1785-24fd-91c2-f8e78c745511}", None);
        check("6a1253d2-1785-24fd-91c2-f8e78c74551g", None);
        check("6a1253d21785-24fd-91c2-f8e7-8c745511", None);
        check("", None);
    }
}
