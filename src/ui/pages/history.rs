//! Page of the history of the platform's API, with a search.

use maud::{Markup, html};
use serde::Deserialize;

use super::Frame;
use super::layout::table;

/// Filters that the form offers, with their labels.
const FILTERS: [(&str, &str); 7] = [
    ("text", "Text"),
    ("resource", "Resource"),
    ("kind", "Kind"),
    ("method", "Method"),
    ("path", "Path"),
    ("since", "Since"),
    ("until", "Until"),
];

/// Fields of `GET /v1/platform/changes` that the page shows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChangesPage {
    data: Vec<Row>,
    meta: Meta,
    errors: Vec<Failure>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Row {
    id: String,
    attributes: Attributes,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Attributes {
    date: String,
    changelog: RowText,
    changes: Vec<RowChange>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RowText {
    text: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RowChange {
    kind: String,
    resource: String,
    names: Vec<String>,
    gateway: RowBehavior,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RowBehavior {
    advice: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Meta {
    pagination: Pagination,
    history: Span,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Span {
    since: String,
    until: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Pagination {
    current_page: usize,
    prev_page: Option<usize>,
    next_page: Option<usize>,
    total_pages: usize,
    total_count: usize,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Failure {
    detail: String,
}

/// Builds the query of the gateway's list from the fields of the form; empty fields are left out.
pub(crate) fn query<'a>(field: impl Fn(&str) -> &'a str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, _) in FILTERS {
        if !field(name).is_empty() {
            query.append_pair(name, field(name));
        }
    }
    if !field("page").is_empty() {
        query.append_pair("page[number]", field("page"));
    }
    query.finish()
}

/// Builds the page from the fields of the form and the gateway's answer.
pub(crate) fn page<'a>(frame: Frame, field: impl Fn(&str) -> &'a str, changes: &ChangesPage) -> Markup {
    let pages = &changes.meta.pagination;
    let link = |number: usize| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(FILTERS.iter().map(|(name, _)| (*name, field(name))).filter(|(_, value)| !value.is_empty()));
        query.append_pair("page", &number.to_string());
        format!("/history?{}", query.finish())
    };
    let rows: Vec<Vec<Markup>> = changes.data.iter().map(cells).collect();
    let content = html! {
        form.filters method="get" action="/history" {
            @for (name, label) in FILTERS {
                label { (label) input name=(name) value=(field(name)) autocomplete="off"; }
            }
            button type="submit" { "Search" }
        }
        @for failure in &changes.errors { p.error role="alert" { (failure.detail) } }
        @if !changes.meta.history.until.is_empty() {
            p { "The history covers " (changes.meta.history.since) " to " (changes.meta.history.until)
                ". Later changes of the API are not in it." }
        }
        p { (pages.total_count) " changes, page " (pages.current_page) " of " (pages.total_pages) }
        (table("Changes, the latest first", &["Id", "Date", "Changelog", "What changed"], &rows))
        nav aria-label="Result pages" {
            @if let Some(previous) = pages.prev_page { a rel="prev" href=(link(previous)) { "Previous" } " " }
            @if let Some(next) = pages.next_page { a rel="next" href=(link(next)) { "Next" } }
        }
    };
    frame.page("API history", "/history", &content)
}

fn cells(row: &Row) -> Vec<Markup> {
    let Attributes { date, changelog, changes } = &row.attributes;
    let changed = html! {
        ul {
            @for change in changes {
                li {
                    (change.kind) ": " (change.resource) " " (change.names.join(", "))
                    @if let Some(advice) = &change.gateway.advice { br; "Do this: " (advice) }
                }
            }
        }
    };
    vec![html! { code { (row.id) } }, html! { (date) }, html! { (changelog.text) }, changed]
}
