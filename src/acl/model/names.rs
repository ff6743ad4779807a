//! Validation of names.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Returns whether a string is a valid name of an auth method, login role or datacenter: 1 to 128 letters, digits, `-` and
/// `_`.
pub fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len()) && is_word(text)
}

/// Returns whether a string is a valid policy name: as [`is_name`], with at most one `/`, which is not at its start, and not
/// below `builtin/`, as in Consul.
pub(crate) fn is_policy_name(text: &str) -> bool {
    let (folder, name) = text.split_once('/').map_or((None, text), |(folder, name)| (Some(folder), name));
    let is_free = folder.is_none_or(|folder| folder != "builtin" && is_word(folder) && !folder.is_empty());
    (1..=128).contains(&text.len()) && is_free && is_word(name)
}

/// Returns whether a string is the name of a policy that can exist: one of [`is_policy_name`], or a built-in one.
pub(crate) fn is_policy_or_builtin_name(text: &str) -> bool {
    is_policy_name(text) || text.strip_prefix("builtin/").is_some_and(is_name)
}

/// Returns whether a string is a valid role name: 1 to 256 letters, digits, `-` and `_`.
pub(crate) fn is_role_name(text: &str) -> bool {
    (1..=256).contains(&text.len()) && is_word(text)
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Returns whether a string is a valid service or node name: 1 to 256 lower-case letters, digits, `-` and `_`, starting
/// and ending with a letter or digit.
pub(crate) fn is_identity_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().is_some_and(|&byte| plain(byte)) && bytes.last().is_some_and(|&byte| plain(byte));
    ends && bytes.len() <= 256 && bytes.iter().all(|&byte| plain(byte) || byte == b'-' || byte == b'_')
}

/// Name of a namespace: a DNS hostname label (RFC 1123, 2.1). Keeps its spelling and is compared without case.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct NamespaceName(String);

impl NamespaceName {
    /// Returns the name of the default namespace.
    pub(crate) fn default_namespace() -> Self {
        Self(super::DEFAULT_NAMESPACE.to_owned())
    }

    /// Returns whether it is `default`.
    pub(crate) fn is_default(&self) -> bool {
        self.0.eq_ignore_ascii_case(super::DEFAULT_NAMESPACE)
    }

    /// Returns the name as written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the lower-case name, as used in store keys.
    pub(crate) fn key(&self) -> Cow<'_, str> {
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
    type Err = InvalidNamespaceName;

    fn from_str(text: &str) -> Result<Self, InvalidNamespaceName> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for NamespaceName {
    type Error = InvalidNamespaceName;

    fn try_from(text: String) -> Result<Self, InvalidNamespaceName> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let fits =
            (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-');
        if fits { Ok(Self(text)) } else { Err(InvalidNamespaceName) }
    }
}

impl From<NamespaceName> for String {
    fn from(name: NamespaceName) -> Self {
        name.0
    }
}

/// Error: the text is not a DNS hostname label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a valid DNS hostname label: 1 to 63 letters, digits and '-', not at the ends")]
pub(crate) struct InvalidNamespaceName;

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
    fn the_name_of_a_policy_may_have_a_slash_inside() {
        for name in ["a", "team/web", "team/", &"x".repeat(128)] {
            assert!(is_policy_name(name) && is_policy_or_builtin_name(name), "{name}");
        }
        for name in ["", "/", "/web", "a/b/c", "a b/c", "a//b", "..", "é/a", &"x".repeat(129)] {
            assert!(!is_policy_name(name) && !is_policy_or_builtin_name(name), "{name}");
        }
        assert!(!is_policy_name("builtin/global-read-only") && is_policy_or_builtin_name("builtin/global-read-only"));
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
            assert_eq!(name.parse::<NamespaceName>().map(|name| name.to_string()).as_deref(), Ok(name));
        }
        for name in ["", "-a", "a-", "a_b", "a.b", "a/b", "*", "é", &"x".repeat(64)] {
            assert_eq!(name.parse::<NamespaceName>(), Err(InvalidNamespaceName), "{name}");
        }
        let upper: NamespaceName = "Team".parse().unwrap();
        let lower: NamespaceName = "team".parse().unwrap();
        assert_eq!(upper, lower);
        assert_eq!((upper.key(), upper.as_str()), (lower.key(), "Team"));
        assert!("DEFAULT".parse::<NamespaceName>().unwrap().is_default());
    }
}
