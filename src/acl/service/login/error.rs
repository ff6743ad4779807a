//! Errors of a login.

use crate::model::aws_identity::AwsError;
use crate::model::azure_identity::ClaimsError;
use crate::model::binding_rule::BindError;
use crate::model::google_identity::GoogleClaimsError;
use crate::model::id::Id;
use crate::model::kubernetes_identity::KubernetesError;
use crate::model::oidc::{IdTokenError, OidcError};
use crate::service::error::ServiceError;
use crate::service::issuer_keys::IssuerKeyError;

/// Errors of a login.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The auth method is not configured.
    #[error("no such auth method")]
    NoSuchMethod,
    /// A required field is missing.
    #[error("{0} is required")]
    Missing(&'static str),
    /// The method has no such role.
    #[error("invalid role name {0:?}")]
    NoSuchRole(String),
    /// The token is not a JWT.
    #[error("malformed jwt")]
    Malformed,
    /// Unsupported signature algorithm, or none.
    #[error("id token signed with unsupported algorithm, expected {expected:?} got {found:?}")]
    Algorithm {
        /// Supported algorithms.
        expected: String,
        /// Algorithm of the token header.
        found: String,
    },
    /// The token header has no key id.
    #[error("failed to verify signature: the token names no key (kid)")]
    NoKeyId,
    /// Key lookup failed.
    #[error(transparent)]
    Key(#[from] IssuerKeyError),
    /// The signature is invalid.
    #[error("failed to verify signature")]
    Signature,
    /// The signature is valid, but claims have unexpected types.
    #[error("malformed jwt: claims have wrong types")]
    Claims,
    /// The stored auth method does not exist.
    #[error("ACL not found: auth method {0:?} not found")]
    Unknown(String),
    /// No binding rule grants anything to this identity.
    #[error("Permission denied")]
    NoBinding,
    /// A matching binding rule cannot be evaluated for this identity.
    #[error("binding rule {rule} cannot bind: {reason}")]
    Bind {
        /// Id of the rule.
        rule: Id,
        /// Cause.
        reason: BindError,
    },
    /// The namespace rule that matches this identity names no namespace.
    #[error("a namespace rule cannot bind: {reason}")]
    BindNamespace {
        /// Cause.
        reason: String,
    },
    /// The claims do not meet the method's rules.
    #[error(transparent)]
    Refused(#[from] ClaimsError),
    /// The claims of a token of Google do not meet the role's bounds.
    #[error(transparent)]
    Google(#[from] GoogleClaimsError),
    /// The signed request, or the principal that AWS names, is refused; or AWS cannot be asked.
    #[error(transparent)]
    Aws(#[from] AwsError),
    /// The cluster refuses the service account's token, or cannot be asked.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    /// A login with a browser cannot begin or end.
    #[error(transparent)]
    Oidc(#[from] OidcError),
    /// The service failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl From<IdTokenError> for LoginError {
    fn from(error: IdTokenError) -> Self {
        match error {
            IdTokenError::Oidc(error) => error.into(),
            IdTokenError::Claims(error) => error.into(),
        }
    }
}
