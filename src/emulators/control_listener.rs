//! What the doors to emulated servers and their dials have in common: a key, and a listener that no dial closes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::http::server::{Endpoint, Listener, ListenerLimits, router};
use crate::secret;

/// `?on=true`.
#[derive(Deserialize)]
pub(super) struct Switch {
    pub(super) on: bool,
}

/// `?seconds=30`.
#[derive(Deserialize)]
pub(super) struct Seconds<T> {
    pub(super) seconds: T,
}

/// Refuses who does not carry the key in `X-Dials-Key`.
pub(super) fn require_key(routes: Router, key: SecretString) -> Router {
    let key = Arc::new(key);
    routes.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
        let key = Arc::clone(&key);
        async move {
            if has_secret_header(request.headers(), "x-dials-key", &key) {
                return next.run(request).await;
            }
            let body = json!({"errors": ["the header X-Dials-Key is missing or wrong"]});
            (StatusCode::FORBIDDEN, Json(body)).into_response()
        }
    }))
}

/// Whether a header carries the secret.
pub(super) fn has_secret_header(headers: &HeaderMap, name: &str, key: &SecretString) -> bool {
    headers.get(name).is_some_and(|value| secret::ct_eq(key, value.as_bytes()))
}

/// Where a server's dials listen, over plain HTTP.
#[derive(Debug, Clone)]
pub struct FaultListener {
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// What a caller sends as `X-Dials-Key`.
    pub key: SecretString,
}

/// A listener, and the address that it got.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<(Listener, SocketAddr)> {
    let listener = Listener::bind(&Endpoint::Tcp(address))?;
    let bound = listener.tcp_address().unwrap_or(address);
    Ok((listener, bound))
}

/// The same, on an address that no other machine can reach.
pub(super) fn bind_loopback(address: SocketAddr) -> Result<(Listener, SocketAddr), BindError> {
    if !address.ip().is_loopback() {
        return Err(BindError::NotLoopback(address));
    }
    bind(address).map_err(|cause| BindError::Bind { address, cause })
}

/// Why an emulated server does not listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// An address that other machines could reach.
    #[error("emulated servers listen on loopback only, not at {0}")]
    NotLoopback(SocketAddr),
    /// An address that cannot be had.
    #[error("cannot listen at {address}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

/// Serves until `stop`, whatever the dials say.
pub(super) async fn serve(listener: Listener, routes: Router, stop: CancellationToken) -> anyhow::Result<()> {
    let limits = ListenerLimits { drain: Duration::from_secs(1), ..ListenerLimits::default() };
    listener.serve(router(routes), limits, stop).await;
    Ok(())
}
