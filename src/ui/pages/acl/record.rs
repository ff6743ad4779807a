//! Page of one record: its fields, what its rights come from, and what depends on it. Shows no secret.

use std::time::SystemTime;

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::explain;
use super::kind::AclKind;
use super::kinds;
use super::list::{cell, records_table};
use crate::pages::Frame;
use crate::pages::layout::facts;

/// Fields shown separately, or never: a secret does not belong on a page.
const OMITTED: [&str; 6] = ["SecretID", "Rules", "ExpandedPolicies", "ExpandedRoles", "Policies", "Roles"];

/// Builds the page. `dependents` are the records that depend on this one, by kind.
pub(crate) fn page(
    frame: Frame,
    kind: AclKind,
    record: &Map<String, Value>,
    dependents: &[(AclKind, Vec<Value>)],
    namespace: &str,
    now: SystemTime,
) -> Markup {
    let text = |field: &str| record.get(field).and_then(Value::as_str).unwrap_or_default();
    let id = text(kind.id_field());
    let fields: Vec<(&str, Markup)> = record
        .iter()
        .filter(|(name, _)| !OMITTED.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), cell(value, now)))
        .collect();
    let content = html! {
        (kinds(kind, namespace))
        article.card { (facts(&fields)) }
        @if !text("Rules").is_empty() { h2 { "Rules" } pre tabindex="0" { (text("Rules")) } }
        (links("Policies", AclKind::Policy, record.get("Policies"), namespace))
        (links("Roles", AclKind::Role, record.get("Roles"), namespace))
        @if kind == AclKind::Token {
            (rights(record))
            h2 { "What may this token do?" }
            (explain::form(id, namespace, |_| ""))
        }
        @for (kind, records) in dependents {
            h2 { (kind.title()) " that depend on it" }
            (records_table(*kind, records.iter(), now))
        }
    };
    frame.page(
        &format!("{} {}", kind.singular(), if text("Name").is_empty() { id } else { text("Name") }),
        "/acl",
        &content,
    )
}

/// Lists linked records.
fn links(title: &str, kind: AclKind, linked: Option<&Value>, namespace: &str) -> Markup {
    let linked = linked.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    html! {
        @if !linked.is_empty() {
            h2 { (title) }
            ul {
                @for link in linked {
                    @let (id, name) = (link["ID"].as_str().unwrap_or_default(), link["Name"].as_str().unwrap_or_default());
                    li { a href=(kind.link(id, namespace)) { (if name.is_empty() { id } else { name }) } }
                }
            }
        }
    }
}

/// Shows the rules of all policies that a token's rights come from, its roles' and its namespace's defaults' too.
fn rights(record: &Map<String, Value>) -> Markup {
    let policies = record.get("ExpandedPolicies").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let defaults =
        record.get("NamespaceDefaultPolicyIDs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    html! {
        h2 { "Policies that its rights come from" }
        @for policy in policies {
            details {
                summary {
                    (policy["Name"].as_str().unwrap_or_default())
                    @if defaults.contains(&policy["ID"]) { " (default of the namespace)" }
                }
                pre tabindex="0" { (policy["Rules"].as_str().unwrap_or_default()) }
            }
        }
        @if policies.is_empty() { p { "None: the default policy of the server decides." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_token_is_never_on_the_page() {
        let record = serde_json::json!({"AccessorID": "6a12", "SecretID": "s3cret", "Policies": [{"ID": "1", "Name": "web"}],
            "ExpandedPolicies": [{"ID": "1", "Name": "web", "Rules": "key \"a\" { policy = \"read\" }"}]});
        let record = record.as_object().unwrap();
        let page = page(Frame::default(), AclKind::Token, record, &[], "team", SystemTime::now()).into_string();
        assert!(!page.contains("s3cret"), "{page}");
        for part in ["/acl/policies/1?ns=team", "key &quot;a&quot;", "/acl/tokens/6a12/explain"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
