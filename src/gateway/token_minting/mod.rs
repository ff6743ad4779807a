//! Tokens of the platform that the gateway makes for itself, with a parent token that may make tokens. Each lives for a while:
//! the next one is made before it ends, and the one before is ended after a time of grace.
//!
//! The platform has two sorts. Of some an owner has any number, told apart by description: many gateways keep theirs side by
//! side. Of the others an owner has one, and making another ends it at once, wherever it is in use.
//!
//! A module names only modules above it in this list.

// 0: who owns a token, by what it is told apart, who may make it, and when
mod owner;
mod description;
mod lock;
mod plan;

// 1: the platform's API of tokens
mod token_api;

// 2: what is to end
mod token_cleanup;

// 3: what keeps one
mod minter;

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::clock::Clock;
use crate::health::HealthHandle;
use crate::http::client::{BuildError, ProxyMode};

pub use minter::Minter;
pub use owner::TokenOwner;

/// How tokens are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MintOptions {
    /// The file of the token that may make tokens; it is read for each call.
    pub parent_token_file: PathBuf,
    /// Whose tokens, and of which kind.
    pub owner: TokenOwner,
    /// How long each lives.
    pub ttl: Duration,
    /// How long a token that was replaced stays good. It has no meaning where there is but one.
    pub grace: Duration,
}

/// What a [`Minter`] works with.
#[derive(Debug)]
pub struct MinterDependencies {
    /// The platform: `https://HOST`, or `http://` on loopback.
    pub upstream: Url,
    /// PEM file of certificates to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// The proxy on the way there.
    pub proxy: ProxyMode,
    /// The file of the gateway's local token: locks are kept beside it, and it tells one gateway of a machine from another.
    pub local_token_file: PathBuf,
    /// Where the time comes from.
    pub clock: Clock,
    /// Where to say whether there is a token.
    pub health: HealthHandle,
}

/// Why there is no [`Minter`].
#[derive(Debug, thiserror::Error)]
pub enum MinterError {
    /// The platform cannot be called.
    #[error("the platform cannot be called")]
    Client(#[from] BuildError),
    /// The lock between gateways cannot be made.
    #[error("the lock {} cannot be opened", path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}
