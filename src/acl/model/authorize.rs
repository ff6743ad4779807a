//! Authorization decisions by the rules of a token's policies.
//!
//! 1. Rules outside of all blocks apply in the namespace of the token. `namespace` and `namespace_prefix` blocks apply in
//!    the namespaces that they name, if their policy belongs to `default`.
//! 2. Of all rules that match a resource, the most specific applies: one in a block for the namespace by name (or outside
//!    of all blocks) before one in a `namespace_prefix` block, the longest prefix first; then one for the exact name before
//!    one for its longest prefix. Among equally specific rules of any policies: deny, write, list, read.
//! 3. A namespace's default policies are used only if no rule of the token's own links matches.
//! 4. If none matches either, the server's default policy decides; it never grants `acl`.

mod explain;

use std::sync::Arc;

pub(crate) use explain::{DecidingPolicy, Explanation, Reason};

use super::DEFAULT_NAMESPACE;
use super::id::Id;
use super::rules::{GlobalResource, Labels, Level, ResourceKind, RuleScope, Rules, Specificity};

/// Result of an authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Allowed.
    Allow,
    /// Denied.
    Deny,
}

impl Decision {
    /// Returns true for [`Decision::Allow`].
    pub fn is_allowed(self) -> bool {
        self == Self::Allow
    }
}

/// Access to a resource. Write implies list, and list implies read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read the resource.
    Read,
    /// List all keys with a prefix. For other resources than keys only `write` grants it.
    List,
    /// Create, change or delete the resource.
    Write,
}

