//! Page of the history of the platform's API, with a search.

use keyward_telemetry::wording::format_count;
use maud::{Markup, html};
use serde::Deserialize;

use super::Frame;
use super::layout::{BadgeKind, badge, table};
use super::search::{HITS, Hit, HitGroup};
use super::text::rich;

/// Filters that the form offers.
const FILTERS: [&str; 8] = ["text", "resource", "kind", "method", "path", "edition", "since", "until"];

/// Kinds of changes with their labels.
const KINDS: [(&str, &str); 6] = [
    ("added", "Added"),
    ("changed", "Changed"),
    ("deprecated", "Deprecated"),
    ("breaking", "Breaking"),
    ("fixed", "Fixed"),
    ("docs", "Documented"),
];

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Products with their labels.
const EDITIONS: [(&str, &str); 2] = [("hosted", "HCP Terraform"), ("enterprise", "Terraform Enterprise")];

/// Query of the list that has the resources of all changes, by the number of its page.
pub(crate) fn all_changes(page: usize) -> String {
    format!("page[number]={page}&page[size]=100")
}

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
    total_count: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Failure {
    detail: String,
}

impl ChangesPage {
    /// Names of the resources that the changes of this page are about.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        self.data.iter().flat_map(|row| row.attributes.changes.iter().map(|change| change.resource.as_str()))
    }

    /// Number of the next page, if there is one.
    pub(crate) fn next(&self) -> Option<usize> {
        self.meta.pagination.next_page
    }

    /// Finds changes for the search in everything.
    pub(crate) fn to_hits(&self, search: &str) -> HitGroup {
        let hit = |row: &Row| {
            let query = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("since", &row.attributes.date)
                .append_pair("until", &row.attributes.date)
                .finish();
            let detail = rich(&row.attributes.changelog.text);
            Hit { link: format!("/history?{query}"), name: row.attributes.date.clone(), detail }
        };
        let all = url::form_urlencoded::Serializer::new(String::new()).append_pair("text", search).finish();
        HitGroup {
            title: "API history",
            hits: self.data.iter().map(hit).collect(),
            all: Some(format!("/history?{all}")),
        }
    }
}

/// Query of the gateway's list for the search in everything: one more than is shown.
pub(crate) fn search_query(search: &str) -> String {
    let size = (HITS + 1).to_string();
    url::form_urlencoded::Serializer::new(String::new())
        .append_pair("text", search)
        .append_pair("page[size]", &size)
        .finish()
}

/// Builds the query of the gateway's list from the fields of the form; empty fields are left out.
pub(crate) fn query<'a>(field: impl Fn(&str) -> &'a str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for name in FILTERS {
        if !field(name).is_empty() {
            query.append_pair(name, field(name));
        }
    }
    if !field("page").is_empty() {
        query.append_pair("page[number]", field("page"));
    }
    query.finish()
}

/// Builds the page from the fields of the form and the gateway's answer. The form offers `resources`.
pub(crate) fn page<'a>(
    frame: Frame,
    field: impl Fn(&str) -> &'a str,
    changes: &ChangesPage,
    resources: &[String],
) -> Markup {
    let pages = &changes.meta.pagination;
    let link = |number: usize| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(FILTERS.iter().map(|name| (*name, field(name))).filter(|(_, value)| !value.is_empty()));
        query.append_pair("page", &number.to_string());
        format!("/history?{}", query.finish())
    };
    let rows: Vec<Vec<Markup>> = changes.data.iter().map(cells).collect();
    let is_filtered = FILTERS.iter().any(|name| !field(name).is_empty());
    let content = html! {
        (form(&field, &changes.meta.history, resources))
        @for failure in &changes.errors { p.error role="alert" { (failure.detail) } }
        @if changes.errors.is_empty() {
            p.minor {
                (format_count(pages.total_count, "change")) ", page " (pages.current_page) " of " (pages.total_pages)
                @if is_filtered { ". " a href="/history" { "Clear the filter" } }
                @if !changes.meta.history.until.is_empty() {
                    ". The history covers " (changes.meta.history.since) " to " (changes.meta.history.until)
                    ". Later changes of the API are not in it."
                }
            }
            (table("Changes, the latest first", &["Date", "Changelog", "Changes"], &rows, "No change matches the filter."))
        }
        @if pages.prev_page.is_some() || pages.next_page.is_some() {
            nav.pages aria-label="Result pages" {
                @if let Some(previous) = pages.prev_page { a rel="prev" href=(link(previous)) { "← Later" } }
                @if let Some(next) = pages.next_page { a rel="next" href=(link(next)) { "Earlier →" } }
            }
        }
    };
    frame.page("API history", "/history", &content)
}

