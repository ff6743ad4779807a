//! The rules of a policy: what it allows and denies, read once into a form that cannot be wrong.
//!
//! The language is the one of the services that this API is known from, in HCL 1 or JSON:
//!
//! ```hcl
//! acl      = "read"                    # tokens, roles and policies; also keyring, mesh, operator, peering
//! service "web"        { policy = "write" }
//! service_prefix "web-" { policy = "read" intentions = "deny" }
//! key_prefix "config/" { policy = "list" }
//! namespace "team" {                   # what is allowed in another namespace
//!   acl = "write"
//! }
//! ```
//!
//! Where a rule counts, [`super::authorize`] says. Some that may be written here count for less than they seem to:
//!
//! - `operator`, `keyring`, `mesh`, `peering`, and `namespace` and `partition` blocks count for nothing in a policy that
//!   does not live in the namespace `default`.
//! - `policy` in a `namespace` block is about the namespace itself and gives nothing of what is in it, as the language
//!   has it elsewhere: what is allowed within is said by `acl = ...`, `service_prefix "" { ... }` and so on.
//! - There is one partition, `default`. Blocks for others are checked and count for nothing; in one that matches
//!   `default`, what stands outside of a `namespace` block is about the namespace `default`.

mod labels;
mod read;

use std::collections::BTreeMap;

pub(super) use self::labels::{Labels, Specificity};
pub use self::read::{MAX_SIZE, RulesError};

/// What a rule says of a resource. The greater of two is the one that counts, where they are for the same segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Read,
    List,
    Write,
    Deny,
}

/// Resources that the server has one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Single {
    Keyring,
    Mesh,
    Operator,
    Peering,
}

/// Resources that have names, of which rules cover one or all that begin so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Agent,
    Event,
    Identity,
    /// Who may connect to a service: the `intentions` of its rule.
    Intention,
    Key,
    Node,
    Query,
    Service,
    Session,
}

/// The rules of one policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    pub(super) singles: BTreeMap<Single, Level>,
    /// What stands outside of all blocks.
    pub(super) own: Scope,
    /// What is said of namespaces, by their names in lower case.
    pub(super) namespaces: Labels<Scope>,
}

/// What is allowed in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Scope {
    /// Tokens, roles and policies.
    pub(super) acl: Option<Level>,
    /// The namespace itself.
    pub(super) itself: Option<Level>,
    pub(super) kinds: BTreeMap<Kind, Labels<Level>>,
}

impl Rules {
    /// Reads them; an empty text has none.
    ///
    /// # Errors
    /// The text is no HCL, or says something that is no rule.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        read::rules(text)
    }
}

impl Labels<Level> {
    /// Adds what is said of a label; of two words the stronger stays.
    fn raise(&mut self, exact: bool, label: &str, level: Level) {
        self.add(exact, label, level, |mine, level| *mine = level.max(*mine));
    }
}

impl Scope {
    /// Takes in what another block says of the same.
    fn join(&mut self, other: Self) {
        self.acl = self.acl.max(other.acl);
        self.itself = self.itself.max(other.itself);
        for (kind, labels) in other.kinds {
            let mine = self.kinds.entry(kind).or_default();
            labels.into_each(|exact, label, level| mine.raise(exact, &label, level));
        }
    }
}

#[cfg(test)]
mod tests;
