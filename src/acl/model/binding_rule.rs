//! Binding rule records: links that a login grants.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::go_json::null_is_default;
use super::id::Id;
use super::names::{NamespaceName, is_identity_name, is_policy_or_builtin_name, is_role_name};
use super::templated;
use super::verified_claims::VerifiedClaims;

/// A binding rule as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BindingRuleRecord {
    /// Id.
    pub id: Id,
    /// Namespace.
    pub namespace: NamespaceName,
    /// Description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Name of the auth method; immutable.
    pub auth_method: String,
    /// Id of the auth method; a new method with the same name has another one.
    pub method_id: Id,
    /// Selector of logins; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Target of the rule.
    pub bind: Binding,
}

/// A binding rule to be created, or the new content of one. An update keeps the auth method.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NewBindingRule {
    /// Name of the auth method whose logins it matches; may be empty in an update.
    pub auth_method: String,
    /// Free text for people.
    #[serde(deserialize_with = "null_is_default")]
    pub description: String,
    /// Expression over the caller's claims that selects logins; empty for all.
    #[serde(deserialize_with = "null_is_default")]
    pub selector: String,
    /// Kind of link that the token gets: `service`, `node`, `role`, `policy` or `templated-policy`.
    pub bind_type: String,
    /// Name of the link; may contain `${...}` variables of the caller's claims.
    pub bind_name: String,
    /// Variables of a templated policy.
    #[serde(skip_serializing_if = "has_no_vars")]
    pub bind_vars: Option<Map<String, Value>>,
}

#[expect(clippy::ref_option, reason = "serde gives a field as it is")]
fn has_no_vars(vars: &Option<Map<String, Value>>) -> bool {
    vars.as_ref().is_none_or(Map::is_empty)
}

/// Target of a binding rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Binding {
    /// Type of the target.
    pub kind: BindType,
    /// Name, with placeholders for claims.
    pub name: String,
    /// Variables of a templated policy, with placeholders, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vars: Option<Map<String, Value>>,
}

/// Types of binding targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BindType {
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
    /// Returns the name in requests and responses.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Node => "node",
            Self::Role => "role",
            Self::Policy => "policy",
            Self::TemplatedPolicy => "templated-policy",
        }
    }

    /// Parses a type name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = [Self::Service, Self::Node, Self::Role, Self::Policy, Self::TemplatedPolicy];
        all.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Evaluated target of a rule for one login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BindTarget {
    /// Service identity.
    Service(String),
    /// Node identity in this datacenter.
    Node(String),
    /// Role by name; ignored if it does not exist.
    Role(String),
    /// Policy by name; ignored if it does not exist.
    Policy(String),
    /// Templated policy, and its `name` variable.
    Template(String, Option<String>),
}

/// Error of a rule's target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BindError {
    /// An unclosed or malformed placeholder.
    #[error("{0:?} has a placeholder other than \"${{value.NAME}}\"")]
    Placeholder(String),
    /// A placeholder for a claim that the auth method does not map.
    #[error("${{{name}}} is unknown; available: {available}")]
    Unknown {
        /// Name in the placeholder.
        name: String,
        /// Names that the auth method maps.
        available: String,
    },
    /// The evaluated name is invalid for the type.
    #[error("{0:?} is not a valid name for this BindType")]
    Name(String),
    /// A claim would supply the `/` of a policy's name.
    #[error("a \"/\" in the name of a policy must be in BindName, not in the claim value {0:?}")]
    Slash(String),
    /// No namespace can have the evaluated name.
    #[error("{0:?} is not a valid name for a namespace")]
    Namespace(String),
    /// The templated policy does not exist.
    #[error("templated policy {0:?} does not exist")]
    NoTemplate(String),
    /// The variables do not fit the template, or another type has variables.
    #[error("BindVars must be {{\"Name\": ...}} for a templated policy that takes a name, and must be empty otherwise")]
    Vars,
}

