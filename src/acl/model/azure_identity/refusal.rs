//! Why an identity is not let in.

use super::Audience;

/// Why an identity was not let in. The words are those that agents for such servers know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another issuer.
    #[error("id token issued by a different provider, expected {wanted:?} got {found:?}")]
    Issuer {
        /// Whom we trust.
        wanted: String,
        /// What the token says.
        found: String,
    },
    /// Another audience.
    #[error("expected audience {wanted:?} got {found}")]
    Audience {
        /// Whom tokens must be for.
        wanted: String,
        /// What the token says.
        found: Audience,
    },
    /// No `exp`.
    #[error("the token has no exp claim: one that never ends is not taken")]
    NoEnd,
    /// It has ended.
    #[error("token is expired (Token Expiry: {end})")]
    Expired {
        /// Its end, in seconds since 1970.
        end: u64,
    },
    /// It has not started.
    #[error("current time {now} before the nbf (not before) time: {start}")]
    NotYet {
        /// Its start, in seconds since 1970.
        start: u64,
        /// Our time, in seconds since 1970.
        now: u64,
    },
    /// No `exp`, and nothing to reckon one from.
    #[error("the token has none of the claims exp, nbf and iat: when it ends cannot be told")]
    NoTimes,
    /// An audience, and none is expected.
    #[error("audience claim found in JWT but no audiences are bound")]
    NoAudiences,
    /// A claim of another type than it must have.
    #[error("the claim {name:?} is not of the type that it should be")]
    Claim {
        /// Which.
        name: String,
    },
    /// No `oid`.
    #[error("the token has no oid claim: it names no principal")]
    NoPrincipal,
    /// The claims name two machines.
    #[error("xms_az_rid and xms_mirid name two different machines")]
    TwoMachines,
    /// The role is bound to machines, and the claims name none.
    #[error("xms_az_rid and xms_mirid claims are missing from token, or name no machine, and the role is bound to one")]
    NoMachine,
    /// A field of the request differs from the claims.
    #[error("{field} differs from what the token says")]
    Differs {
        /// The field.
        field: &'static str,
    },
    /// Not this principal.
    #[error("service principal not authorized")]
    Principal,
    /// Not this subscription.
    #[error("subscription not authorized")]
    Subscription,
    /// Not this resource group.
    #[error("resource group not authorized")]
    ResourceGroup,
    /// Not this scale set, or none that the claims name.
    #[error("scale set not authorized")]
    ScaleSet,
    /// Not this machine.
    #[error("virtual machine not authorized")]
    VirtualMachine,
}
