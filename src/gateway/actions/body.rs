//! Rules about the JSON:API body of a call.

use std::sync::LazyLock;

use http::Method;
use serde_json::{Map, Value, json};

use super::calls::check_available;
use super::{ApiCall, Finding, MAX_BODY};
use crate::api_changelog::{Change, ChangeSubject, Changelog, GatewayAction, PathTemplate, Route};
use crate::availability::{Availability, ServerInfo};

/// Maximum length of a project's name, in characters.
const MAX_NAME_LENGTH: usize = 40;

/// A change with a rule about bodies.
#[derive(Debug)]
struct Rule {
    change: &'static Change,
    routes: Vec<&'static Route>,
    check: Check,
}

#[derive(Debug)]
enum Check {
    /// The attribute is deprecated; names the alternative.
    Deprecated(&'static str),
    /// The name may be too long.
    Name,
    /// An attribute without default may be missing.
    EnforcementLevel,
    /// The attribute needs the change.
    Attribute,
    /// The changelog's name of the attribute is a mistake, which the platform ignores.
    WrongName,
    /// The module may be for the public registry, which the path does not show.
    PublicModule(PathTemplate),
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let rule = |change: &'static Change| {
        let check = match change.id.as_str() {
            "2024-08-01/1" | "2024-08-01/2" => Check::Deprecated("plan-timeout and apply-timeout"),
            "2023-05-25/3" => Check::Deprecated("enforcement-level"),
            "2024-04-25/1" => Check::Name,
            "2022-11-18/1" => Check::EnforcementLevel,
            "2021-06-08/4" => Check::PublicModule("/organizations/:organization_name/registry-modules".parse().ok()?),
            "2024-10-14/1" => Check::WrongName,
            _ if change.subject == ChangeSubject::Attribute && change.gateway.action == GatewayAction::FeatureCheck => {
                Check::Attribute
            }
            _ => return None,
        };
        let routes = change.endpoints().filter_map(|endpoint| endpoint.route()).collect();
        Some(Rule { change, routes, check })
    };
    Changelog::get().changes().filter_map(rule).collect()
});

/// Returns true if a rule may apply to the call's body. `path` is below the base path.
pub(super) fn may_have_findings(call: ApiCall<'_>, path: &str) -> bool {
    matches!(*call.method, Method::POST | Method::PATCH | Method::PUT)
        && RULES.iter().any(|rule| rule.matches(call, path))
}

/// Evaluates the rules about the call's body.
pub(super) fn findings(call: ApiCall<'_>, path: &str, body: &[u8], server: &ServerInfo) -> Vec<Finding> {
    let rules: Vec<&Rule> = RULES.iter().filter(|rule| rule.matches(call, path)).collect();
    if rules.is_empty() || body.len() > MAX_BODY {
        return Vec::new();
    }
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let empty = Map::new();
    let attributes = match &body["data"] {
        Value::Object(data) => data.get("attributes").and_then(Value::as_object).unwrap_or(&empty),
        _ => return Vec::new(),
    };
    rules.into_iter().filter_map(|rule| rule.evaluate(attributes, server)).collect()
}

impl Rule {
    fn matches(&self, call: ApiCall<'_>, path: &str) -> bool {
        match &self.check {
            Check::PublicModule(template) => call.method == Method::POST && template.matches(path),
            _ => self.routes.iter().any(|route| route.matches(call.method, path, call.query)),
        }
    }

    fn evaluate(&self, attributes: &Map<String, Value>, server: &ServerInfo) -> Option<Finding> {
        let is_unavailable = Availability::for_change(self.change, server) == Availability::Unavailable;
        match &self.check {
            Check::WrongName => {
                let name = self.find_attribute(attributes)?;
                if !self.change.names.iter().any(|wrong| normalize(wrong) == normalize(name)) {
                    return check_available(self.change, server, Some(name), Some(pointer(name)));
                }
                let right = self.change.documentation.aliases.values().flatten().next()?;
                let text = format!("the platform has no attribute {name}; it is {right}");
                Some(Finding { pointer: Some(pointer(name)), ..Finding::warning(self.change, text) })
            }
            Check::Attribute => {
                let name = self.find_attribute(attributes)?;
                check_available(self.change, server, Some(&documented_name(self.change, name)), Some(pointer(name)))
            }
            Check::PublicModule(_) => {
                let (name, value) = attributes.iter().find(|(key, _)| normalize(key) == "registry-name")?;
                (value == "public").then(|| check_available(self.change, server, None, Some(pointer(name)))).flatten()
            }
            // The other rules are about servers that have the change.
            _ if is_unavailable => None,
            Check::Deprecated(alternative) => {
                let name = self.find_attribute(attributes)?;
                let text =
                    format!("the attribute {} is deprecated; use {alternative}", documented_name(self.change, name));
                Some(Finding { pointer: Some(pointer(name)), ..Finding::warning(self.change, text) })
            }
            Check::Name => {
                let length = attributes.get("name")?.as_str()?.chars().count();
                (length > MAX_NAME_LENGTH).then(|| Finding {
                    change: self.change,
                    text: format!("a project's name has at most {MAX_NAME_LENGTH} characters; this one has {length}"),
                    pointer: Some(pointer("name")),
                    code: None,
                    blocking: true,
                })
            }
            Check::EnforcementLevel => {
                let is_set = |value: &Value| !matches!(value, Value::Null) && *value != json!("");
                let has = |name: &str| attributes.iter().any(|(key, value)| normalize(key) == name && is_set(value));
                (!has("enforcement-level") && !has("enforce")).then(|| Finding {
                    change: self.change,
                    text: "a policy needs an enforcement-level; there is no default".to_owned(),
                    pointer: Some("/data/attributes".to_owned()),
                    code: None,
                    blocking: true,
                })
            }
        }
    }

    /// Returns the attribute of the body that the change is about.
    fn find_attribute<'a>(&self, attributes: &'a Map<String, Value>) -> Option<&'a str> {
        attributes.keys().map(String::as_str).find(|key| names_match(self.change, key))
    }
}

/// Converts a name to the platform's spelling.
fn normalize(name: &str) -> String {
    name.replace('_', "-")
}

fn names_match(change: &Change, name: &str) -> bool {
    let name = normalize(name);
    change.spellings().any(|spelling| normalize(&spelling) == name)
}

fn documented_name(change: &Change, name: &str) -> String {
    change.spellings().find(|spelling| normalize(spelling) == normalize(name)).unwrap_or_default()
}

/// Returns the JSON pointer of an attribute; its name is one of the history.
fn pointer(name: &str) -> String {
    format!("/data/attributes/{name}")
}
