//! Formats ACL objects: tables, fields or JSON.

use keyward_acl::client::{AclLink, AclLinks, Policy, ReadResponse};
use keyward_acl::model::timestamp::Timestamp;
use keyward_telemetry::time_format::format_span;

pub(super) use crate::cli::output::{Fields, json, strip_control_chars, table};
use crate::cli::{print_line, print_note};

impl Fields {
    /// Adds the links that tokens and roles have in common.
    pub(super) fn links(&mut self, links: &AclLinks) -> &mut Self {
        self.list_field("Policies", links.policies.iter().map(link))
            .list_field("Templated policies", links.templated_policies.iter().map(format_templated_policy))
            .list_field("Service identities", links.service_identities.iter().map(service))
            .list_field("Node identities", links.node_identities.iter().map(node))
    }
}

/// A link in words: its name, and its id.
pub(super) fn link(link: &AclLink) -> String {
    match (&link.name, &link.id) {
        (Some(name), Some(id)) => format!("{name} ({id})"),
        (Some(name), None) => name.clone(),
        (None, Some(id)) => id.clone(),
        (None, None) => String::new(),
    }
}

fn format_templated_policy(policy: &keyward_acl::client::TemplatedPolicy) -> String {
    let variables = policy.template_variables.iter().flatten().map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}={text}"),
        None => format!("{name}={value}"),
    });
    let words: Vec<_> = std::iter::once(policy.template_name.clone()).chain(variables).collect();
    words.join(" ")
}

fn service(service: &keyward_acl::client::ServiceIdentity) -> String {
    format_with_datacenters(&service.service_name, &service.datacenters)
}

fn node(node: &keyward_acl::client::NodeIdentity) -> String {
    format!("{} in {}", node.node_name, node.datacenter)
}

fn format_with_datacenters(name: &str, datacenters: &[String]) -> String {
    if datacenters.is_empty() { name.to_owned() } else { format!("{name} in {}", datacenters.join(", ")) }
}

/// Formats links for one cell of a table.
pub(super) fn links_in_a_cell(roles: &[AclLink], links: &AclLinks) -> String {
    // The server sends an empty name for a record that it cannot read.
    let own_name = |link: &AclLink| link.name.clone().filter(|name| !name.is_empty());
    let name = |link: &AclLink| own_name(link).or_else(|| link.id.clone()).unwrap_or_default();
    let policies = links.policies.iter().map(|link| format!("policy {}", name(link)));
    let roles = roles.iter().map(|link| format!("role {}", name(link)));
    let templates = links.templated_policies.iter().map(format_templated_policy);
    let services = links.service_identities.iter().map(|identity| format!("service {}", identity.service_name));
    let nodes = links.node_identities.iter().map(|identity| format!("node {}", identity.node_name));
    policies.chain(roles).chain(templates).chain(services).chain(nodes).collect::<Vec<_>>().join(", ")
}

/// Formats an expiry and the time left from `now`.
pub(super) fn end(end: Option<Timestamp>, now: Timestamp) -> String {
    let Some(end) = end else { return "never".to_owned() };
    let remaining = end.since(now);
    if remaining.is_zero() {
        format!("{end} (over)")
    } else {
        format!("{end} (in {})", format_span(remaining.as_secs()))
    }
}

/// Formats the time until an end, for one cell of a table.
pub(super) fn expiry_cell(end: Option<Timestamp>, now: Timestamp) -> String {
    end.map_or_else(|| "never".to_owned(), |end| format_span(end.since(now).as_secs()))
}

/// Prints on standard error that the output is incomplete.
pub(super) fn note_omitted<T>(read: &ReadResponse<T>) {
    if read.filtered_by_acls {
        print_note("the list is incomplete: the token lacks acl:read for some records");
    }
    if read.unreadable {
        print_note("the list is incomplete: the server cannot read some records; see its log");
    }
}

/// Prints a policy's rules or a template's text, indented.
pub(super) fn print_indented(text: &str) {
    strip_control_chars(text).lines().for_each(|line| print_line(format!("  {line}").trim_end()));
}

/// Policies with their rules, as an expanded read gives them.
pub(super) fn policies(policies: &[Policy]) {
    for policy in policies {
        print_line("");
        print_line(&strip_control_chars(&format!("policy {} ({})", policy.name, policy.id)));
        print_indented(&policy.rules);
    }
}
