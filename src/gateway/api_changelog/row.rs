//! Rows of the history, and their changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::date::ApiDate;
use super::endpoint::Endpoint;
use super::kind::{ChangeKind, ChangeSubject, Edition, GatewayAction};
use super::release::Release;

/// One row of one of the three tables of the changelog.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Date, and a number if a date has several rows.
    pub id: String,
    /// Date of the row.
    pub date: ApiDate,
    /// Table of the row.
    pub table: Table,
    /// Original text.
    pub changelog: Text,
    /// Additions from public documentation.
    pub documentation: Documentation,
    /// Changes of the row; empty if the changelog does not show its body.
    pub changes: Vec<Change>,
}

/// Tables of the changelog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// Dated entries.
    Entries,
    /// Lists that come in pages since 2021-11-17.
    Pages,
    /// Calls deprecated on 2021-06-08, and their replacements.
    Replacements,
}

/// Original text of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// Date as written, such as `2024-2-8`.
    pub date: String,
    /// Text with its markup. A row of replacements is `OLD | NEW`.
    pub text: String,
}

/// One change of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Id of the row and a number.
    pub id: String,
    /// Date of the row.
    #[serde(skip, default = "ApiDate::earliest")]
    pub(crate) date: ApiDate,
    /// Effect.
    pub kind: ChangeKind,
    /// Resource that it is about.
    pub resource: String,
    /// Part of the resource.
    pub(crate) subject: ChangeSubject,
    /// Names in the changelog.
    pub names: Vec<String>,
    /// Other facts in the changelog.
    pub changelog: Fields,
    /// Additions from public documentation.
    #[serde(default)]
    pub documentation: Documentation,
    /// Behavior of the gateway.
    pub gateway: GatewayBehavior,
}

/// Availability and endpoints of a change, as the changelog states them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fields {
    /// Edition that the row is marked with.
    pub edition: Edition,
    /// First self-managed release, if the row names it.
    #[serde(default, deserialize_with = "release", skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// Endpoints that the row names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// Their replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Endpoint>,
}

/// Additions from public documentation, which are not the changelog's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documentation {
    /// Endpoints that are meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// Call to use instead of a deprecated endpoint, if it takes another body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<Endpoint>,
    /// Other spellings of names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, Vec<String>>,
    /// Edition, if the changelog names none. Never a reason to refuse a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edition: Option<Edition>,
    /// Other remarks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Behavior of the gateway for a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayBehavior {
    /// In a word.
    #[serde(rename = "does")]
    pub action: GatewayAction,
    /// Advice for the caller, as an imperative sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Never refuses, even in strict mode.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) warns_only: bool,
    /// Explanation in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A row as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredRow {
    pub(super) id: String,
    pub(super) changelog: Text,
    #[serde(default)]
    pub(super) documentation: Documentation,
    pub(super) changes: Vec<Change>,
}

impl Change {
    /// Returns the endpoints that the changelog or the documentation names.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.changelog.endpoints.iter().chain(&self.documentation.endpoints)
    }

    /// Returns true if the row is later than a release, which therefore lacks the change unless the row names its release.
    pub(crate) fn is_later_than(&self, release: Release) -> bool {
        match self.changelog.release {
            Some(since) => !release.includes(since),
            None => release.predates(self.date),
        }
    }

    /// Returns the advice for a caller: the row's own, or for a feature the age that a server needs.
    pub fn advice(&self) -> Option<String> {
        let needs_age = || {
            let (year, month) = self.date.year_and_month();
            format!("use it with HCP Terraform, or with a Terraform Enterprise of {year:04}-{month:02} or later")
        };
        let is_feature = self.gateway.action == GatewayAction::FeatureCheck;
        self.gateway.advice.clone().or_else(|| is_feature.then(needs_age))
    }

    /// Returns the names and their other spellings: with hyphens for underscores, and those of the documentation.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = String> {
        let aliases = self.documentation.aliases.values().flatten().cloned();
        let hyphens = self.names.iter().filter(|name| name.contains('_')).map(|name| name.replace('_', "-"));
        self.names.iter().cloned().chain(hyphens).chain(aliases)
    }
}

impl Row {
    /// Returns true if the changelog shows the body of the entry.
    pub fn has_content(&self) -> bool {
        !self.changes.is_empty()
    }
}

fn release<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Release>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}
