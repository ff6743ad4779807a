//! Policies: what the tokens that link them may do.

use serde::{Deserialize, Serialize};

use super::id::Id;

/// A policy as it is stored. Tokens link it by id, so that its name may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// Its id.
    pub id: Id,
    /// Its name, unique in its namespace.
    pub name: String,
    /// The namespace it lives in.
    pub namespace: String,
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

/// Whether a text may be a policy's, an auth method's or a login role's name: 1 to 128 letters, digits, `-` and `_`.
pub fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_letters_digits_and_two_marks() {
        for name in ["a", "web-Read_1", &"x".repeat(128)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a b", "a/b", "..", "é", &"x".repeat(129)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
