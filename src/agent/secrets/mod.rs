//! Secrets of the server, read through a session: kept good while they are needed, published as a feed.
//!
//! `plan` decides and is pure; `keeper` acts on what it says, for one secret; `store` has a keeper for each that somebody uses,
//! and a `book` of them where they outlive a restart.

// 0: when, how many at once, and what outlives a restart
mod gate;
mod plan;
mod retry;
mod archive;
mod resume;

// 1: one secret, or one token made of the session's
mod book;
mod derived;
mod keeper;

// 2: many
mod store;

// 3: answers for callers of the server's own API
pub mod cache;

use std::time::Duration;

pub use self::archive::{ArchiveError, Persist};
pub use self::book::Offline;
pub use self::derived::{Derive, DerivedKeeper, DerivedParts};
pub use self::gate::{Gate, Pass};
pub use self::keeper::{Parts, SecretKeeper, View};
pub use self::retry::RetryBudget;
pub use self::store::{Keepers, Origin, Store, Subscription};
pub(in crate::agent) use crate::agent::upstream::wipe;
pub use crate::agent::upstream::{ChildOptions, How, SecretAnswer, SecretFields, SecretRequest};

/// A secret to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
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
