//! Why a login gave no token.

use crate::acl::model::azure_identity::Refusal;
use crate::acl::model::binding_rule::BindError;
use crate::acl::model::id::Id;
use crate::acl::service::error::ServiceError;
use crate::acl::service::issuer_keys::KeyError;

/// Why a login gave no token. Holds neither token nor secret.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// No auth method of that name.
    #[error("no such auth method")]
    NoSuchMethod,
    /// The request lacks a field.
    #[error("{0} is required")]
    Missing(&'static str),
    /// No role of that name.
    #[error("invalid role name {0:?}")]
    NoSuchRole(String),
    /// No token.
    #[error("malformed jwt")]
    Malformed,
    /// Signed by another algorithm, or not at all.
    #[error("id token signed with unsupported algorithm, expected {wanted:?} got {found:?}")]
    Algorithm {
        /// By what it may be signed.
        wanted: String,
        /// What it says.
        found: String,
    },
    /// A token that does not say which key signed it.
    #[error("failed to verify signature: the token names no key (kid)")]
    NoKeyId,
    /// No such key, or no keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The signature is wrong.
    #[error("failed to verify signature")]
    Signature,
    /// The signature holds, and the claims have other types than such tokens have.
    #[error("malformed jwt: its claims are not of the types that they should be")]
    Claims,
    /// No stored auth method of that name.
    #[error("ACL not found: auth method {0:?} does not exist")]
    Unknown(String),
    /// No binding rule gives this identity anything.
    #[error("Permission denied")]
    NoBinding,
    /// A binding rule that is about this identity makes no name of what is known of it.
    #[error("binding rule {rule} cannot bind: {reason}")]
    Bind {
        /// The rule.
        rule: Id,
        /// Why not.
        reason: BindError,
    },
    /// The method does not let this identity in.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This side failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
}
