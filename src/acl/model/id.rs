//! Ids of tokens, roles and policies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A UUID: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12. Its version and variant bits are not looked at,
/// because clients of such services send ids that set none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(Uuid);

impl Id {
    /// One of the ids that are reserved for what is built in.
    pub const fn special(number: u8) -> Self {
        Self(Uuid::from_u128(number as u128))
    }

    /// Whether it is reserved for what is built in: `00000000-0000-0000-0000-0000000000` and two digits.
    pub const fn is_reserved(&self) -> bool {
        self.0.as_u128() < 0x100
    }

    /// A new one, of 122 random bits.
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
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        // The parser also takes the forms without hyphens, in braces and as a URN.
        let hyphenated = text.len() == 36 && !text.starts_with("urn:");
        if hyphenated { Uuid::try_parse(text).map(Self).map_err(|_| NotAnId) } else { Err(NotAnId) }
    }
}

impl TryFrom<String> for Id {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<Self, NotAnId> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.to_string()
    }
}

/// A text that is no UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid UUID (example: \"6a1253d2-1785-24fd-91c2-f8e78c745511\")")]
pub struct NotAnId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hyphenated_form_is_an_id() {
        let check = |text: &str, wanted: Option<&str>| {
            assert_eq!(text.parse::<Id>().ok().map(|id| id.to_string()).as_deref(), wanted, "{text}");
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