impl Binding {
    /// Validates the target for a method with the claims `claim_names`. An error means that it would fail for every
    /// login.
    pub(crate) fn validate(&self, claim_names: &VerifiedClaims) -> Result<(), BindError> {
        self.bind(&claim_names.with_example_values()).map(drop)
    }

    /// Evaluates the target for a login's claims. Letters A to Z of values are inserted in lower case, as Consul does.
    /// Fails if the evaluated name is invalid for the type.
    pub(crate) fn bind(&self, claims: &VerifiedClaims) -> Result<BindTarget, BindError> {
        if self.kind == BindType::TemplatedPolicy {
            return self.bind_template(claims);
        }
        if self.vars.as_ref().is_some_and(|vars| !vars.is_empty()) {
            return Err(BindError::Vars);
        }
        let name = interpolate(&self.name, self.kind, claims)?;
        let fits = match self.kind {
            BindType::Service | BindType::Node => is_identity_name(&name),
            BindType::Role => is_role_name(&name),
            _ => is_policy_or_builtin_name(&name),
        };
        if !fits {
            return Err(BindError::Name(name.chars().take(128).collect()));
        }
        Ok(match self.kind {
            BindType::Service => BindTarget::Service(name),
            BindType::Node => BindTarget::Node(name),
            BindType::Role => BindTarget::Role(name),
            _ => BindTarget::Policy(name),
        })
    }

    fn bind_template(&self, claims: &VerifiedClaims) -> Result<BindTarget, BindError> {
        let no_template = || BindError::NoTemplate(self.name.chars().take(128).collect());
        let template = templated::find(&self.name).ok_or_else(no_template)?;
        let mut vars = self.vars.iter().flatten();
        let name = match (vars.next(), vars.next()) {
            (None, _) if !template.requires_name() => None,
            (Some((key, Value::String(name))), None)
                if template.requires_name() && key.eq_ignore_ascii_case("name") =>
            {
                let name = interpolate(name, self.kind, claims)?;
                let variables = Map::from_iter([("name".to_owned(), Value::String(name.clone()))]);
                templated::render_for_link(template, &variables)
                    .map_err(|_| BindError::Name(name.chars().take(128).collect()))?;
                Some(name)
            }
            _ => return Err(BindError::Vars),
        };
        Ok(BindTarget::Template(self.name.clone(), name))
    }
}

/// Evaluates the name of a namespace for a login's claims. Fails if no namespace can have the evaluated name.
pub(crate) fn bind_namespace(text: &str, claims: &VerifiedClaims) -> Result<NamespaceName, BindError> {
    let name = interpolate(text, BindType::Role, claims)?;
    name.parse().map_err(|_| BindError::Namespace(name.chars().take(128).collect()))
}

/// Replaces `${value.NAME}` placeholders in a string. `$${` is an escaped `${`.
fn interpolate(text: &str, kind: BindType, claims: &VerifiedClaims) -> Result<String, BindError> {
    let broken = || BindError::Placeholder(text.chars().take(128).collect());
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let prefix = &rest[..at];
        let tail = &rest[at + 2..];
        if let Some(prefix) = prefix.strip_suffix('$') {
            filled.push_str(prefix);
            filled.push_str("${");
            rest = tail;
            continue;
        }
        filled.push_str(prefix);
        let (name, after) = tail.split_once('}').ok_or_else(broken)?;
        let name = name.trim();
        let value = name.strip_prefix("value.").and_then(|name| claims.values.get(name));
        let unknown =
            || BindError::Unknown { name: name.chars().take(128).collect(), available: claims.describe_names() };
        // As in Consul, a claim that the token lacks inserts nothing.
        let value = value.ok_or_else(unknown)?.as_deref().unwrap_or_default();
        // A claim must not choose a built-in policy, or the folder of another team's one.
        if kind == BindType::Policy && value.contains('/') {
            return Err(BindError::Slash(value.chars().take(128).collect()));
        }
        // ASCII only: `to_lowercase` turns U+212A into `k`, so that two identities would get one name.
        filled.push_str(&value.to_ascii_lowercase());
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests;
