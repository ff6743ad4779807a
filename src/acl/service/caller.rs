//! Authenticated caller and its permissions.

use super::error::Denied;
use super::typed_store::Stored;
use crate::model::authorize::{Access, Decision, Grants, Resource};
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::timestamp::Timestamp;
use crate::model::token::{ANONYMOUS, TokenRecord};

/// A token that was valid when loaded.
#[derive(Debug, Clone)]
pub(crate) struct LiveToken {
    /// Token record.
    pub token: Stored<TokenRecord>,
    /// Wall-clock time at which it was loaded.
    pub read_at: Timestamp,
}

impl LiveToken {
    /// Returns the accessor; `None` for the anonymous token.
    pub(crate) fn accessor(&self) -> Option<Id> {
        Some(self.token.value.immutable().accessor_id).filter(|accessor| *accessor != ANONYMOUS)
    }
}

/// Authenticated caller: a valid token and the rules that apply to it.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Token of the request; the anonymous token if it had none.
    pub live: LiveToken,
    pub(super) grants: Grants,
}

/// Permission that an operation requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// `acl:read`.
    AclRead,
    /// `acl:write`.
    AclWrite,
    /// `operator:read`.
    OperatorRead,
    /// `operator:write`.
    OperatorWrite,
}

impl Privilege {
    fn permission(self) -> (Resource<'static>, Access, &'static str) {
        match self {
            Self::AclRead => (Resource::Acl, Access::Read, "acl:read"),
            Self::AclWrite => (Resource::Acl, Access::Write, "acl:write"),
            Self::OperatorRead => (Resource::Operator, Access::Read, "operator:read"),
            Self::OperatorWrite => (Resource::Operator, Access::Write, "operator:write"),
        }
    }
}

impl Caller {
    /// Returns the accessor of the token; `None` for the anonymous token.
    pub(crate) fn accessor(&self) -> Option<Id> {
        self.live.accessor()
    }

    /// Returns the namespace of the token.
    pub(crate) fn namespace(&self) -> &NamespaceName {
        &self.live.token.value.immutable().namespace
    }

    /// Returns whether the caller has the privilege in a namespace.
    pub(crate) fn has(&self, privilege: Privilege, namespace: &NamespaceName) -> bool {
        let (resource, access, _) = privilege.permission();
        self.is_allowed(&resource, access, namespace)
    }

    /// Checks that the caller has the privilege in a namespace.
    pub(crate) fn require(&self, privilege: Privilege, namespace: &NamespaceName) -> Result<(), Denied> {
        if self.has(privilege, namespace) { Ok(()) } else { Err(self.denied(privilege.permission().2)) }
    }

    /// Builds the error for a missing permission.
    pub(crate) fn denied(&self, permission: &str) -> Denied {
        Denied { accessor: self.accessor(), permission: permission.to_owned(), name: None }
    }

    /// Returns whether the caller's rules allow the access to a resource in a namespace.
    pub(crate) fn is_allowed(&self, resource: &Resource<'_>, access: Access, namespace: &NamespaceName) -> bool {
        self.grants.decide(resource, access, &namespace.key()) == Decision::Allow
    }

    /// Returns whether the caller may see that the namespace exists.
    pub(crate) fn can_see_namespace(&self, namespace: &NamespaceName) -> bool {
        self.is_allowed(&Resource::Namespace, Access::Read, namespace)
    }
}
