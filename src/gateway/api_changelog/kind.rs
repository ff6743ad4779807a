//! Classifications of changes.

use std::fmt;
use std::str::FromStr;

use keyward_telemetry::wording::did_you_mean;
use serde::{Deserialize, Serialize};

/// Effect of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// New.
    Added,
    /// Different than before.
    Changed,
    /// No longer to be used.
    Deprecated,
    /// Corrected.
    Fixed,
    /// New in the documentation only.
    Docs,
    /// Incompatible.
    Breaking,
}

/// Product that a row is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edition {
    /// Both: the row names none.
    All,
    /// HCP Terraform.
    Hosted,
    /// Terraform Enterprise.
    Enterprise,
}

/// Part of the API that a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ChangeSubject {
    /// Attribute of a resource.
    Attribute,
    /// Documentation.
    Documentation,
    /// Path and its methods.
    Endpoint,
    /// Value of an attribute.
    EnumValue,
    /// Size limit.
    Limit,
    /// Link of a resource.
    Link,
    /// Paging of a list.
    Pagination,
    /// Complete body.
    Payload,
    /// Permission.
    Permission,
    /// Query parameter.
    QueryParameter,
    /// Relationship of a resource.
    Relationship,
    /// Setting of an organization or a site.
    Setting,
}

/// Action of the gateway about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatewayAction {
    /// Warns of a call that needs the change, if the server is known to lack it.
    FeatureCheck,
    /// Warns.
    Warn,
    /// Rewrites calls.
    Rewrite,
    /// Merges pages.
    Paginate,
    /// Inspects bodies.
    Validate,
    /// Keeps a value out of all logs, as it does every body.
    Redact,
    /// Nothing to do in the gateway.
    None,
}

/// Unknown value of a classification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown value {value:?}; {hint}")]
pub struct UnknownValue {
    value: String,
    hint: String,
}

impl UnknownValue {
    /// Creates the error for a value that is not in `allowed`.
    pub(super) fn new(value: &str, allowed: &[&str]) -> Self {
        let value: String = value.chars().take(64).collect();
        let hint = did_you_mean(&value, allowed).unwrap_or_else(|| format!("known are {}", allowed.join(", ")));
        Self { value, hint }
    }
}

impl ChangeKind {
    /// All kinds with their names.
    pub(crate) const ALL: [(Self, &str); 6] = [
        (Self::Added, "added"),
        (Self::Changed, "changed"),
        (Self::Deprecated, "deprecated"),
        (Self::Fixed, "fixed"),
        (Self::Docs, "docs"),
        (Self::Breaking, "breaking"),
    ];
}

impl Edition {
    /// All editions with their names; the first name is displayed.
    pub(crate) const ALL: [(Self, &str); 4] = [
        (Self::All, "all"),
        (Self::Hosted, "hosted"),
        (Self::Enterprise, "enterprise"),
        (Self::Enterprise, "self-managed"),
    ];
}

impl GatewayAction {
    /// All actions with their names.
    pub(crate) const ALL: [(Self, &str); 7] = [
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

fn parse_value<T: Copy>(value: &str, keywords: &[(T, &str)]) -> Result<T, UnknownValue> {
    let plain = value.trim().to_ascii_lowercase();
    match keywords.iter().find(|(_, keyword)| *keyword == plain) {
        Some((parsed, _)) => Ok(*parsed),
        None => Err(UnknownValue::new(value, &keywords.iter().map(|(_, keyword)| *keyword).collect::<Vec<_>>())),
    }
}

fn to_name<T: Copy + PartialEq>(value: T, keywords: &[(T, &'static str)]) -> &'static str {
    keywords.iter().find(|(candidate, _)| *candidate == value).map_or("", |(_, keyword)| keyword)
}
