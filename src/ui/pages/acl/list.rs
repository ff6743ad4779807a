//! Page with the records of a kind, and a search by id, name or description.

use std::time::SystemTime;

use maud::{Markup, html};
use serde_json::Value;

use super::kind::AclKind;
use super::kinds;
use crate::pages::Frame;
use crate::pages::layout::table;
use crate::pages::times::time;

/// Most rows of a page.
const ROWS: usize = 200;

/// Fields that the search looks at.
const SEARCHED: [&str; 5] = ["AccessorID", "ID", "Name", "Description", "AuthMethod"];

/// Builds the page.
pub(crate) fn page(
    frame: Frame,
    kind: AclKind,
    records: &[Value],
    namespace: &str,
    search: &str,
    now: SystemTime,
) -> Markup {
    let matching: Vec<&Value> = records.iter().filter(|record| matches(record, search)).collect();
    let content = html! {
        (kinds(kind, namespace))
        form.filters method="get" action=(kind.list_link("")) {
            label { "Search by id, name or description" input name="q" value=(search) autocomplete="off"; }
            label { "Namespace (* for all)" input name="ns" value=(namespace) autocomplete="off"; }
            button type="submit" { "Search" }
        }
        p {
            (matching.len()) " of " (records.len())
            @if matching.len() > ROWS { "; the first " (ROWS) " are listed: refine the search" }
        }
        (records_table(kind, matching.iter().take(ROWS).copied(), now))
    };
    frame.page(kind.title(), "/acl", &content)
}

/// Builds a table of records.
pub(super) fn records_table<'a>(kind: AclKind, records: impl Iterator<Item = &'a Value>, now: SystemTime) -> Markup {
    let heads: Vec<&str> = std::iter::once(kind.id_field()).chain(kind.columns().iter().copied()).collect();
    let rows: Vec<Vec<Markup>> = records
        .map(|record| {
            let id = record[kind.id_field()].as_str().unwrap_or_default();
            let namespace = record["Namespace"].as_str().unwrap_or_default();
            let link = html! {
                // A method of the configuration is no record, and has no page.
                @if record["Configured"] == true { (id) } @else { a href=(kind.link(id, namespace)) { (id) } }
            };
            std::iter::once(link).chain(kind.columns().iter().map(|field| cell(&record[*field], now))).collect()
        })
        .collect();
    table(kind.title(), &heads, &rows)
}

/// Builds a value for a cell: lists of links by their names, times by their distance.
pub(super) fn cell(value: &Value, now: SystemTime) -> Markup {
    match value {
        Value::Null => html! {},
        Value::String(text) => time(text, now),
        Value::Array(values) => {
            let names: Vec<&str> =
                values.iter().filter_map(|value| value["Name"].as_str().or_else(|| value.as_str())).collect();
            html! { (names.join(", ")) }
        }
        Value::Object(_) => html! { code { (value.to_string()) } },
        other => html! { (other.to_string()) },
    }
}

fn matches(record: &Value, search: &str) -> bool {
    let search = search.to_lowercase();
    SEARCHED.iter().filter_map(|field| record[*field].as_str()).any(|text| text.to_lowercase().contains(&search))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_of_the_configuration_is_listed_without_a_link() {
        let records = [
            serde_json::json!({"Name": "azure", "Type": "cloud", "Configured": true}),
            serde_json::json!({"Name": "ci", "Type": "jwt"}),
        ];
        let page = page(Frame::default(), AclKind::AuthMethod, &records, "", "", SystemTime::now()).into_string();
        assert!(page.contains("azure") && !page.contains("/acl/auth-methods/azure"));
        assert!(page.contains("/acl/auth-methods/ci"));
    }

    #[test]
    fn records_are_found_by_accessor_or_description_and_escaped() {
        let records = [
            serde_json::json!({"AccessorID": "6a12", "Description": "<b>web</b>", "Policies": [{"Name": "p"}, {"Name": "q"}]}),
            serde_json::json!({"AccessorID": "7b34", "Description": "db"}),
        ];
        let now = SystemTime::now();
        let page = |search| page(Frame::default(), AclKind::Token, &records, "", search, now).into_string();
        assert!(page("WEB").contains("&lt;b&gt;web") && page("WEB").contains("p, q") && !page("WEB").contains("7b34"));
        assert!(page("7b3").contains("7b34") && page("7b3").contains("1 of 2"));
        assert!(!page("").contains("<b>web"));
    }
}
