//! Listener for fault injection over HTTP, shared by the emulated servers: protected by a key, and never closed by an
//! injected fault.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use keyward_http::server::{Endpoint, Listener, ListenerLimits};
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{ReservedPort, axum_service};

/// `?on=true`.
#[derive(Deserialize)]
pub(super) struct SwitchQuery {
    pub(super) on: bool,
}

/// `?seconds=30`.
#[derive(Deserialize)]
pub(super) struct SecondsQuery<T> {
    pub(super) seconds: T,
}

/// Rejects requests without the key in `X-Faults-Key`.
pub(super) fn require_key(routes: Router, key: SecretString) -> Router {
    let key = Arc::new(key);
    routes.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        let key = Arc::clone(&key);
        async move {
            if has_secret_header(request.headers(), "x-faults-key", &key) {
                return next.run(request).await;
            }
            let body = json!({"errors": ["the header X-Faults-Key is missing or wrong"]});
            (StatusCode::FORBIDDEN, Json(body)).into_response()
        }
    }))
}

/// Compares a header with a secret in constant time.
pub(super) fn has_secret_header(headers: &HeaderMap, name: &str, key: &SecretString) -> bool {
    headers.get(name).is_some_and(|value| secret::ct_eq(key, value.as_bytes()))
}

/// Address and key of a server's fault injection over plain HTTP.
#[derive(Debug, Clone)]
pub struct FaultListener {
    /// Address; port 0 picks a free one.
    pub address: SocketAddr,
    /// Key that callers send as `X-Faults-Key`.
    pub key: SecretString,
}

/// Binds a listener, and returns its actual address.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<(Listener, SocketAddr)> {
    let listener = Listener::bind(&Endpoint::Tcp(address))?;
    let bound = listener.tcp_address().unwrap_or(address);
    Ok((listener, bound))
}

/// Binds a listener on a loopback address.
pub(super) fn bind_loopback(address: SocketAddr) -> Result<(Listener, SocketAddr), BindError> {
    require_loopback(address)?;
    bind(address).map_err(|cause| BindError::Bind { address, cause })
}

/// As [`bind_loopback`], and reserves the port for when that listener closes.
pub(super) fn bind_reserved_loopback(address: SocketAddr) -> Result<(Listener, ReservedPort), BindError> {
    require_loopback(address)?;
    ReservedPort::bind_listening(address).map_err(|cause| BindError::Bind { address, cause })
}

fn require_loopback(address: SocketAddr) -> Result<(), BindError> {
    if address.ip().is_loopback() { Ok(()) } else { Err(BindError::NotLoopback(address)) }
}

/// Error of binding an emulated server.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is not a loopback address.
    #[error("emulated servers listen on loopback only, not at {0}")]
    NotLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen at {address}")]
    Bind {
        /// Requested address.
        address: SocketAddr,
        /// Underlying error.
        #[source]
        cause: std::io::Error,
    },
}

/// Serves until `stop`, whatever faults are injected.
pub(super) async fn serve(listener: Listener, routes: Router, stop: CancellationToken) -> anyhow::Result<()> {
    let limits = ListenerLimits { drain: Duration::from_secs(1), ..ListenerLimits::default() };
    listener.serve(axum_service(routes), limits, stop).await;
    Ok(())
}
