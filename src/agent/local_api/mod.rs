//! The agent's local API: token, status, check, health and metrics for tools on this machine.
//!
//! | request | response |
//! |---|---|
//! | `GET /agent/v1/token[?session=NAME][&wait=30s][&after=GENERATION]` | 200 with the token, 503 and `Retry-After` while there is none, 429 if too many callers wait |
//! | `GET /agent/v1/status` | 200 with what each session of this listener is doing |
//! | `POST /agent/v1/check[?session=NAME]` | 200 after a check by the server, 429 and `Retry-After` after too many |
//! | `POST /agent/v1/retry[?session=NAME][&force=true]` | 200 where there is a token after one more login, 503 where there is none, 429 where none may be tried yet |
//! | `POST /agent/v1/refresh[?session=NAME][&path=PATH][&force=true]` | 200 with the outcome for each secret of the session's templates |
//! | `POST /agent/v1/rotate[?certificate=NAME]` | 200 with the new certificate, 503 where there is none, 429 and `Retry-After` after too many |
//! | `GET /livez`, `/readyz`, `/startupz` | 200 or 503, with each component and its reason |
//! | `GET /metrics` | OpenMetrics text |
//!
//! Responses are JSON; an error is `{"errors": ["why"]}`. The API has no framework: a router and its layers would double the
//! cost of a token read.

mod endpoints;
mod check;
mod metrics;
mod health_endpoints;
mod query;
mod refresh;
mod retry;
mod rotate;
mod token;
mod token_wait;
mod route;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

pub use endpoints::audited_route;
pub use metrics::ReadyMetrics;
pub use route::{SESSION_NEEDED, service, unaudited_response};

use keyward_http::guard;
use keyward_machine::clock::Clock;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status_registry::StatusRegistry;

use crate::caller_tokens::CallerTokens;
use crate::callers::CallerGate;
use crate::rotation::RotationRegistry;
use crate::secrets::SecretRegistries;
use crate::session_status::SessionStatusRegistry;
use crate::token::SessionHandle;

/// Options of one listener.
#[derive(Debug, Clone)]
pub struct LocalApiOptions {
    /// The listener's name.
    pub name: String,
    /// Endpoints that it serves.
    pub kind: ListenerKind,
    /// Sessions that it may serve, by name; none for a listener of [`ListenerKind::Health`].
    pub sessions: BTreeMap<String, SessionHandle>,
}

/// Endpoints of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// Tokens, status, check, health and metrics, behind the guard.
    LocalApi,
    /// Health and metrics only, for kubelets and scrapers.
    Health,
}

/// Collaborators of a listener's service.
#[derive(Debug, Clone)]
pub struct LocalApiDeps {
    /// Compares the current time with the end of tokens.
    pub clock: Clock,
    /// Served by `/metrics`; counts requests and refusals.
    pub metrics: Metrics,
    /// Served by `/livez`, `/readyz` and `/startupz`.
    pub health: Health,
    /// Served by `/agent/v1/status`, with the status of sessions.
    pub status_registry: StatusRegistry,
    /// Status of sessions, of which callers see those that the listener serves.
    pub session_statuses: SessionStatusRegistry,
    /// Secrets of the sessions' templates, which a caller may have read again.
    pub secrets: SecretRegistries,
    /// Certificates that callers may have replaced, if they may use the session.
    pub rotations: RotationRegistry,
    /// Rights of callers; the default lets every admitted request pass.
    pub callers: CallerGate,
    /// Tokens that callers get instead of a session's; the default has none.
    pub caller_tokens: CallerTokens,
    /// Callers to admit; a listener of [`ListenerKind::Health`] admits everyone but browsers.
    pub guard: guard::GuardOptions,
    /// Address that the listener is bound to ([`keyward_http::server::Listener::tcp_address`]).
    pub address: Option<SocketAddr>,
    /// Cancelled when the listener stops, which ends the wait of callers.
    pub stop: CancellationToken,
}
