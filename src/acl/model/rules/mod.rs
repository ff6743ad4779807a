//! Rules of a policy, parsed into validated types.
//!
//! The language is Consul's, in HCL 1 or JSON:
//!
//! ```hcl
//! acl      = "read"                    # ACL objects; also keyring, mesh, operator, peering
//! service "web"        { policy = "write" }
//! service_prefix "web-" { policy = "read" intentions = "deny" }
//! key_prefix "config/" { policy = "list" }
//! namespace "team" {                   # rules for another namespace
//!   acl = "write"
//! }
//! ```
//!
//! [`super::authorize`] defines the scope of each rule. Some rules have less effect than their text suggests:
//!
//! - `operator`, `keyring`, `mesh`, `peering`, and `namespace` and `partition` blocks have no effect in a policy outside of
//!   the namespace `default`.
//! - `policy` in a `namespace` block applies to the namespace itself and grants nothing inside it, as in Consul: `acl = ...`,
//!   `service_prefix "" { ... }` and so on do.
//! - There is one partition, `default`. Blocks for others are validated and have no effect; in a block that matches
//!   `default`, rules outside of a `namespace` block apply to the namespace `default`.

mod labels;
mod parse;

use std::collections::BTreeMap;

pub(super) use self::labels::{Labels, Specificity};
pub(crate) use self::parse::RulesError;

/// Level of a rule; of two rules for the same segment the greater applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Read,
    List,
    Write,
    Deny,
}

/// Resources without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GlobalResource {
    Keyring,
    Mesh,
    Operator,
    Peering,
}

/// Resources with names; a rule covers one name or a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ResourceKind {
    Agent,
    Event,
    Identity,
    /// Intentions of a service: the `intentions` of its rule.
    Intention,
    Key,
    Node,
    Query,
    Service,
    Session,
}

/// Rules of one policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    pub(super) global: BTreeMap<GlobalResource, Level>,
    /// Rules outside of namespace blocks.
    pub(super) top_level: RuleScope,
    /// Namespace blocks, by lower-case name.
    pub(super) namespaces: Labels<RuleScope>,
}

/// Rules that apply in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RuleScope {
    /// Level of `acl`.
    pub(super) acl: Option<Level>,
    /// Level of `policy`, for the namespace itself.
    pub(super) namespace: Option<Level>,
    pub(super) kinds: BTreeMap<ResourceKind, Labels<Level>>,
}

impl Level {
    /// Returns the level as it is written in rules.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Write => "write",
            Self::Deny => "deny",
        }
    }
}

impl GlobalResource {
    /// Returns the key of the rule.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Keyring => "keyring",
            Self::Mesh => "mesh",
            Self::Operator => "operator",
            Self::Peering => "peering",
        }
    }
}

impl ResourceKind {
    /// Returns the name of the kind, which is that of its block but for intentions.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Event => "event",
            Self::Identity => "identity",
            Self::Intention => "intention",
            Self::Key => "key",
            Self::Node => "node",
            Self::Query => "query",
            Self::Service => "service",
            Self::Session => "session",
        }
    }
}

impl Rules {
    /// Parses rules; an empty text has none.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        parse::rules(text)
    }
}

impl Labels<Level> {
    /// Sets the level of a label to the stronger of the old and the new one.
    fn add_stronger(&mut self, exact: bool, label: &str, level: Level) {
        self.add(exact, label, level, |current, level| *current = level.max(*current));
    }
}

impl RuleScope {
    /// Merges another block for the same scope.
    fn merge(&mut self, other: Self) {
        self.acl = self.acl.max(other.acl);
        self.namespace = self.namespace.max(other.namespace);
        for (kind, labels) in other.kinds {
            let own_labels = self.kinds.entry(kind).or_default();
            labels.for_each(|exact, label, level| own_labels.add_stronger(exact, &label, level));
        }
    }
}

#[cfg(test)]
mod tests;
