//! Mints platform tokens with a parent token, for the gateway's own use. Each has a limited lifetime: the next one is
//! minted before it expires, and the previous one is deleted after a grace period.
//!
//! There are two kinds. Team, agent pool and user tokens: any number, identified by description. Organization and legacy
//! team tokens: one per owner; minting another revokes it at once.
//!
//! A module names only modules above it in this list.

// 0: owners, descriptions, the lock, and the schedule
mod owner;
mod description;
mod lock;
mod plan;

// 1: the platform's token API
mod token_api;

// 2: deletion of replaced and orphaned tokens
mod token_cleanup;

// 3: the task that keeps a token fresh
mod minter;

use std::path::PathBuf;
use std::time::Duration;

use keyward_http::client::{BuildError, ProxyMode};
use keyward_machine::clock::Clock;
use keyward_telemetry::health::HealthHandle;
use url::Url;

pub use minter::Minter;
pub use owner::TokenOwner;

/// Settings of minted tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MintOptions {
    /// File of the parent token; read for each call.
    pub parent_token_file: PathBuf,
    /// Owner and kind of the tokens.
    pub owner: TokenOwner,
    /// Lifetime of each token.
    pub ttl: Duration,
    /// Time that a replaced token stays valid. Has no effect for owners with a single token.
    pub grace: Duration,
}

/// Handles to the rest of the process that a [`Minter`] needs.
#[derive(Debug)]
pub struct MinterDependencies {
    /// The platform: `https://HOST`, or `http://` on loopback.
    pub upstream: Url,
    /// PEM file of the CA bundle to use instead of the system store.
    pub ca_file: Option<PathBuf>,
    /// Proxy to the platform.
    pub proxy: ProxyMode,
    /// File of the gateway's local token: locks are kept beside it, and its path identifies the gateway on this
    /// machine.
    pub local_token_file: PathBuf,
    /// Time source.
    pub clock: Clock,
    /// Health of the token.
    pub health: HealthHandle,
}

/// Error of [`Minter::new`].
#[derive(Debug, thiserror::Error)]
pub enum MinterError {
    /// The client of the platform cannot be built.
    #[error("the platform cannot be called")]
    Client(#[from] BuildError),
    /// The lock file cannot be opened.
    #[error("the lock {} cannot be opened", path.display())]
    Lock {
        /// Path of the lock file.
        path: PathBuf,
        /// Underlying error.
        source: std::io::Error,
    },
}
