//! Page of one record: its facts, the policies in force, and the records that depend on it. Shows no secret.

use std::time::SystemTime;

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::explain;
use super::kind::{AclKind, FIELDS};
use super::kinds;
use super::list::{cell, record_name, records_table};
use crate::pages::Frame;
use crate::pages::layout::facts;

/// Fields shown separately, or never: a secret does not belong on a page.
const OMITTED: [&str; 5] = ["SecretID", "Rules", "ExpandedPolicies", "ExpandedRoles", "Config"];

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
    let value = |field: &str| record.get(field).map(|value| cell(field, value, namespace, now)).unwrap_or_default();
    let known: Vec<(&str, Markup)> = FIELDS.into_iter().map(|(field, label)| (label, value(field))).collect();
    let is_other = |name: &str| !OMITTED.contains(&name) && FIELDS.iter().all(|(field, _)| *field != name);
    let others: Vec<(&str, Markup)> =
        record.keys().filter(|name| is_other(name)).map(|name| (name.as_str(), value(name))).collect();
    let config = record.get("Config").filter(|config| !config.is_null());
    let content = html! {
        (kinds(kind, namespace))
        article.card { (facts(&known)) }
        @if !text("Rules").is_empty() { h2 { "Rules" } pre tabindex="0" { (text("Rules")) } }
        @if let Some(config) = config { h2 { "Configuration" } pre tabindex="0" { (format!("{config:#}")) } }
        @if kind == AclKind::Token {
            h2 { "What may this token do?" }
            (explain::form(id, namespace, |_| ""))
            (effective_policies(record))
        }
        @for (kind, records) in dependents {
            h2 { (kind.title()) " that depend on it" }
            (records_table(*kind, records.iter(), now))
        }
        @if !others.is_empty() {
            details.fold { summary { "Other fields of the API" } (facts(&others)) }
        }
    };
    let name = record_name(kind, &Value::Object(record.clone())).to_owned();
    frame.page(&format!("{} {name}", kind.singular()), "/acl", &content)
}

/// Shows the rules of all policies in force for a token: its own, its roles' and the defaults of its namespace.
fn effective_policies(record: &Map<String, Value>) -> Markup {
    let policies = record.get("ExpandedPolicies").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let defaults =
        record.get("NamespaceDefaultPolicyIDs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    html! {
        h2 { "Policies in force" }
        @if policies.is_empty() {
            p.empty { "None: the default policy of the server decides." }
        } @else {
            p.minor { "Its own, those of its roles, and the defaults of its namespace." }
        }
        @for policy in policies {
            details.fold {
                summary {
                    (policy["Name"].as_str().unwrap_or_default())
                    @if defaults.contains(&policy["ID"]) { " (default of the namespace)" }
                }
                pre tabindex="0" { (policy["Rules"].as_str().unwrap_or_default()) }
            }
        }
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

    #[test]
    fn facts_for_people_stand_before_the_fields_of_the_api() {
        let record = serde_json::json!({"AccessorID": "6a12", "CreateIndex": 7, "CreateTime": "2026-01-31T09:00:00Z",
            "Description": "web", "Hash": "aGFzaA==", "ModifyIndex": 9});
        let record = record.as_object().unwrap();
        let page = page(Frame::default(), AclKind::Token, record, &[], "", SystemTime::now()).into_string();
        assert!(
            page.contains("<h1>Token web</h1>") && page.contains("Accessor") && !page.contains("AccessorID"),
            "{page}"
        );
        let (first, folded) = page.split_once("Other fields of the API").unwrap();
        for field in ["CreateIndex", "Hash", "ModifyIndex"] {
            assert!(folded.contains(field) && !first.contains(field), "{field}: {page}");
        }
    }
}
