//! What is said of a call by its JSON:API body.

use std::sync::LazyLock;

use http::Method;
use serde_json::{Map, Value};

use super::calls::{is_marked, needs};
use super::{Call, Finding, MAX_BODY};
use crate::gateway::api_changelog::{Action, Change, Changelog, Route, Subject, Template};
use crate::gateway::availability::Server;

/// The longest name of a project, in characters.
const LONGEST_NAME: usize = 40;

/// A change that says something of bodies.
#[derive(Debug)]
struct Rule {
    change: &'static Change,
    routes: Vec<&'static Route>,
    check: Check,
}

#[derive(Debug)]
enum Check {
    /// An attribute is no longer to be used; this one is.
    Deprecated(&'static str),
    /// A name may be too long.
    Name,
    /// An attribute without default may be left out.
    EnforcementLevel,
    /// An attribute needs the change.
    Attribute,
    /// A module may be for the public registry, which the endpoint's path does not say.
    PublicModule(Template),
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let rule = |change: &'static Change| {
        let check = match change.id.as_str() {
            "2024-08-01/1" | "2024-08-01/2" => Check::Deprecated("plan-timeout and apply-timeout"),
            "2023-05-25/3" => Check::Deprecated("enforcement-level"),
            "2024-04-25/1" => Check::Name,
            "2022-11-18/1" => Check::EnforcementLevel,
            "2021-06-08/4" => Check::PublicModule("/organizations/:organization_name/registry-modules".parse().ok()?),
            _ if change.subject == Subject::Attribute
                && change.gateway.does == Action::FeatureCheck
                && is_marked(change) =>
            {
                Check::Attribute
            }
            _ => return None,
        };
        let routes = change.endpoints().filter_map(|endpoint| endpoint.route()).collect();
        Some(Rule { change, routes, check })
    };
    Changelog::get().changes().filter_map(rule).collect()
});

/// Whether something may be said of the call's body. `path` is below the base path.
pub(super) fn reads(call: Call<'_>, path: &str) -> bool {
    matches!(*call.method, Method::POST | Method::PATCH | Method::PUT)
        && RULES.iter().any(|rule| rule.is_about(call, path))
}

/// What is said of the call's body.
pub(super) fn findings(call: Call<'_>, path: &str, body: &[u8], server: &Server) -> Vec<Finding> {
    let rules: Vec<&Rule> = RULES.iter().filter(|rule| rule.is_about(call, path)).collect();
    if rules.is_empty() || body.len() > MAX_BODY {
        return Vec::new();
    }
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let nothing = Map::new();
    let attributes = match &body["data"] {
        Value::Object(data) => data.get("attributes").and_then(Value::as_object).unwrap_or(&nothing),
        _ => return Vec::new(),
    };
    rules.into_iter().filter_map(|rule| rule.judge(attributes, server)).collect()
}

impl Rule {
    fn is_about(&self, call: Call<'_>, path: &str) -> bool {
        match &self.check {
            Check::PublicModule(template) => call.method == Method::POST && template.fits(path),
            _ => self.routes.iter().any(|route| route.takes(call.method, path, call.query)),
        }
    }

    fn judge(&self, attributes: &Map<String, Value>, server: &Server) -> Option<Finding> {
        match &self.check {
            Check::Deprecated(instead) => {
                let name = self.given(attributes)?;
                let text = format!("the attribute {} is deprecated; use {instead}", as_known(self.change, name));
                Some(Finding { pointer: Some(pointer(name)), ..Finding::warning(self.change, text) })
            }
            Check::Name => {
                let length = attributes.get("name")?.as_str()?.chars().count();
                (length > LONGEST_NAME).then(|| Finding {
                    change: self.change,
                    text: format!("a project's name has at most {LONGEST_NAME} characters; this one has {length}"),
                    pointer: Some(pointer("name")),
                    refusable: true,
                })
            }
            Check::EnforcementLevel => {
                let has = |name: &str| attributes.keys().any(|key| plain(key) == name);
                (!has("enforcement-level") && !has("enforce")).then(|| Finding {
                    change: self.change,
                    text: "a policy needs an enforcement-level; there is no default".to_owned(),
                    pointer: Some("/data/attributes".to_owned()),
                    refusable: true,
                })
            }
            Check::Attribute => {
                let name = self.given(attributes)?;
                needs(self.change, server, Some(pointer(name)))
            }
            Check::PublicModule(_) => {
                let (name, value) = attributes.iter().find(|(key, _)| plain(key) == "registry-name")?;
                (value == "public").then(|| needs(self.change, server, Some(pointer(name)))).flatten()
            }
        }
    }

    /// The attribute of the body that the change is about.
    fn given<'a>(&self, attributes: &'a Map<String, Value>) -> Option<&'a str> {
        attributes.keys().map(String::as_str).find(|key| is_of(self.change, key))
    }
}

/// A name in the spelling of the platform.
fn plain(name: &str) -> String {
    name.replace('_', "-")
}

fn is_of(change: &Change, name: &str) -> bool {
    let name = plain(name);
    change.spellings().any(|known| plain(&known) == name)
}

fn as_known(change: &Change, name: &str) -> String {
    change.spellings().find(|known| plain(known) == plain(name)).unwrap_or_default()
}

/// Where an attribute stands. Its name is one that the history knows.
fn pointer(name: &str) -> String {
    format!("/data/attributes/{name}")
}
