//! Which texts may be names.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whether a text may be a policy's, an auth method's or a login role's name: 1 to 128 letters, digits, `-` and `_`.
pub fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len()) && is_word(text)
}

/// Whether a text may be a role's name: 1 to 256 letters, digits, `-` and `_`.
pub fn is_role_name(text: &str) -> bool {
    (1..=256).contains(&text.len()) && is_word(text)
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Whether a text may name a service or a node: 1 to 256 lower-case letters, digits, `-` and `_`, the first and the last
/// of them a letter or a digit.
pub fn is_identity_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().is_some_and(|&byte| plain(byte)) && bytes.last().is_some_and(|&byte| plain(byte));
    ends && bytes.len() <= 256 && bytes.iter().all(|&byte| plain(byte) || byte == b'-' || byte == b'_')
}

/// A namespace's name: a DNS hostname label (RFC 1123, 2.1). It is shown as it was written, and compared without case.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamespaceName(String);

impl NamespaceName {
    /// The namespace that everything lives in unless it is said otherwise.
    pub fn default_one() -> Self {
        Self(super::DEFAULT_NAMESPACE.to_owned())
    }

    /// Whether it is the `default` one.
    pub fn is_default(&self) -> bool {
        self.0.eq_ignore_ascii_case(super::DEFAULT_NAMESPACE)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// In lower case: what it is found by.
    pub fn key(&self) -> Cow<'_, str> {
        if self.0.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(self.0.to_ascii_lowercase())
        } else {
            Cow::Borrowed(&self.0)
        }
    }
}

impl PartialEq for NamespaceName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for NamespaceName {}

impl fmt::Display for NamespaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for NamespaceName {
    type Err = NotALabel;

    fn from_str(text: &str) -> Result<Self, NotALabel> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for NamespaceName {
    type Error = NotALabel;

    fn try_from(text: String) -> Result<Self, NotALabel> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let fits =
            (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-');
        if fits { Ok(Self(text)) } else { Err(NotALabel) }
    }
}

impl From<NamespaceName> for String {
    fn from(name: NamespaceName) -> Self {
        name.0
    }
}

/// A text that is no DNS hostname label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a valid DNS hostname label: 1 to 63 letters, digits and '-', not at the ends")]
pub struct NotALabel;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_letters_digits_and_two_marks() {
        for name in ["a", "web-Read_1", &"x".repeat(128)] {
            assert!(is_name(name) && is_role_name(name), "{name}");
        }
        for name in ["", "a b", "a/b", "..", "é", "bad?bad", "a:bc"] {
            assert!(!is_name(name) && !is_role_name(name), "{name}");
        }
        assert!(!is_name(&"x".repeat(129)) && is_role_name(&"x".repeat(256)) && !is_role_name(&"x".repeat(257)));
        assert!(is_role_name("-a_"));
    }

    #[test]
    fn identities_begin_and_end_with_a_letter_or_a_digit() {
        for name in ["a-bc", "a_bc", "0abc", "abc0", "a0bc", "a", &"x".repeat(256)] {
            assert!(is_identity_name(name), "{name}");
        }
        let long = "x".repeat(257);
        for name in ["-abc", "abc-", "_abc", "abc_", ":abc", "abc:", "a:bc", "Abc", "aBc", "abC", "", "é", &long] {
            assert!(!is_identity_name(name), "{name}");
        }
    }

    #[test]
    fn namespaces_are_labels_and_compared_without_case() {
        for name in ["a", "Team-1", "0", &"x".repeat(63)] {
            assert_eq!(name.parse::<NamespaceName>().map(|it| it.to_string()).as_deref(), Ok(name));
        }
        for name in ["", "-a", "a-", "a_b", "a.b", "a/b", "*", "é", &"x".repeat(64)] {
            assert_eq!(name.parse::<NamespaceName>(), Err(NotALabel), "{name}");
        }
        let (upper, lower): (NamespaceName, NamespaceName) = ("Team".parse().unwrap(), "team".parse().unwrap());
        assert_eq!(upper, lower);
        assert_eq!((upper.key(), upper.as_str()), (lower.key(), "Team"));
        assert!("DEFAULT".parse::<NamespaceName>().unwrap().is_default());
    }
}
