//! Secrets that are read through a session: renewed while they are used, and published as a credential watch.
//!
//! `reread` and `retry` decide and are pure, as is `agent::leases`; a `renewer` acts for one secret; the `registry` has one
//! for each secret that templates use, and `persisted_secrets` keeps them over a restart.

// 0: schedules and limits
mod metrics;
mod circuit_breaker;
mod pem_blocks;
mod content_end;
mod reread;
mod retry;
mod event;
mod event_reads;
mod event_connection;

// 1: one secret, or one token derived from the session's
mod persisted_secrets;
mod creation_limit;
mod current_derived_token;
mod derived_token;
mod renewer;

// 2: many secrets
mod registry;
mod version_poll;
mod event_subscription;
mod refresh;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

use std::time::Duration;

pub(crate) use self::circuit_breaker::Permit;
pub(crate) use self::content_end::ContentEnd;
pub use self::creation_limit::CreationLimit;
pub(crate) use self::creation_limit::CreationRefusal;
pub(crate) use self::derived_token::describe_failure;
pub use self::derived_token::{DerivedTokenDeps, DerivedTokenManager};
pub use self::event_connection::EventConnection;
pub use self::event_subscription::EventSubscription;
pub use self::metrics::SecretMetrics;
pub(crate) use self::pem_blocks::PemBlock;
pub use self::persisted_secrets::OfflineOptions;
pub use self::refresh::SecretRegistries;
pub(crate) use self::refresh::{RefreshOutcome, RefreshScope, RefreshedSecret};
pub(crate) use self::registry::Subscription;
pub use self::registry::{RegistryWorker, SecretRegistry, SecretRegistryDeps};
pub use self::renewer::{SecretRenewer, SecretRenewerDeps};
pub use self::retry::QuickRetryBudget;
pub(crate) use self::retry::{ReadFailure, RetrySchedule};
pub use self::version_poll::VersionPoll;
pub use crate::server_client::{
    DerivedTokenKind, DerivedTokenOptions, SecretFields, SecretOp, SecretRequest, SecretResponse,
};

/// Options of one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretOptions {
    /// Name in log events and error messages.
    pub name: String,
    /// Label in metrics; never a path.
    pub label: String,
    /// The request that reads it.
    pub request: SecretRequest,
    /// The field that its reader uses.
    pub field: String,
    /// The namespace that it is in; `None` for the root.
    pub namespace: Option<String>,
    /// Time between reads of a secret without a lease.
    pub interval: Duration,
    /// Time between writes whose result tells no end; `None` for never.
    pub rewrite_interval: Option<Duration>,
    /// Time before a replaced lease is revoked: requests under way still use it.
    pub grace: Duration,
}
