//! The words that changes are sorted by.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::suggest::did_you_mean;

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// Something is new.
    Added,
    /// Something is otherwise than before.
    Changed,
    /// Something is no longer to be used.
    Deprecated,
    /// Something is right that was wrong.
    Fixed,
    /// The documentation says something new.
    Docs,
    /// Something that worked works no longer.
    Breaking,
}

/// Which product a row is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edition {
    /// Both: the row names none.
    All,
    /// The hosted product.
    Hosted,
    /// The self-managed product.
    Enterprise,
}

/// What of the API a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeSubject {
    /// An attribute of a resource.
    Attribute,
    /// What is written about it.
    Documentation,
    /// A path and its methods.
    Endpoint,
    /// A word that an attribute may have.
    EnumValue,
    /// How large something may be.
    Limit,
    /// A link of a resource.
    Link,
    /// That a list comes in pages.
    Pagination,
    /// A body as a whole.
    Payload,
    /// Who may do something.
    Permission,
    /// A parameter of the query.
    QueryParameter,
    /// A relationship of a resource.
    Relationship,
    /// A setting of an organization or a site.
    Setting,
}

/// What the gateway does about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatewayAction {
    /// It warns of a call that needs the change, where the server is known to be without it.
    FeatureCheck,
    /// It warns.
    Warn,
    /// It rewrites calls.
    Rewrite,
    /// It merges pages.
    Paginate,
    /// It looks into bodies.
    Validate,
    /// It keeps a value out of all logs, as it does every body.
    Redact,
    /// Nothing: there is nothing to do on the way.
    None,
}

/// A word that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not known; {hint}")]
pub struct UnknownValue {
    found: String,
    hint: String,
}

impl UnknownValue {
    /// `found` is none of `known`.
    pub(super) fn new(found: &str, known: &[&str]) -> Self {
        let found: String = found.chars().take(64).collect();
        let hint = did_you_mean(&found, known).unwrap_or_else(|| format!("known are {}", known.join(", ")));
        Self { found, hint }
    }
}

impl ChangeKind {
    /// Every kind and its word.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Added, "added"),
        (Self::Changed, "changed"),
        (Self::Deprecated, "deprecated"),
        (Self::Fixed, "fixed"),
        (Self::Docs, "docs"),
        (Self::Breaking, "breaking"),
    ];
}

impl Edition {
    /// Every edition and its words; the first is the one that is shown.
    pub const ALL: [(Self, &str); 4] = [
        (Self::All, "all"),
        (Self::Hosted, "hosted"),
        (Self::Enterprise, "enterprise"),
        (Self::Enterprise, "self-managed"),
    ];
}

impl GatewayAction {
    /// Every action and its word.
    pub const ALL: [(Self, &str); 7] = [
        (Self::FeatureCheck, "feature-check"),
        (Self::Warn, "warn"),
        (Self::Rewrite, "rewrite"),
        (Self::Paginate, "paginate"),
        (Self::Validate, "validate"),
        (Self::Redact, "redact"),
        (Self::None, "none"),
    ];
}

impl fmt::Display for GatewayAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(to_name(*self, &Self::ALL))
    }
}

impl FromStr for ChangeKind {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        parse_value(text, &Self::ALL)
    }
}

impl FromStr for Edition {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        parse_value(text, &Self::ALL)
    }
}

impl FromStr for GatewayAction {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        parse_value(text, &Self::ALL)
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(to_name(*self, &Self::ALL))
    }
}

impl fmt::Display for Edition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(to_name(*self, &Self::ALL))
    }
}

fn parse_value<T: Copy>(found: &str, words: &[(T, &str)]) -> Result<T, UnknownValue> {
    let plain = found.trim().to_ascii_lowercase();
    let known = words.iter().find(|(_, word)| *word == plain).map(|(value, _)| *value);
    known.ok_or_else(|| UnknownValue::new(found, &words.iter().map(|(_, word)| *word).collect::<Vec<_>>()))
}

fn to_name<T: Copy + PartialEq>(value: T, words: &[(T, &'static str)]) -> &'static str {
    words.iter().find(|(known, _)| *known == value).map_or("", |(_, word)| word)
}
