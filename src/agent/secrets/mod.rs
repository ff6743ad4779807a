//! Secrets of the server, read through a session: kept good while they are needed, published as a watch.
//!
//! `plan` decides and is pure; `keeper` acts on what it says, for one secret; `store` has a keeper for each that somebody uses,
//! and a `persisted` of them where they outlive a restart.

// 0: when, how many at once, and what outlives a restart
mod circuit_breaker;
mod lease;
mod retry;
mod encrypted_file;
mod snapshot_format;

// 1: one secret, or one token made of the session's
mod persisted_secrets;
mod derived_token;
mod renewer;

// 2: many
mod registry;

// 3: answers for callers of the server's own API
pub mod cache;

use std::time::Duration;

pub use self::circuit_breaker::{CircuitBreaker, Permit};
pub use self::derived_token::{DerivedTokenDeps, DerivedTokenKind, DerivedTokenManager};
pub use self::encrypted_file::{EncryptedFileError, PersistOptions};
pub use self::persisted_secrets::OfflineOptions;
pub use self::registry::{RegistryWorker, SecretRegistry, SecretRegistryDeps, Subscription};
pub use self::renewer::{Projection, SecretRenewer, SecretRenewerDeps};
pub use self::retry::RetryBudget;
pub(in crate::agent) use crate::agent::server_client::zeroize_json;
pub use crate::agent::server_client::{DerivedTokenOptions, SecretFields, SecretOp, SecretRequest, SecretResponse};

/// A secret to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretOptions {
    /// What it is called in logs and reasons.
    pub name: String,
    /// What it is called in metrics; never a path.
    pub label: String,
    /// How it is asked for.
    pub request: SecretRequest,
    /// The field that is wanted of it.
    pub field: String,
    /// The namespace of the server that it is in; `None` for the root.
    pub namespace: Option<String>,
    /// How often a secret without a lease is looked at.
    pub interval: Duration,
    /// How long a lease that was replaced is kept before it is given back: requests under way still use it.
    pub grace: Duration,
}
