//! What a caller may do, by the rules of the policies that its token carries.
//!
//! 1. Rules outside of all blocks count in the namespace of the token. `namespace` and `namespace_prefix` blocks count in
//!    the namespaces they name, if their policy lives in `default`.
//! 2. Of all rules that fit a resource, the closest counts: one in a block for the namespace by name (or outside of all
//!    blocks) before one in a `namespace_prefix` block, the longest prefix first; then one for the segment by name before
//!    one for its longest prefix. Among the equally close, whichever policy they are from: deny, write, list, read.
//! 3. A namespace's default policies are asked only where no rule of the token's own links fits.
//! 4. Where none of these does either, the server's default decides; it never gives what `acl` would.

use std::sync::Arc;

use super::DEFAULT_NAMESPACE;
use super::rules::{Kind, Level, Rules, Scope, Single, Specificity};

/// Whether something may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

impl Decision {
    /// Whether it may be done.
    pub fn is_allowed(self) -> bool {
        self == Self::Allow
    }
}

/// What is to be done with a resource. Who may write may list, and who may list may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// See it.
    Read,
    /// See all keys that begin so. Of other resources than keys it is given by `write` alone.
    List,
    /// Make, change or delete it.
    Write,
}

/// What a decision is about. The segments are names, as they are in rules: exact as to case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// Tokens, roles, policies and what makes them.
    Acl,
    /// The server as a whole, namespaces included; in no namespace.
    Operator,
    /// The keys that servers encrypt their gossip with; in no namespace.
    Keyring,
    /// The gateways and settings of a service mesh; in no namespace.
    Mesh,
    /// Peerings of clusters; in no namespace.
    Peering,
    /// The namespace itself. Whoever may read the operator may read and list it, and so may whoever has a `policy` for it
    /// that gives something or, without one, any access to anything in it. To write it needs to write the operator.
    Namespace,
    /// An agent.
    Agent(&'a str),
    /// An event.
    Event(&'a str),
    /// A workload's identity.
    Identity(&'a str),
    /// Who may connect to a service.
    Intention(&'a str),
    /// A key of the key-value store.
    Key(&'a str),
    /// A node.
    Node(&'a str),
    /// A prepared query.
    Query(&'a str),
    /// A service.
    Service(&'a str),
    /// A session, by its node.
    Session(&'a str),
}

impl<'a> Resource<'a> {
    /// The resource of that kind, as the authorization call of such services names it; `None` if there is no such kind.
    pub fn named(kind: &str, segment: &'a str) -> Option<Self> {
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

/// What is allowed where no rule says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultPolicy {
    /// Nothing.
    #[default]
    Deny,
    /// Everything but tokens, roles and policies.
    Allow,
}

impl DefaultPolicy {
    /// How it is called in answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

/// A policy's rules as a token carries them.
#[derive(Debug, Clone)]
pub struct Carried {
    rules: Arc<Rules>,
    reaches_out: bool,
}

impl Carried {
    /// The rules of a policy that lives in that namespace.
    pub fn new(namespace: &str, rules: Arc<Rules>) -> Self {
        Self { rules, reaches_out: namespace.eq_ignore_ascii_case(DEFAULT_NAMESPACE) }
    }
}

/// All that decides what one caller may do.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    /// The namespace of its token, in lower case.
    pub own_namespace: String,
    /// The rules that its token links: policies, those of its roles, and those that its identities and templates make.
    pub direct: Vec<Carried>,
    /// The rules that its namespace gives to every token.
    pub defaults: Vec<Carried>,
    /// What is allowed where none of them says anything.
    pub default_policy: DefaultPolicy,
}

/// A question to the rules of a namespace.
#[derive(Debug, Clone, Copy)]
enum Question<'a> {
    Acl,
    Itself,
    /// Of a kind, by name; or all that begin so, if it is not exact.
    Of(Kind, bool, &'a str),
}

impl Grants {
    /// Whether the caller may do that with the resource in that namespace, which is given in lower case. For resources
    /// that are in no namespace, any will do.
    pub fn decide(&self, resource: &Resource<'_>, access: Access, namespace: &str) -> Decision {
        let question = match *resource {
            Resource::Acl => Question::Acl,
            Resource::Operator => return self.single(Single::Operator, access),
            Resource::Keyring => return self.single(Single::Keyring, access),
            Resource::Mesh => return self.single(Single::Mesh, access),
            Resource::Peering => return self.single(Single::Peering, access),
            Resource::Namespace => return self.namespace(access, namespace),
            Resource::Agent(name) => Question::Of(Kind::Agent, true, name),
            Resource::Event(name) => Question::Of(Kind::Event, true, name),
            Resource::Identity(name) => Question::Of(Kind::Identity, true, name),
            Resource::Intention(name) => Question::Of(Kind::Intention, true, name),
            Resource::Key(name) => Question::Of(Kind::Key, true, name),
            Resource::Node(name) => Question::Of(Kind::Node, true, name),
            Resource::Query(name) => Question::Of(Kind::Query, true, name),
            Resource::Service(name) => Question::Of(Kind::Service, true, name),
            Resource::Session(name) => Question::Of(Kind::Session, true, name),
        };
        match self.level(question, namespace) {
            None if *resource == Resource::Acl => Decision::Deny,
            level => self.judge(level, access),
        }
    }

    fn judge(&self, level: Option<Level>, access: Access) -> Decision {
        let allowed = level.map_or(self.default_policy == DefaultPolicy::Allow, |level| level.gives(access));
        if allowed { Decision::Allow } else { Decision::Deny }
    }

    fn single(&self, single: Single, access: Access) -> Decision {
        let said = |carried: &[Carried]| {
            let reaching = carried.iter().filter(|carried| carried.reaches_out);
            reaching.filter_map(|carried| carried.rules.singles.get(&single).copied()).max()
        };
        self.judge(said(&self.direct).or_else(|| said(&self.defaults)), access)
    }

    fn namespace(&self, access: Access, namespace: &str) -> Decision {
        if access == Access::Write {
            return self.single(Single::Operator, access);
        }
        if self.single(Single::Operator, Access::Read).is_allowed() {
            return Decision::Allow;
        }
        let given = match self.level(Question::Itself, namespace) {
            Some(level) => level.gives(Access::Read),
            None => self.gives_anything_in(namespace),
        };
        if given { Decision::Allow } else { Decision::Deny }
    }

    /// Whether some rule gives access to something in a namespace, and no other takes it away again.
    fn gives_anything_in(&self, namespace: &str) -> bool {
        let gives = |question| self.level(question, namespace).is_some_and(|level| level.gives(Access::Read));
        gives(Question::Acl)
            || self.direct.iter().chain(&self.defaults).any(|carried| {
                let outside = (self.own_namespace == namespace).then_some(&carried.rules.own);
                outside.into_iter().chain(carried.blocks(namespace).map(|(_, scope)| scope)).any(|scope| {
                    scope.kinds.iter().any(|(kind, labels)| {
                        labels.each().any(|(exact, label, level)| {
                            level.gives(Access::Read) && gives(Question::Of(*kind, exact, label))
                        })
                    })
                })
            })
    }

    fn level(&self, question: Question<'_>, namespace: &str) -> Option<Level> {
        let own = self.own_namespace == namespace;
        let closest = |all: &[Carried]| all.iter().filter_map(|carried| carried.answer(question, own, namespace)).max();
        closest(&self.direct).or_else(|| closest(&self.defaults)).map(|(.., level)| level)
    }
}

/// How closely something was said of a namespace, how closely of a resource in it, and what. The greatest counts.
type Answer = (Specificity, Specificity, Level);

impl Carried {
    fn answer(&self, question: Question<'_>, own: bool, namespace: &str) -> Option<Answer> {
        let told = |near, scope: &Scope| scope.answer(question).map(|(close, level)| (near, close, level));
        let outside = if own { told(Specificity::Exact, &self.rules.own) } else { None };
        outside.max(self.blocks(namespace).find_map(|(near, scope)| told(near, scope)))
    }

    /// The blocks that count in a namespace, the closest first.
    fn blocks<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (Specificity, &'a Scope)> {
        self.reaches_out.then(|| self.rules.namespaces.fitting(true, namespace)).into_iter().flatten()
    }
}

impl Scope {
    fn answer(&self, question: Question<'_>) -> Option<(Specificity, Level)> {
        match question {
            Question::Acl => self.acl.map(|level| (Specificity::Exact, level)),
            Question::Itself => self.itself.map(|level| (Specificity::Exact, level)),
            Question::Of(kind, exact, name) => {
                self.kinds.get(&kind)?.fitting(exact, name).next().map(|(close, level)| (close, *level))
            }
        }
    }
}

impl Level {
    fn gives(self, access: Access) -> bool {
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
