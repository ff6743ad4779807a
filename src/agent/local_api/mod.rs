//! The agent's own API for the tools on this machine: token, status, check, health, metrics.
//!
//! | request | answer |
//! |---|---|
//! | `GET /agent/v1/token[?session=NAME][&wait=30s][&after=GENERATION]` | 200 with the token, 503 and `Retry-After` while there is none, 429 where too many wait |
//! | `GET /agent/v1/status` | 200 with what each session of this listener is doing |
//! | `POST /agent/v1/check[?session=NAME]` | 200 once the server was asked, 429 and `Retry-After` when asked too often |
//! | `POST /agent/v1/retry[?session=NAME]` | 200 where there is a token after one more login, 503 where there is none, 429 where none may be tried yet |
//! | `GET /livez`, `/readyz`, `/startupz` | 200 or 503, with each component and its reason |
//! | `GET /metrics` | OpenMetrics text |
//!
//! Answers are JSON; an error is `{"errors": ["why"]}`. It stands on hyper alone: a router and its layers cost a token
//! read as much again as reading, parsing and answering it does.

mod check;
mod wait_slots;
mod health_endpoints;
mod query;
mod retry;
mod route;
mod token;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

pub use route::service;

use crate::agent::token::TokenWatch;
use crate::clock::Clock;
use crate::credential_watch::RefreshSignal;
use crate::health::Health;
use crate::http::guard;
use crate::metrics::Metrics;
use crate::status::StatusRegistry;

/// What one listener serves.
#[derive(Debug, Clone)]
pub struct LocalApiOptions {
    /// The listener's name.
    pub name: String,
    /// What it serves.
    pub kind: ListenerKind,
    /// The sessions that it may serve, by name. A listener of [`ListenerKind::Health`] serves none and keeps none of them.
    pub sessions: BTreeMap<String, SessionHandle>,
}

/// What a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// Tokens, status, check, health and metrics, behind the guard.
    LocalApi,
    /// Health and metrics alone, to kubelets and scrapers.
    Health,
}

/// Where a session's token is read, and where its maker is rung.
#[derive(Debug, Clone)]
pub struct SessionHandle {
    /// The token.
    pub watch: TokenWatch,
    /// Rung by `POST /agent/v1/check`.
    pub refresh_signal: RefreshSignal,
}

/// What a listener's answers are made from, besides the sessions.
#[derive(Debug, Clone)]
pub struct LocalApiDeps {
    /// Tells when a token has ended.
    pub clock: Clock,
    /// ServedSession by `/metrics`, and where requests and refusals are counted.
    pub metrics: Metrics,
    /// ServedSession by `/livez`, `/readyz` and `/startupz`.
    pub health: Health,
    /// ServedSession by `/agent/v1/status`.
    pub status_registry: StatusRegistry,
    /// Whom to let in; a listener of [`ListenerKind::Health`] lets everyone in but browsers.
    pub guard: guard::GuardOptions,
    /// The address that the listener is bound to ([`crate::http::server::Listener::tcp_address`]).
    pub address: Option<SocketAddr>,
    /// Cancelled when the listener stops: those who wait for a token are answered then.
    pub stop: CancellationToken,
}
