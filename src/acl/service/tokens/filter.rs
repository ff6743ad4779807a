//! Filter of token lists.

use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::token::TokenRecord;

/// Filter of token lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenFilter {
    /// All tokens.
    All,
    /// Tokens that link the policy; none if the id is `None`.
    Policy(Option<Id>),
    /// Tokens that have the role; none if the id is `None`.
    Role(Option<Id>),
    /// Tokens with a service identity of that name.
    Service(String),
    /// Tokens that an auth method created.
    Method {
        /// Name of the method.
        name: String,
        /// Namespace of the method; any if `None`.
        namespace: Option<NamespaceName>,
    },
}

impl TokenFilter {
    /// Returns whether a token passes the filter.
    pub(crate) fn matches(&self, token: &TokenRecord) -> bool {
        match self {
            Self::All => true,
            Self::Policy(id) => id.is_some_and(|id| token.links.policies.contains(&id)),
            Self::Role(id) => id.is_some_and(|id| token.roles.contains(&id)),
            Self::Service(name) => token.links.service_identities.iter().any(|identity| identity.service_name == *name),
            Self::Method { name, namespace } => token.immutable().login.as_ref().is_some_and(|login| {
                login.auth_method == *name && namespace.as_ref().is_none_or(|namespace| login.namespace == *namespace)
            }),
        }
    }
}
