//! Secrets of the server, read through a session: kept good while they are needed, published as a feed.
//!
//! `plan` decides and is pure; `keeper` acts on what it says.

mod plan;
mod keeper;

use std::time::Duration;

pub use crate::agent::upstream::SecretFields;
pub use keeper::{Parts, SecretKeeper, View};

/// A secret to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What it is called in logs, metrics and health.
    pub name: String,
    /// Its path, without `/v1/`: `terraform/creds/ROLE`, `secret/data/PATH`.
    pub path: String,
    /// The field that is wanted of it.
    pub field: String,
    /// The namespace of the server that it is in; `None` for the root.
    pub namespace: Option<String>,
    /// How often a secret without a lease is looked at.
    pub interval: Duration,
    /// How long a lease that was replaced is kept before it is given back: requests under way still use it.
    pub grace: Duration,
}
