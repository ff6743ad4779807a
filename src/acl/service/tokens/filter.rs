//! Which tokens a list is about.

use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::token::TokenRecord;

/// Which tokens a list is about. What a token has through its roles does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenFilter {
    /// All of them.
    All,
    /// Those that link the policy of that id; none, where the id is none.
    Policy(Option<Id>),
    /// Those that have the role of that id; none, where the id is none.
    Role(Option<Id>),
    /// Those with a service identity of that name.
    Service(String),
    /// Those that an auth method made.
    Method {
        /// Its name.
        name: String,
        /// Where it lives; anywhere if it is not said.
        namespace: Option<NamespaceName>,
    },
}

impl TokenFilter {
    /// Whether it lets a token through.
    pub fn admits(&self, token: &TokenRecord) -> bool {
        match self {
            Self::All => true,
            Self::Policy(id) => id.is_some_and(|id| token.links.policies.contains(&id)),
            Self::Role(id) => id.is_some_and(|id| token.roles.contains(&id)),
            Self::Service(name) => token.links.service_identities.iter().any(|it| it.service_name == *name),
            Self::Method { name, namespace } => token.birth().login.as_ref().is_some_and(|login| {
                login.auth_method == *name && namespace.as_ref().is_none_or(|namespace| login.namespace == *namespace)
            }),
        }
    }
}
