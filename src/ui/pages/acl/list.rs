//! Page with the records of a kind, and a search by id, name or description.

use std::time::SystemTime;

use maud::{Markup, html};
use serde_json::Value;

use super::kind::{AclKind, label};
use super::kinds;
use crate::pages::Frame;
use crate::pages::layout::table;
use crate::pages::search::{Hit, HitGroup, contains};
use crate::pages::times::time;

/// Most rows of a page.
const ROWS: usize = 200;

/// Fields that the search looks at. No secret is among them.
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
            label { "Id, name or description" input name="q" value=(search) autocomplete="off"; }
            label { "Namespace (* for all)" input name="ns" value=(namespace) autocomplete="off"; }
            button.plain type="submit" { "Filter" }
        }
        p.minor {
            (matching.len()) " of " (records.len())
            @if matching.len() > ROWS { "; the first " (ROWS) " are listed: refine the filter" }
        }
        (records_table(kind, matching.iter().take(ROWS).copied(), now))
    };
    frame.page(kind.title(), "/acl", &content)
}

/// Finds records for the search in everything, in what a list of all namespaces has.
pub(crate) fn find(kind: AclKind, records: &[Value], search: &str) -> HitGroup {
    let hit = |record: &Value| {
        let id = record[kind.id_field()].as_str().unwrap_or_default();
        let namespace = record["Namespace"].as_str().unwrap_or_default();
        let name = record_name(kind, record);
        // A method of the configuration is no record, and has no page.
        let is_configured = record["Configured"] == true;
        Hit {
            link: if is_configured { kind.search_link(id) } else { kind.link(id, namespace) },
            name: name.to_owned(),
            detail: html! { @if id != name { code { (id) } } @if !namespace.is_empty() { " in " (namespace) } },
        }
    };
    let hits = records.iter().filter(|record| matches(record, search)).map(hit).collect();
    HitGroup { title: kind.title(), hits, all: Some(kind.search_link(search)) }
}

/// Builds a table of records.
pub(super) fn records_table<'a>(kind: AclKind, records: impl Iterator<Item = &'a Value>, now: SystemTime) -> Markup {
    let heads: Vec<&str> =
        std::iter::once(kind.singular()).chain(kind.columns().iter().map(|field| label(field))).collect();
    let rows: Vec<Vec<Markup>> = records
        .map(|record| {
            let id = record[kind.id_field()].as_str().unwrap_or_default();
            let namespace = record["Namespace"].as_str().unwrap_or_default();
            let name = record_name(kind, record);
            let link = html! {
                // A method of the configuration is no record, and has no page.
                @if record["Configured"] == true { (name) } @else { a href=(kind.link(id, namespace)) { (name) } }
                @if id != name { div.minor { code { (id) } } }
            };
            let cells = kind.columns().iter().map(|field| cell(field, &record[*field], namespace, now));
            std::iter::once(link).chain(cells).collect()
        })
        .collect();
    table(kind.title(), &heads, &rows, &format!("No {} here.", kind.title().to_lowercase()))
}

/// Name of a record for people; its id without one.
pub(super) fn record_name(kind: AclKind, record: &Value) -> &str {
    let text = |field: &str| record[field].as_str().filter(|text| !text.is_empty());
    text(kind.name_field()).or_else(|| text(kind.id_field())).unwrap_or_default()
}

/// Builds a value of a field: links to policies and roles, other lists by their names, times by their distance.
pub(super) fn cell(field: &str, value: &Value, namespace: &str, now: SystemTime) -> Markup {
    let linked = match field {
        "Policies" => Some(AclKind::Policy),
        "Roles" => Some(AclKind::Role),
        _ => None,
    };
    match (value, linked) {
        (Value::Null, _) => html! {},
        (Value::String(text), _) => time(text, now),
        (Value::Array(values), Some(kind)) => html! {
            @for (index, link) in values.iter().enumerate() {
                @let (id, name) = (link["ID"].as_str().unwrap_or_default(), link["Name"].as_str().unwrap_or_default());
                @if index > 0 { ", " }
                a href=(kind.link(id, namespace)) { (if name.is_empty() { id } else { name }) }
            }
        },
        (Value::Array(values), None) => {
            html! { (values.iter().map(name_in_list).collect::<Vec<_>>().join(", ")) }
        }
        (Value::Object(_), _) => html! { code { (value.to_string()) } },
        (other, _) => html! { (other.to_string()) },
    }
}

/// Name of an element of a list: of a link, an identity, a template; its JSON if it has none.
fn name_in_list(value: &Value) -> String {
    let name = ["Name", "ServiceName", "NodeName", "TemplateName"].iter().find_map(|field| value[*field].as_str());
    name.or_else(|| value.as_str()).map_or_else(|| value.to_string(), str::to_owned)
}

fn matches(record: &Value, search: &str) -> bool {
    contains(SEARCHED.iter().filter_map(|field| record[*field].as_str()), search)
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
        let found = find(AclKind::AuthMethod, &records, "azure");
        assert_eq!(found.hits[0].link, "/acl/auth-methods?q=azure&ns=*");
    }

    #[test]
    fn no_element_of_a_list_is_left_out() {
        let value = serde_json::json!([{"ServiceName": "web"}, {"Name": "a"}, "b", {"Other": 1}]);
        let shown = cell("ServiceIdentities", &value, "", SystemTime::now()).into_string();
        assert_eq!(shown, "web, a, b, {&quot;Other&quot;:1}");
    }

    #[test]
    fn records_are_found_by_accessor_or_description_and_escaped() {
        let records = [
            serde_json::json!({"AccessorID": "6a12", "SecretID": "s3cret", "Description": "<b>web</b>", "Namespace": "team",
                "Policies": [{"ID": "1", "Name": "p"}, {"ID": "2", "Name": "q"}]}),
            serde_json::json!({"AccessorID": "7b34", "Description": ""}),
        ];
        let now = SystemTime::now();
        let page = |search| page(Frame::default(), AclKind::Token, &records, "", search, now).into_string();
        assert!(page("WEB").contains("&lt;b&gt;web") && page("WEB").contains("6a12") && !page("WEB").contains("7b34"));
        assert!(page("WEB").contains("<a href=\"/acl/policies/1?ns=team\">p</a>, <a"), "{}", page("WEB"));
        assert!(page("7b3").contains(">7b34</a>") && page("7b3").contains("1 of 2"));
        assert!(!page("").contains("<b>web"));
        let found = find(AclKind::Token, &records, "web");
        assert_eq!((found.hits.len(), found.hits[0].link.as_str()), (1, "/acl/tokens/6a12?ns=team"));
        assert!(find(AclKind::Token, &records, "s3cret").hits.is_empty(), "a secret finds its token");
        assert!(page("s3cret").contains("0 of 2"));
    }
}
