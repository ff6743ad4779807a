//! Filters for rows of the API history.

use http::Method;

use super::Changelog;
use super::date::ApiDate;
use super::endpoint::Endpoint;
use super::kind::{ChangeKind, Edition, GatewayAction, UnknownValue};
use super::release::Release;
use super::row::{Change, Row};

/// Conditions on a row; unset ones match all. Filters by resource, kind, edition, release, gateway, method or path
/// match rows with a change that satisfies all of them; a row without a shown body has no changes and is found by its
/// date only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeFilter {
    since: Option<ApiDate>,
    until: Option<ApiDate>,
    resource: Option<String>,
    kind: Option<ChangeKind>,
    edition: Option<Edition>,
    release: Option<Release>,
    gateway: Option<GatewayAction>,
    method: Option<Method>,
    path: Option<String>,
    query: Option<String>,
    text: Option<String>,
    incomparable: Option<String>,
}

/// Error of a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Unknown filter.
    #[error("{0}")]
    Name(UnknownValue),
    /// Invalid value.
    #[error("{0}")]
    Value(String),
}

impl ChangeFilter {
    /// Names that [`ChangeFilter::set`] accepts.
    pub(crate) const NAMES: [&str; 10] =
        ["since", "until", "resource", "kind", "edition", "release", "gateway", "method", "path", "text"];

    /// Sets the filter of this name, one of [`ChangeFilter::NAMES`]. A release that cannot be compared sets no filter, see
    /// [`ChangeFilter::remark`].
    pub fn set(&mut self, name: &str, value: &str, changelog: &Changelog) -> Result<(), FilterError> {
        let invalid = |error: &dyn std::fmt::Display| FilterError::Value(error.to_string());
        match name {
            "since" => self.since = Some(value.parse().map_err(|error| invalid(&error))?),
            "until" => self.until = Some(value.parse().map_err(|error| invalid(&error))?),
            "resource" => self.resource = Some(changelog.resource(value).map_err(|error| invalid(&error))?.to_owned()),
            "kind" => self.kind = Some(value.parse().map_err(|error| invalid(&error))?),
            "edition" => self.edition = Some(value.parse().map_err(|error| invalid(&error))?),
            "release" => match value.parse() {
                Ok(release) => self.release = Some(release),
                Err(error) => {
                    let value: String = value.chars().take(64).collect();
                    self.incomparable = Some(format!("release {value:?} is ignored: it is {error}"));
                }
            },
            "gateway" => self.gateway = Some(value.parse().map_err(|error| invalid(&error))?),
            "method" => self.method = Some(method(value).map_err(FilterError::Value)?),
            "path" => {
                let (path, query) = path(value).map_err(FilterError::Value)?;
                (self.path, self.query) = (Some(path), query);
            }
            "text" => self.text = Some(value.to_lowercase()),
            _ => return Err(FilterError::Name(UnknownValue::new(name, &Self::NAMES))),
        }
        Ok(())
    }

    /// Returns a remark about a filter without effect.
    pub fn remark(&self) -> Option<&str> {
        self.incomparable.as_deref()
    }

    /// Returns true if a row matches.
    pub(crate) fn matches(&self, row: &Row) -> bool {
        let by_change = self.resource.is_some()
            || self.kind.is_some()
            || self.edition.is_some()
            || self.release.is_some()
            || self.gateway.is_some()
            || self.method.is_some()
            || self.path.is_some();
        self.since.is_none_or(|since| row.date >= since)
            && self.until.is_none_or(|until| row.date <= until)
            && (!by_change || row.changes.iter().any(|change| self.matches_change(change)))
            && self.text.as_deref().is_none_or(|text| Self::contains_text(row, text))
    }

    /// Returns true if a change satisfies all filters about changes.
    pub fn matches_change(&self, change: &Change) -> bool {
        let edition = change.changelog.edition;
        self.resource.as_ref().is_none_or(|resource| *resource == change.resource)
            && self.kind.is_none_or(|kind| kind == change.kind)
            && self.gateway.is_none_or(|action| action == change.gateway.action)
            && self.edition.is_none_or(|requested| edition == requested || edition == Edition::All)
            && self.release.is_none_or(|release| !change.is_later_than(release))
            && self.matches_endpoint(change)
    }

    fn matches_endpoint(&self, change: &Change) -> bool {
        let method = self.method.as_ref();
        let path = self.path.as_deref();
        let query = self.query.as_deref();
        (method.is_none() && path.is_none())
            || change.endpoints().filter_map(Endpoint::route).any(|route| route.could_match(method, path, query))
    }

    fn contains_text(row: &Row, text: &str) -> bool {
        let has = |field: &str| field.to_lowercase().contains(text);
        let matches_change_text = |change: &Change| {
            let successor = change.changelog.replacement.as_ref().or(change.documentation.successor.as_ref());
            change.spellings().any(|name| has(&name))
                || has(&change.resource)
                || has(&change.resource.replace('-', " "))
                || change.endpoints().chain(successor).any(|endpoint| has(endpoint.as_str()))
        };
        row.has_content() && (has(&row.changelog.text) || row.changes.iter().any(matches_change_text))
    }
}

/// Parses a method, ignoring case.
fn method(text: &str) -> Result<Method, String> {
    let methods = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let parsed = methods.into_iter().find(|method| text.trim().eq_ignore_ascii_case(method.as_str()));
    parsed.ok_or_else(|| {
        let text: String = text.chars().take(64).collect();
        format!("{text:?} is not a method of the API; write GET, HEAD, POST, PUT, PATCH or DELETE")
    })
}

/// Splits a URL or path into the path below the API's base path, and its query.
fn path(text: &str) -> Result<(String, Option<String>), String> {
    let text = text.trim();
    let rest = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let from_root = rest.map_or(text, |rest| rest.find('/').map_or("", |at| &rest[at..]));
    let below = from_root.strip_prefix("/api/v2").filter(|below| below.starts_with('/')).unwrap_or(from_root);
    let (path, query) = below.split_once('?').map_or((below, None), |(path, query)| (path, Some(query)));
    if path.len() < 2 || !path.starts_with('/') {
        let text: String = text.chars().take(64).collect();
        return Err(format!("{text:?} is not a path of the API; write one such as /runs/run-1/policy-checks"));
    }
    Ok((path.to_owned(), query.map(str::to_owned)))
}
