//! Which rows somebody wants.

use super::Changelog;
use super::date::ApiDate;
use super::kind::{Action, Edition, Kind, UnknownWord};
use super::release::Release;
use super::row::{Change, Row};

/// What a row must have. What is not set, does not matter. A filter by resource, kind, edition, release or gateway takes rows
/// with a change that fits them all; a row whose body is not shown has none, so it is found by its date alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    since: Option<ApiDate>,
    until: Option<ApiDate>,
    resource: Option<String>,
    kind: Option<Kind>,
    edition: Option<Edition>,
    release: Option<Release>,
    gateway: Option<Action>,
    text: Option<String>,
    incomparable: Option<String>,
}

/// What is wrong with a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is no filter of that name.
    #[error("{0}")]
    Name(UnknownWord),
    /// The value is none that it takes.
    #[error("{0}")]
    Value(String),
}

impl Filter {
    /// The names that [`Filter::set`] takes.
    pub const NAMES: [&str; 8] = ["since", "until", "resource", "kind", "edition", "release", "gateway", "text"];

    /// Sets one part by its name:
    /// - `since`, `until`: a day, itself included, with or without zeros;
    /// - `resource`: such as `registry-modules`; letters may be large, and words parted by spaces or underscores;
    /// - `kind`: added, changed, deprecated, fixed, docs or breaking;
    /// - `edition`: `hosted` or `enterprise` is what that product may have, marked for it or for none; `all` is what is
    ///   marked for none;
    /// - `release`: what a self-managed release may have: all but what a later one has first. A release that cannot be
    ///   compared leaves nothing out: see [`Filter::remark`];
    /// - `gateway`: what the gateway does about it: feature-check, warn, rewrite, paginate, validate, redact or none;
    /// - `text`: a part of the row's text or of a name, letters large or small.
    ///
    /// # Errors
    /// There is no such part, or it does not take the value. The error says what is known.
    pub fn set(&mut self, name: &str, value: &str, changelog: &Changelog) -> Result<(), FilterError> {
        let wrong = |error: &dyn std::fmt::Display| FilterError::Value(error.to_string());
        match name {
            "since" => self.since = Some(value.parse().map_err(|error| wrong(&error))?),
            "until" => self.until = Some(value.parse().map_err(|error| wrong(&error))?),
            "resource" => self.resource = Some(changelog.resource(value).map_err(|error| wrong(&error))?.to_owned()),
            "kind" => self.kind = Some(value.parse().map_err(|error| wrong(&error))?),
            "edition" => self.edition = Some(value.parse().map_err(|error| wrong(&error))?),
            "release" => match value.parse() {
                Ok(release) => self.release = Some(release),
                Err(error) => {
                    let value: String = value.chars().take(64).collect();
                    self.incomparable = Some(format!("release {value:?} leaves nothing out: it is {error}"));
                }
            },
            "gateway" => self.gateway = Some(value.parse().map_err(|error| wrong(&error))?),
            "text" => self.text = Some(value.to_lowercase()),
            _ => return Err(FilterError::Name(UnknownWord::new(name, &Self::NAMES))),
        }
        Ok(())
    }

    /// What the asker should know of a filter that does nothing.
    pub fn remark(&self) -> Option<&str> {
        self.incomparable.as_deref()
    }

    /// Whether a row is wanted.
    pub fn takes(&self, row: &Row) -> bool {
        let by_change = self.resource.is_some()
            || self.kind.is_some()
            || self.edition.is_some()
            || self.release.is_some()
            || self.gateway.is_some();
        self.since.is_none_or(|since| row.date >= since)
            && self.until.is_none_or(|until| row.date <= until)
            && (!by_change || row.changes.iter().any(|change| self.takes_change(change)))
            && self.text.as_deref().is_none_or(|text| Self::says(row, text))
    }

    fn takes_change(&self, change: &Change) -> bool {
        let edition = change.changelog.edition;
        self.resource.as_ref().is_none_or(|resource| *resource == change.resource)
            && self.kind.is_none_or(|kind| kind == change.kind)
            && self.gateway.is_none_or(|action| action == change.gateway.does)
            && self.edition.is_none_or(|wanted| edition == wanted || edition == Edition::All)
            && self.release.is_none_or(|release| change.changelog.release.is_none_or(|since| release.has(since)))
    }

    fn says(row: &Row, text: &str) -> bool {
        let has = |place: &str| place.to_lowercase().contains(text);
        let named = || row.changes.iter().flat_map(Change::spellings).any(|name| has(&name));
        row.is_shown() && (has(&row.changelog.text) || named())
    }
}
