//! Binding rules: what a login gives to whom.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::id::Id;
use super::names::{NamespaceName, is_identity_name, is_name, is_role_name};
use super::templated;
use super::verified_claims::Known;

/// A binding rule as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BindingRuleRecord {
    /// Its id.
    pub id: Id,
    /// The namespace it lives in.
    pub namespace: NamespaceName,
    /// Free text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The auth method whose logins it is for, which it keeps.
    pub auth_method: String,
    /// Which method that is: one that is made anew under the same name is another.
    pub method_id: Id,
    /// Which of its logins; all, if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// What they get.
    pub bind: Bind,
}

/// What a login gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bind {
    /// Of what kind.
    pub kind: BindType,
    /// Its name, with places for what is known of the caller.
    pub name: String,
    /// The variables of a templated policy, with such places too; as they were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vars: Option<Map<String, Value>>,
}

/// The kinds of what a login can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BindType {
    /// A service identity.
    Service,
    /// A node identity in this datacenter.
    Node,
    /// A role.
    Role,
    /// A policy.
    Policy,
    /// A templated policy.
    TemplatedPolicy,
}

impl BindType {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Node => "node",
            Self::Role => "role",
            Self::Policy => "policy",
            Self::TemplatedPolicy => "templated-policy",
        }
    }

    /// The kind of that name.
    pub fn named(text: &str) -> Option<Self> {
        let all = [Self::Service, Self::Node, Self::Role, Self::Policy, Self::TemplatedPolicy];
        all.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What a rule gives to one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// A service identity of that name.
    Service(String),
    /// A node identity of that name.
    Node(String),
    /// The role of that name, if there is one.
    Role(String),
    /// The policy of that name, if there is one.
    Policy(String),
    /// A templated policy, and the name to put into it.
    Template(String, Option<String>),
}

/// Why a rule cannot bind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// A place that is never closed, or has something else in it.
    #[error("{0:?} has a place that is not \"${{value.NAME}}\"")]
    Place(String),
    /// A place for what the auth method does not know.
    #[error("${{{name}}} is unknown here; known is {known}")]
    Unknown {
        /// What the place is for.
        name: String,
        /// What it could be for.
        known: String,
    },
    /// What comes of it is no name of that kind.
    #[error("{0:?} is no name of that kind")]
    Name(String),
    /// There is no such templated policy.
    #[error("there is no templated policy {0:?}")]
    NoTemplate(String),
    /// The variables of a templated policy are missing, or it takes none, or nothing of the kind does.
    #[error("BindVars must be {{\"Name\": ...}} for a templated policy that takes a name, and nothing else has them")]
    Vars,
}

impl Bind {
    /// Judges it for a method that knows what `blank` names.
    ///
    /// # Errors
    /// It could not bind whatever the callers' values are.
    pub fn judge(&self, blank: &Known) -> Result<(), BindError> {
        let mut someone = blank.clone();
        someone.values.values_mut().for_each(|value| "someone".clone_into(value));
        self.bind(&someone).map(drop)
    }

    /// What it gives to a caller of whom that is known. Values are put in in lower case.
    ///
    /// # Errors
    /// What comes of it is no name of its kind.
    pub fn bind(&self, known: &Known) -> Result<Bound, BindError> {
        if self.kind == BindType::TemplatedPolicy {
            return self.template(known);
        }
        if self.vars.as_ref().is_some_and(|vars| !vars.is_empty()) {
            return Err(BindError::Vars);
        }
        let name = filled(&self.name, known)?;
        let fits = match self.kind {
            BindType::Service | BindType::Node => is_identity_name(&name),
            BindType::Role => is_role_name(&name),
            _ => is_name(name.strip_prefix("builtin/").unwrap_or(&name)),
        };
        if !fits {
            return Err(BindError::Name(name.chars().take(128).collect()));
        }
        Ok(match self.kind {
            BindType::Service => Bound::Service(name),
            BindType::Node => Bound::Node(name),
            BindType::Role => Bound::Role(name),
            _ => Bound::Policy(name),
        })
    }

    fn template(&self, known: &Known) -> Result<Bound, BindError> {
        let no_template = || BindError::NoTemplate(self.name.chars().take(128).collect());
        let template = templated::find(&self.name).ok_or_else(no_template)?;
        let mut vars = self.vars.iter().flatten();
        let name = match (vars.next(), vars.next()) {
            (None, _) if !template.takes_name() => None,
            (Some((key, Value::String(name))), None) if template.takes_name() && key.eq_ignore_ascii_case("name") => {
                let name = filled(name, known)?;
                let variables = Map::from_iter([("name".to_owned(), Value::String(name.clone()))]);
                templated::render(template, &variables)
                    .map_err(|_| BindError::Name(name.chars().take(128).collect()))?;
                Some(name)
            }
            _ => return Err(BindError::Vars),
        };
        Ok(Bound::Template(self.name.clone(), name))
    }
}

/// A text with its places filled: `${value.NAME}`. `$${` stands for `${`.
fn filled(text: &str, known: &Known) -> Result<String, BindError> {
    let broken = || BindError::Place(text.chars().take(128).collect());
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, place) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = place;
            continue;
        }
        filled.push_str(before);
        let (name, after) = place.split_once('}').ok_or_else(broken)?;
        let name = name.trim();
        let value = name.strip_prefix("value.").and_then(|name| known.values.get(name));
        let unknown = || BindError::Unknown { name: name.chars().take(128).collect(), known: known.names() };
        filled.push_str(&value.ok_or_else(unknown)?.to_lowercase());
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests;
