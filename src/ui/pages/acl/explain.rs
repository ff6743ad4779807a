//! Page that says what a token may do, and which rule of which policy decides.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::kind::{AclKind, encode, with_query};
use super::kinds;
use crate::pages::Frame;
use crate::pages::layout::{BadgeKind, badge};

/// Resources of Consul's ACL rules.
const RESOURCES: [&str; 15] = [
    "key",
    "service",
    "node",
    "agent",
    "session",
    "event",
    "query",
    "identity",
    "intention",
    "acl",
    "operator",
    "keyring",
    "mesh",
    "peering",
    "namespace",
];

const ACCESSES: [&str; 3] = ["read", "list", "write"];

/// One answer of `POST /v1/acl/token/ACCESSOR/explain`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Explained {
    allow: bool,
    reason: String,
    #[serde(rename = "PolicyID")]
    policy_id: Option<String>,
    policy_name: Option<String>,
    rule: Option<String>,
    namespace_default: bool,
}

/// Path of the API's operation.
pub(crate) fn api_path(accessor: &str, namespace: &str) -> String {
    with_query(&format!("/v1/acl/token/{}/explain", encode(accessor)), &[("ns", namespace)])
}

/// Builds the body of the API's request from the fields of the form; empty accesses are asked for all.
pub(crate) fn request_body<'a>(field: impl Fn(&str) -> &'a str) -> serde_json::Value {
    let accesses: Vec<&str> =
        ACCESSES.into_iter().filter(|access| field("access").is_empty() || field("access") == *access).collect();
    let to_request = |access: &&str| {
        let mut request = json!({"Resource": field("resource"), "Access": access, "Segment": field("segment")});
        if !field("in").is_empty() {
            request["Namespace"] = field("in").into();
        }
        request
    };
    accesses.iter().map(to_request).collect()
}

/// Builds the page.
pub(crate) fn page<'a>(
    frame: Frame,
    accessor: &str,
    namespace: &str,
    field: impl Fn(&str) -> &'a str + Copy,
    explained: &[(String, Explained)],
) -> Markup {
    let content = html! {
        (kinds(AclKind::Token, namespace))
        p { "Token " a href=(AclKind::Token.link(accessor, namespace)) { code { (accessor) } } }
        (form(accessor, namespace, field))
        @for (access, explained) in explained {
            (response(access, explained, field("resource"), field("segment"), namespace))
        }
    };
    frame.page("What a token may do", "/acl", &content)
}

/// Builds the form that asks.
pub(super) fn form<'a>(accessor: &str, namespace: &str, field: impl Fn(&str) -> &'a str) -> Markup {
    let action = AclKind::Token.link(accessor, "") + "/explain";
    html! {
        form.filters method="get" action=(action) {
            input type="hidden" name="ns" value=(namespace);
            label { "Resource" select name="resource" {
                @for resource in RESOURCES { option selected[field("resource") == resource] { (resource) } }
            } }
            label { "Name" input name="segment" value=(field("segment")) autocomplete="off"; }
            label { "In namespace" input name="in" value=(field("in")) autocomplete="off"; }
            button type="submit" { "Explain" }
        }
    }
}

fn response(access: &str, explained: &Explained, resource: &str, segment: &str, namespace: &str) -> Markup {
    let policy = explained.policy_id.as_deref().map(|id| {
        let name = explained.policy_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(id);
        // Policies of identities and templates have no UUID, and no page.
        let stored = id.len() == 36;
        html! { @if stored { a href=(AclKind::Policy.link(id, namespace)) { (name) } } @else { (name) } }
    });
    html! {
        article.card.answer {
            h2 {
                @if explained.allow { (badge(BadgeKind::Good, "allowed")) } @else { (badge(BadgeKind::Bad, "denied")) }
                " " (access) " " (resource) " " code { (segment) }
            }
            @match (&explained.rule, policy) {
                (Some(rule), Some(policy)) => {
                    p { "by this rule of policy " (policy) @if explained.namespace_default { ", a default of the namespace" } }
                    pre tabindex="0" { (rule) }
                }
                _ => p { (explained.reason) },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_accesses_are_asked_for_unless_one_is_named() {
        let ask = |access: &'static str| {
            request_body(move |name| match name {
                "resource" => "key",
                "segment" => "app/x",
                "access" => access,
                _ => "",
            })
        };
        assert_eq!(ask("").as_array().unwrap().len(), 3);
        assert_eq!(ask("list"), json!([{"Resource": "key", "Access": "list", "Segment": "app/x"}]));
    }
}