fn form<'a>(field: impl Fn(&str) -> &'a str, history: &Span, resources: &[String]) -> Markup {
    let limits = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (min, max) = (limits(&history.since), limits(&history.until));
    let select = |name: &str, label: &str, any: &str, options: &[(&str, &str)]| {
        html! {
            label { (label) select name=(name) {
                option value="" { (any) }
                @for (value, text) in options { option value=(value) selected[field(name) == *value] { (text) } }
            } }
        }
    };
    let resources: Vec<(&str, &str)> = resources.iter().map(|name| (name.as_str(), name.as_str())).collect();
    html! {
        form.filters method="get" action="/history" {
            label.wide { "Text" input type="search" name="text" value=(field("text")) autocomplete="off"; }
            (select("kind", "Kind", "All kinds", &KINDS))
            (select("resource", "Resource", "All resources", &resources))
            (select("edition", "Product", "Both products", &EDITIONS))
            (select("method", "Method", "All methods", &METHODS.map(|name| (name, name))))
            label.wide { "Path" input name="path" value=(field("path")) autocomplete="off" placeholder="/runs/run-1/policy-checks"; }
            label { "Since" input type="date" name="since" value=(field("since")) min=[min.as_ref()] max=[max.as_ref()]; }
            label { "Until" input type="date" name="until" value=(field("until")) min=[min.as_ref()] max=[max.as_ref()]; }
            button type="submit" { "Filter" }
        }
    }
}

fn cells(row: &Row) -> Vec<Markup> {
    let Attributes { date, changelog, changes } = &row.attributes;
    let changed = html! {
        ul.changes {
            @for change in changes {
                li {
                    (kind_badge(&change.kind)) " " (change.resource) ": " (change.names.join(", "))
                    @if let Some(advice) = &change.gateway.advice { div.advice { strong { "What to do: " } (rich(advice)) } }
                }
            }
        }
    };
    vec![html! { time datetime=(date) { (date) } }, rich(&changelog.text), changed]
}

fn kind_badge(kind: &str) -> Markup {
    let label = KINDS.iter().find(|(name, _)| *name == kind).map_or(kind, |(_, label)| label);
    let colour = match kind {
        "breaking" => BadgeKind::Bad,
        "deprecated" => BadgeKind::Warning,
        "added" => BadgeKind::Good,
        _ => BadgeKind::Neutral,
    };
    badge(colour, label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_offers_what_exists_and_texts_have_no_backticks() {
        let changes: ChangesPage = serde_json::from_str(
            r#"{"data": [{"id": "2024-10-14", "attributes": {"date": "2024-10-14", "changelog": {"text": "Attribute `a<b` is new."},
                "changes": [{"kind": "added", "resource": "runs", "names": ["a<b"], "gateway": {"advice": "use `c`"}}]}}],
                "meta": {"pagination": {"current-page": 1, "total-pages": 1, "total-count": 1},
                "history": {"since": "2021-06-08", "until": "2024-10-14"}}}"#,
        )
        .unwrap();
        assert_eq!(changes.resources().collect::<Vec<_>>(), ["runs"]);
        let field = |name: &str| if name == "kind" { "added" } else { "" };
        let page = page(Frame::default(), field, &changes, &["runs".to_owned()]).into_string();
        for part in [
            "Attribute <code>a&lt;b</code> is new.",
            r#"<option value="added" selected>Added</option>"#,
            r#"<option value="runs">runs</option>"#,
            r#"type="date" name="since" value="" min="2021-06-08" max="2024-10-14""#,
            "use <code>c</code>",
            "Clear the filter",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert_eq!((page.matches("2024-10-14</").count(), page.contains('`')), (1, false), "{page}");
    }
}
