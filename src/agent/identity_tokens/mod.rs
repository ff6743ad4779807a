//! Tokens of the machine's identity for tools that speak a cloud's own protocol: one for each listed resource, replaced before its end.
//!
//! A token is requested when the agent starts and then once in its lifetime, whoever asks for it: requests of tools only read it.

// 0: decisions
mod metrics;
mod resource;
mod schedule;

// 1: the tokens, and what keeps them
mod health;
mod tokens;
mod fetch;
mod keeper;

pub use fetch::try_token;
pub use keeper::{IdentityTokenDeps, IdentityTokenKeeper};
pub use metrics::IdentityTokenMetrics;
pub(crate) use tokens::RoleCredentials;
pub use tokens::{IdentityTokens, NoIdentityToken};

use crate::identity::{AwsRoleOptions, IdentityTokenOrigin};

/// Options of an identity for tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityTokenOptions {
    /// Name of its section.
    pub name: String,
    /// Resources (audiences) that tools may get tokens for, byte for byte as they are requested.
    pub resources: Vec<String>,
    /// Identity of the machine.
    pub origin: IdentityTokenOrigin,
    /// Role of AWS whose credentials tools may get.
    pub aws_role: Option<AwsRoleOptions>,
    /// True if readiness depends on its tokens.
    pub required: bool,
}
