//! Errors of verifying an identity's claims.

use super::Audience;

/// Error of verifying claims, in the wording of Vault's auth plugins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimsError {
    /// The issuer differs.
    #[error("id token issued by a different provider, expected {expected:?} got {found:?}")]
    Issuer {
        /// Trusted issuer.
        expected: String,
        /// Value of the token.
        found: String,
    },
    /// The audience differs.
    #[error("expected audience {expected:?} got {found}")]
    Audience {
        /// Accepted audiences.
        expected: String,
        /// Value of the token.
        found: Audience,
    },
    /// `exp` is missing.
    #[error("the token has no exp claim: tokens without expiration are not accepted")]
    MissingExpiration,
    /// The token has expired.
    #[error("token is expired (Token Expiry: {end})")]
    Expired {
        /// Expiration, in seconds since 1970.
        end: u64,
    },
    /// The token is not valid yet.
    #[error("current time {now} before the nbf (not before) time: {start}")]
    NotYetValid {
        /// Start, in seconds since 1970.
        start: u64,
        /// Server time, in seconds since 1970.
        now: u64,
    },
    /// `exp`, `nbf` and `iat` are missing.
    #[error("the token has none of the claims exp, nbf and iat, so its expiration is unknown")]
    MissingTimes,
    /// The token has an audience, but none is configured.
    #[error("audience claim found in JWT but no audiences are bound")]
    NoAudiences,
    /// A claim has the wrong type.
    #[error("the claim {name:?} has the wrong type")]
    Claim {
        /// Name of the claim.
        name: String,
    },
    /// `oid` is missing.
    #[error("the token has no oid claim, which names the principal")]
    NoPrincipal,
    /// The claims name two different machines.
    #[error("xms_az_rid and xms_mirid name two different machines")]
    ConflictingMachines,
    /// The role is bound to machines, but the claims name none.
    #[error("xms_az_rid and xms_mirid claims are missing from token or name no machine, but the role requires one")]
    NoMachine,
    /// A request field differs from the claims.
    #[error("{field} differs from the token's claim")]
    FieldMismatch {
        /// Name of the field.
        field: &'static str,
    },
    /// The principal is not in the bound list.
    #[error("service principal not authorized")]
    Principal,
    /// The subscription is not in the bound list.
    #[error("subscription not authorized")]
    Subscription,
    /// The resource group is not in the bound list.
    #[error("resource group not authorized")]
    ResourceGroup,
    /// The scale set is not in the bound list, or the claims name none.
    #[error("scale set not authorized")]
    ScaleSet,
    /// The virtual machine is not in the bound list.
    #[error("virtual machine not authorized")]
    VirtualMachine,
}