/// Resource of a decision. Names are case-sensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// ACL objects: tokens, roles, policies, auth methods, binding rules.
    Acl,
    /// Cluster operations, including namespaces; not namespaced.
    Operator,
    /// Gossip encryption keys; not namespaced.
    Keyring,
    /// Service mesh gateways and configuration; not namespaced. Without a rule, that for `operator` applies.
    Mesh,
    /// Cluster peerings; not namespaced. Without a rule, that for `operator` applies.
    Peering,
    /// The namespace itself. `operator` read grants read and list, and so does a permissive `policy` for the namespace; access
    /// to something inside it does not. Writing requires `operator` write.
    Namespace,
    /// Agent.
    Agent(&'a str),
    /// Event.
    Event(&'a str),
    /// Workload identity.
    Identity(&'a str),
    /// Intentions of a service, or of all services: `*`.
    Intention(&'a str),
    /// Key of the key-value store.
    Key(&'a str),
    /// Node.
    Node(&'a str),
    /// Prepared query.
    Query(&'a str),
    /// Service.
    Service(&'a str),
    /// Session, by its node.
    Session(&'a str),
}

impl<'a> Resource<'a> {
    /// Parses a resource of Consul's authorization API; `None` for an unknown kind.
    pub(crate) fn parse(kind: &str, segment: &'a str) -> Option<Self> {
        Some(match kind {
            "acl" => Self::Acl,
            "operator" => Self::Operator,
            "keyring" => Self::Keyring,
            "mesh" => Self::Mesh,
            "peering" => Self::Peering,
            "namespace" => Self::Namespace,
            "agent" => Self::Agent(segment),
            "event" => Self::Event(segment),
            "identity" => Self::Identity(segment),
            "intention" => Self::Intention(segment),
            "key" => Self::Key(segment),
            "node" => Self::Node(segment),
            "query" => Self::Query(segment),
            "service" => Self::Service(segment),
            "session" => Self::Session(segment),
            _ => return None,
        })
    }
}

/// Decision for resources that no rule covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultPolicy {
    /// Deny everything.
    #[default]
    Deny,
    /// Allow everything except ACL objects.
    Allow,
}

impl DefaultPolicy {
    /// Returns the name in responses.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

/// Rules of a policy that a token links, and the scope of the policy.
#[derive(Debug, Clone)]
pub struct PolicyInScope {
    rules: Arc<Rules>,
    in_default_namespace: bool,
    id: PolicyId,
}

/// Identity of a policy, for explanations of decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyId {
    /// A policy record.
    Stored(Id),
    /// The policy of an identity or a template, by its derived id.
    Synthetic(Arc<str>),
}

impl std::fmt::Display for PolicyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stored(id) => id.fmt(f),
            Self::Synthetic(id) => f.write_str(id),
        }
    }
}

impl PolicyInScope {
    /// Creates the scoped rules of a policy in a namespace.
    pub fn new(namespace: &str, id: PolicyId, rules: Arc<Rules>) -> Self {
        Self { rules, in_default_namespace: namespace.eq_ignore_ascii_case(DEFAULT_NAMESPACE), id }
    }
}

/// Rules and defaults that determine a caller's permissions.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    /// Namespace of the token, in lower case.
    pub own_namespace: String,
    /// Rules of the token's links: policies, roles, identities and templated policies.
    pub direct: Vec<PolicyInScope>,
    /// Rules of the namespace's default links.
    pub defaults: Vec<PolicyInScope>,
    /// Decision if no rule matches.
    pub default_policy: DefaultPolicy,
}

/// Rules that decide about a resource.
#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    Global(GlobalResource),
    Namespace,
    /// Intentions of all services.
    EveryIntention,
    Namespaced(Query<'a>),
}

impl<'a> Resource<'a> {
    fn subject(&self) -> Subject<'a> {
        let (kind, name) = match *self {
            Self::Acl => return Subject::Namespaced(Query::Acl),
            Self::Operator => return Subject::Global(GlobalResource::Operator),
            Self::Keyring => return Subject::Global(GlobalResource::Keyring),
            Self::Mesh => return Subject::Global(GlobalResource::Mesh),
            Self::Peering => return Subject::Global(GlobalResource::Peering),
            Self::Namespace => return Subject::Namespace,
            Self::Agent(name) => (ResourceKind::Agent, name),
            Self::Event(name) => (ResourceKind::Event, name),
            Self::Identity(name) => (ResourceKind::Identity, name),
            Self::Intention("*") => return Subject::EveryIntention,
            Self::Intention(name) => (ResourceKind::Intention, name),
            Self::Key(name) => (ResourceKind::Key, name),
            Self::Node(name) => (ResourceKind::Node, name),
            Self::Query(name) => (ResourceKind::Query, name),
            Self::Service(name) => (ResourceKind::Service, name),
            Self::Session(name) => (ResourceKind::Session, name),
        };
        Subject::Namespaced(Query::Named(kind, true, name))
    }
}

/// Lookup in the rules of a namespace.
#[derive(Debug, Clone, Copy)]
enum Query<'a> {
    Acl,
    Namespace,
    /// Kind, whether the name is exact (else a prefix), and name.
    Named(ResourceKind, bool, &'a str),
}

impl Grants {
    /// Decides an access to a resource in a namespace, given in lower case. The namespace is ignored for resources
    /// without one.
    pub fn decide(&self, resource: &Resource<'_>, access: Access, namespace: &str) -> Decision {
        match resource.subject() {
            Subject::Global(global) => self.decide_global(global, access),
            Subject::Namespace => self.decide_namespace(access, namespace),
            Subject::EveryIntention => {
                let query = self.deciding_intention(access, namespace);
                self.to_decision(query.and_then(|query| self.level(query, namespace)), access)
            }
            Subject::Namespaced(query) => match self.level(query, namespace) {
                None if *resource == Resource::Acl => Decision::Deny,
                level => self.to_decision(level, access),
            },
        }
    }

    fn to_decision(&self, level: Option<Level>, access: Access) -> Decision {
        let allowed = level.map_or(self.default_policy == DefaultPolicy::Allow, |level| level.allows(access));
        if allowed { Decision::Allow } else { Decision::Deny }
    }

    fn decide_global(&self, single: GlobalResource, access: Access) -> Decision {
        let single = self.deciding_resource(single);
        let max_level = |policy: &[PolicyInScope]| {
            let reaching = policy.iter().filter(|policy| policy.in_default_namespace);
            reaching.filter_map(|policy| policy.rules.global.get(&single).copied()).max()
        };
        let direct = max_level(&self.direct);
        let is_decided = direct.is_some() || self.has_direct_global_rule(single);
        self.to_decision(if is_decided { direct } else { max_level(&self.defaults) }, access)
    }

    /// Returns the resource whose rule decides. As in Consul, that is `operator` for `mesh` and `peering` where the policies
    /// have no rule for these: first the direct policies, then the namespace's defaults.
    fn deciding_resource(&self, single: GlobalResource) -> GlobalResource {
        if !matches!(single, GlobalResource::Mesh | GlobalResource::Peering) {
            return single;
        }
        let deciding = [&self.direct, &self.defaults].into_iter().find_map(|policies| {
            let has_rule = |key: &GlobalResource| policies.iter().any(|policy| policy.rules.global.contains_key(key));
            [single, GlobalResource::Operator].into_iter().find(has_rule)
        });
        deciding.unwrap_or(single)
    }

    /// Returns whether a direct policy has a rule for the resource. Outside of `default` it grants nothing, but the
    /// namespace's defaults do not count beside it.
    fn has_direct_global_rule(&self, single: GlobalResource) -> bool {
        self.direct.iter().any(|policy| policy.rules.global.contains_key(&single))
    }

    fn decide_namespace(&self, access: Access, namespace: &str) -> Decision {
        if access == Access::Write {
            return self.decide_global(GlobalResource::Operator, access);
        }
        if self.decide_global(GlobalResource::Operator, Access::Read).is_allowed() {
            return Decision::Allow;
        }
        let level = self.level(Query::Namespace, namespace);
        if level.is_some_and(|level| level.allows(Access::Read)) { Decision::Allow } else { Decision::Deny }
    }

    /// Returns the label of the rule that decides about the intentions of all services, as in Consul: for read access one
    /// that allows it, for other access one that does not; without one, the rule for all names. If there is none either,
    /// the server's default policy decides.
    fn deciding_intention<'a>(&'a self, access: Access, namespace: &'a str) -> Option<Query<'a>> {
        let mut all_names = None;
        for policy in self.direct.iter().chain(&self.defaults) {
            let outside = (self.own_namespace == namespace).then_some(&policy.rules.top_level);
            // Blocks that grant nothing, outside of `default`, keep the namespace's defaults out: see `has_direct_rule`.
            let blocks = policy.rules.namespaces.matching(true, namespace).map(|(_, scope)| scope);
            let scopes = outside.into_iter().chain(blocks);
            let labels = scopes.filter_map(|scope| scope.kinds.get(&ResourceKind::Intention));
            for (exact, label, _) in labels.flat_map(Labels::iter) {
                let query = Query::Named(ResourceKind::Intention, exact, label);
                let is_allowed = self.to_decision(self.level(query, namespace), access).is_allowed();
                if is_allowed == (access == Access::Read) {
                    return Some(query);
                }
                if !exact && label.is_empty() {
                    all_names = Some(query);
                }
            }
        }
        all_names
    }

    fn level(&self, query: Query<'_>, namespace: &str) -> Option<Level> {
        let is_own_namespace = self.own_namespace == namespace;
        let closest = |all: &[PolicyInScope]| {
            all.iter().filter_map(|policy| policy.best_match(query, is_own_namespace, namespace)).max()
        };
        let direct = closest(&self.direct);
        let is_decided = direct.is_some() || self.has_direct_rule(query, namespace);
        if is_decided { direct } else { closest(&self.defaults) }.map(|(.., level)| level)
    }

    /// Returns whether a direct policy has a matching rule in a `namespace` block. See
    /// [`Grants::has_direct_global_rule`].
    fn has_direct_rule(&self, query: Query<'_>, namespace: &str) -> bool {
        let mut blocks = self
            .direct
            .iter()
            .flat_map(|policy| policy.rules.namespaces.matching(true, namespace))
            .map(|(_, scope)| scope);
        blocks.any(|scope| scope.best_match(query).is_some())
    }
}

/// Specificity of the namespace match and of the resource match, and the level. The greatest applies.
type RuleMatch = (Specificity, Specificity, Level);

impl PolicyInScope {
    fn best_match(&self, query: Query<'_>, is_own_namespace: bool, namespace: &str) -> Option<RuleMatch> {
        let ranked = |namespace_match, scope: &RuleScope| {
            scope.best_match(query).map(|(close, level)| (namespace_match, close, level))
        };
        let outside = if is_own_namespace { ranked(Specificity::Exact, &self.rules.top_level) } else { None };
        outside.max(self.blocks(namespace).find_map(|(namespace_match, scope)| ranked(namespace_match, scope)))
    }

    /// Returns the blocks that match a namespace, the most specific first.
    fn blocks<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (Specificity, &'a RuleScope)> {
        self.in_default_namespace.then(|| self.rules.namespaces.matching(true, namespace)).into_iter().flatten()
    }
}

impl RuleScope {
    fn best_match(&self, query: Query<'_>) -> Option<(Specificity, Level)> {
        match query {
            Query::Acl => self.acl.map(|level| (Specificity::Exact, level)),
            Query::Namespace => self.namespace.map(|level| (Specificity::Exact, level)),
            Query::Named(kind, exact, name) => {
                self.kinds.get(&kind)?.matching(exact, name).next().map(|(close, level)| (close, *level))
            }
        }
    }
}

impl Level {
    fn allows(self, access: Access) -> bool {
        let needed = match access {
            Access::Read => Self::Read,
            Access::List => Self::List,
            Access::Write => Self::Write,
        };
        self != Self::Deny && self >= needed
    }
}

#[cfg(test)]
mod tests;
