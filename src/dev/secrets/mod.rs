//! The emulated secrets server: login, look-up, renewal, revocation, wrapping, and a plain key-value store.
//!
//! It speaks Vault's wire and keeps everything in memory. It is for trials and tests, never for real secrets.

mod dials;
mod kv;
mod reply;
mod serve;
mod tokens;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use crate::clock::Clock;
use crate::http::listen::{Endpoint, Listener};
use crate::tasks::Tasks;

pub use dials::{Canned, Counts, Dials, Operation};
pub use tokens::TokenType;

/// What an emulated secrets server is made from.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens, on plain HTTP; port 0 takes a free one.
    pub address: SocketAddr,
    /// The time that tokens live by.
    pub clock: Clock,
    /// Path of its one auth method, such as `azure`.
    pub mount: String,
    /// How a login's proof is checked.
    pub verification: Verification,
    /// The roles, by name.
    pub roles: BTreeMap<String, Role>,
    /// The key of the dials over HTTP (`/dials/...`); without one they are not there.
    pub dials_key: Option<SecretString>,
}

impl Options {
    /// A server on a free loopback port that lets anyone in as `role`, for tests of what comes after a login.
    pub fn for_anyone(clock: Clock, role: &str, settings: Role) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            clock,
            mount: "azure".to_owned(),
            verification: Verification::Anyone,
            roles: BTreeMap::from([(role.to_owned(), settings)]),
            dials_key: None,
        }
    }
}

/// How a login's proof is checked.
#[derive(Debug, Clone)]
pub enum Verification {
    /// Not at all: whatever is there is let in. For tests of the token's life, which are not about the proof.
    Anyone,
}

/// What a role gives to those who log in to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Names of policies.
    pub policies: Vec<String>,
    /// Life of a token, and of each renewal.
    pub ttl: Duration,
    /// No renewal leads past this life; `None` for no such end.
    pub max_ttl: Option<Duration>,
    /// What kind of token.
    pub token_type: TokenType,
    /// Whether the token may be renewed.
    pub renewable: bool,
    /// Number of uses after which a token ends; 0 for no such end.
    pub num_uses: u64,
}

impl Default for Role {
    /// Renewable service tokens of an hour, at most four.
    fn default() -> Self {
        Self {
            policies: vec!["default".to_owned()],
            ttl: Duration::from_hours(1),
            max_ttl: Some(Duration::from_hours(4)),
            token_type: TokenType::Service,
            renewable: true,
            num_uses: 0,
        }
    }
}

/// A running emulated secrets server. It ends with the tasks that it was started in.
#[derive(Debug, Clone)]
pub struct Secrets {
    address: SocketAddr,
    dials: Dials,
}

impl Secrets {
    /// Binds the address and serves as one of `tasks`.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn start(options: Options, tasks: &mut Tasks) -> std::io::Result<Self> {
        let listener = Listener::bind(&Endpoint::Tcp(options.address))?;
        let address = listener.tcp_address().unwrap_or(options.address);
        let dials = Dials::default();
        let wire = Arc::new(wire::Wire::new(options, dials.clone()));
        let stop = tasks.stop_token();
        tasks.start("emulated secrets server", serve::serve(listener, address, wire, stop));
        Ok(Self { address, dials })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What makes it fail, and counts what it is asked.
    pub const fn dials(&self) -> &Dials {
        &self.dials
    }
}
