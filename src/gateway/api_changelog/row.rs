//! Rows of the history, and the changes inside.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::date::ApiDate;
use super::endpoint::Endpoint;
use super::kind::{ChangeKind, ChangeSubject, Edition, GatewayAction};
use super::release::Release;

/// One row of one of the three tables of the changelog.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangelogRow {
    /// Its name: the date, and a number where a date has several rows.
    pub id: String,
    /// The day.
    pub date: ApiDate,
    /// The table that it stands in.
    pub table: ChangelogTable,
    /// What the changelog says, in its own words.
    pub changelog: ChangelogText,
    /// What public documentation adds.
    pub documentation: Documentation,
    /// What the row holds. A row whose body is not shown holds nothing.
    pub changes: Vec<Change>,
}

/// The tables of the changelog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangelogTable {
    /// The dated entries.
    Entries,
    /// The lists that come in pages since 2021-11-17.
    Pages,
    /// The calls that were deprecated on 2021-06-08 and what replaces them.
    Replacements,
}

/// The changelog's own words for a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogText {
    /// The date as it is written there, such as `2024-2-8`.
    pub date: String,
    /// The text, with its marks. A row of replacements is `OLD | NEW`.
    pub text: String,
}

/// One change of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The row's name and a number.
    pub id: String,
    /// What it did.
    pub kind: ChangeKind,
    /// To which resource.
    pub resource: String,
    /// To what of it.
    pub subject: ChangeSubject,
    /// What the changelog calls it.
    pub names: Vec<String>,
    /// What the changelog says besides.
    pub changelog: ChangelogFields,
    /// What public documentation adds.
    #[serde(default)]
    pub documentation: Documentation,
    /// What the gateway does about it.
    pub gateway: GatewayBehavior,
}

/// What the changelog itself says about where a change is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangelogFields {
    /// The edition that the row is marked with.
    pub edition: Edition,
    /// The self-managed release that has it first, where the row says so.
    #[serde(default, deserialize_with = "release", skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// The endpoints that the row names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// What replaces them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Endpoint>,
}

/// What public documentation adds. It is not the changelog's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documentation {
    /// The endpoints that are meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// What is called in place of a deprecated endpoint, where that is another call with another body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<Endpoint>,
    /// Other spellings of names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, Vec<String>>,
    /// The edition, where the changelog names none. It refuses nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edition: Option<Edition>,
    /// What else is worth knowing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What the gateway does about a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayBehavior {
    /// In a word.
    #[serde(rename = "does")]
    pub action: GatewayAction,
    /// Advice for the caller, as an imperative sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// It never refuses, whatever else holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warns_only: bool,
    /// In a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A row as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredRow {
    pub(super) id: String,
    pub(super) changelog: ChangelogText,
    #[serde(default)]
    pub(super) documentation: Documentation,
    pub(super) changes: Vec<Change>,
}

impl Change {
    /// The endpoints that the changelog or the documentation names.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.changelog.endpoints.iter().chain(&self.documentation.endpoints)
    }

    /// The names and their other spellings: with hyphens for underscores, and those of the documentation.
    pub fn spellings(&self) -> impl Iterator<Item = String> {
        let others = self.documentation.aliases.values().flatten().cloned();
        let hyphens = self.names.iter().filter(|name| name.contains('_')).map(|name| name.replace('_', "-"));
        self.names.iter().cloned().chain(hyphens).chain(others)
    }
}

impl ChangelogRow {
    /// Whether the changelog shows what the entry says.
    pub fn has_content(&self) -> bool {
        !self.changes.is_empty()
    }
}

fn release<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Release>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}
