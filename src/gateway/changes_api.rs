//! `GET /v1/platform/changes`: the API history as a paged list in the platform's own format, with filters.

use std::ops::RangeInclusive;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::api_changelog::{self, ChangeFilter, Changelog, FilterError};
use super::jsonapi_error::{ErrorSource, JsonApiError};

/// Path of the list on the gateway's listener.
pub(crate) const PATH: &str = "/v1/platform/changes";

const NUMBER: &str = "page[number]";
const SIZE: &str = "page[size]";

/// Default page size; the maximum is [`MAX_SIZE`]. Both are those of the platform's API.
const DEFAULT_SIZE: usize = 20;
const MAX_SIZE: usize = 100;

/// A response with a body of type [`super::jsonapi_error::MEDIA_TYPE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangesResponse {
    /// 200; 400 for an unknown or repeated parameter; 422 for an invalid value.
    pub status: StatusCode,
    /// A page of rows, or a document with `errors`.
    pub body: Bytes,
}

/// The parsed query of a request.
#[derive(Debug)]
struct ChangesQuery {
    filter: ChangeFilter,
    number: usize,
    size: usize,
    /// Filters as received, repeated in the page links.
    filters: Vec<(String, String)>,
}

/// Handles a raw query (may be empty): the names of [`ChangeFilter::set`], `page[number]` and `page[size]`. Links begin
/// with `origin`, such as `http://127.0.0.1:8123`; if it is empty, they are paths.
pub(crate) fn respond(origin: &str, query: &str) -> ChangesResponse {
    let changelog = Changelog::get();
    match ChangesQuery::read(query, changelog) {
        Ok(changes_query) => {
            ChangesResponse { status: StatusCode::OK, body: changes_query.page(origin, changelog).to_string().into() }
        }
        Err(errors) => {
            let unknown = errors.iter().any(|error| error.status == StatusCode::BAD_REQUEST);
            let status = if unknown { StatusCode::BAD_REQUEST } else { StatusCode::UNPROCESSABLE_ENTITY };
            ChangesResponse { status, body: JsonApiError::document(&errors) }
        }
    }
}

impl ChangesQuery {
    fn read(query: &str, changelog: &Changelog) -> Result<Self, Vec<JsonApiError>> {
        let mut changes_query =
            Self { filter: ChangeFilter::default(), number: 1, size: DEFAULT_SIZE, filters: Vec::new() };
        let mut seen: Vec<String> = Vec::new();
        let mut errors = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let result = if seen.iter().any(|seen_name| *seen_name == name) {
                Err((StatusCode::BAD_REQUEST, "it is given twice".to_owned()))
            } else {
                changes_query.set(&name, &value, changelog)
            };
            if let Err((status, detail)) = result {
                let name: String = name.chars().take(64).collect();
                let detail = format!("{name}: {detail}");
                errors.push(JsonApiError {
                    source: Some(ErrorSource::Parameter(name)),
                    ..JsonApiError::new(status, detail)
                });
            }
            seen.push(name.into_owned());
        }
        if errors.is_empty() { Ok(changes_query) } else { Err(errors) }
    }

    fn set(&mut self, name: &str, value: &str, changelog: &Changelog) -> Result<(), (StatusCode, String)> {
        let unprocessable = |detail: String| (StatusCode::UNPROCESSABLE_ENTITY, detail);
        match name {
            NUMBER => self.number = parse_number(value, 1..=1_000_000).map_err(unprocessable)?,
            SIZE => self.size = parse_number(value, 1..=MAX_SIZE).map_err(unprocessable)?,
            _ => {
                self.filter.set(name, value, changelog).map_err(|error| match error {
                    FilterError::Name(_) => {
                        let names = ChangeFilter::NAMES.join(", ");
                        let detail = format!("unknown parameter; expected one of {names}, {NUMBER} and {SIZE}");
                        (StatusCode::BAD_REQUEST, detail)
                    }
                    FilterError::Value(detail) => unprocessable(detail),
                })?;
                self.filters.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(())
    }

    fn page(&self, origin: &str, changelog: &Changelog) -> Value {
        let rows: Vec<&api_changelog::Row> = changelog.find(&self.filter).collect();
        let pages = rows.len().div_ceil(self.size).max(1);
        let previous = (self.number > 1).then(|| pages.min(self.number - 1));
        let next = (self.number < pages).then(|| self.number + 1);
        let page_rows = rows.iter().skip((self.number - 1) * self.size).take(self.size);
        let link = |number: usize| self.link(origin, number);
        let mut meta = json!({"pagination": {
            "current-page": self.number,
            "prev-page": previous,
            "next-page": next,
            "total-pages": pages,
            "total-count": rows.len(),
        }});
        if let Some((since, until)) = changelog.span() {
            meta["history"] = json!({ "since": since, "until": until });
        }
        if let Some(remark) = self.filter.remark() {
            meta["remark"] = remark.into();
        }
        json!({
            "data": page_rows.map(|row| to_resource(row)).collect::<Vec<_>>(),
            "links": {
                "self": link(self.number),
                "first": link(1),
                "prev": previous.map(link),
                "next": next.map(link),
                "last": link(pages),
            },
            "meta": meta,
        })
    }

    fn link(&self, origin: &str, number: usize) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.filters);
        query.append_pair(NUMBER, &number.to_string()).append_pair(SIZE, &self.size.to_string());
        format!("{origin}{PATH}?{}", query.finish())
    }
}

fn to_resource(row: &api_changelog::Row) -> Value {
    json!({
        "id": row.id,
        "type": "platform-changes",
        "attributes": {
            "date": row.date,
            "table": row.table,
            "changelog": row.changelog,
            "documentation": row.documentation,
            "changes": row.changes,
        },
    })
}

fn parse_number(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && range.contains(number));
    number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests;
