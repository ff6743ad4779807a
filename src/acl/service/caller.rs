//! Who calls, and what it may do.

use super::error::Denied;
use super::repository::Stored;
use crate::acl::model::authorize::{Access, Decision, Grants, Resource};
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::timestamp::Timestamp;
use crate::acl::model::token::{ANONYMOUS, TokenRecord};

/// A token that counted when it was read.
#[derive(Debug, Clone)]
pub struct Live {
    /// The token.
    pub token: Stored<TokenRecord>,
    /// When it was read.
    pub read: Timestamp,
}

/// Who calls: a token that counts, and what it may do.
#[derive(Debug)]
pub struct Caller {
    /// The token; the anonymous one for a request without a token.
    pub live: Live,
    pub(super) grants: Grants,
}

/// What an operation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
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
    fn parts(self) -> (Resource<'static>, Access, &'static str) {
        match self {
            Self::AclRead => (Resource::Acl, Access::Read, "acl:read"),
            Self::AclWrite => (Resource::Acl, Access::Write, "acl:write"),
            Self::OperatorRead => (Resource::Operator, Access::Read, "operator:read"),
            Self::OperatorWrite => (Resource::Operator, Access::Write, "operator:write"),
        }
    }
}

impl Caller {
    /// The accessor of its token; `None` for the anonymous one.
    pub fn accessor(&self) -> Option<Id> {
        Some(self.live.token.value.birth().accessor_id).filter(|accessor| *accessor != ANONYMOUS)
    }

    /// The namespace of its token.
    pub fn namespace(&self) -> &NamespaceName {
        &self.live.token.value.birth().namespace
    }

    /// Whether it has that privilege in that namespace.
    pub fn has(&self, privilege: Privilege, namespace: &NamespaceName) -> bool {
        let (resource, access, _) = privilege.parts();
        self.may(&resource, access, namespace)
    }

    /// Refuses it without that privilege in that namespace.
    ///
    /// # Errors
    /// It lacks the privilege.
    pub fn require(&self, privilege: Privilege, namespace: &NamespaceName) -> Result<(), Denied> {
        if self.has(privilege, namespace) { Ok(()) } else { Err(self.lacks(privilege.parts().2)) }
    }

    /// What is told to it when it lacks a permission.
    pub fn lacks(&self, permission: &str) -> Denied {
        Denied { accessor: self.accessor(), permission: permission.to_owned(), name: None }
    }

    /// Whether it may do that to a resource in a namespace.
    pub fn may(&self, resource: &Resource<'_>, access: Access, namespace: &NamespaceName) -> bool {
        self.grants.decide(resource, access, &namespace.key()) == Decision::Allow
    }

    /// Whether it may see that a namespace is there.
    pub fn may_see(&self, namespace: &NamespaceName) -> bool {
        self.may(&Resource::Namespace, Access::Read, namespace)
    }
}
