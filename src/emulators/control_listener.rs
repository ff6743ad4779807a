//! Fault injection over HTTP, shared by the emulated servers: protected by a key, and never closed by an injected fault.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use keyward_http::server::{Endpoint, Listener, ListenerLimits};
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ReservedPort, axum_service};

/// Faults of an emulated server, as they are injected over HTTP.
pub(super) trait FaultApi: Clone + Send + Sync + 'static {
    /// A fault, which is its own JSON.
    type Fault: DeserializeOwned + Send;

    /// Injects a fault; returns the new state, or what the fault has made.
    fn inject(&self, fault: Self::Fault) -> impl Future<Output = Result<Value, &'static str>> + Send;

    /// Returns the counters and the faults that are on.
    fn state(&self) -> Value;
}

/// Address and key of a server's fault injection over plain HTTP.
#[derive(Debug, Clone)]
pub struct FaultListener {
    /// Address; port 0 picks a free one.
    pub address: SocketAddr,
    /// Key that callers send as `X-Faults-Key`.
    pub key: SecretString,
}

/// Serves `/faults` in `tasks`, whatever faults are injected: `GET` returns the state, `POST` injects the fault in its body.
/// Returns the URL.
pub(super) fn serve_faults<F: FaultApi>(
    listener: FaultListener,
    faults: F,
    task: &'static str,
    tasks: &mut TaskGroup,
) -> Result<String, BindError> {
    let FaultListener { address, key } = listener;
    let (listener, address) = bind_loopback(address)?;
    let routes = require_key(Router::new().route("/faults", get(show::<F>).post(inject::<F>)).with_state(faults), key);
    let limits = ListenerLimits { drain: Duration::from_secs(1), ..ListenerLimits::default() };
    let stop = tasks.stop_token();
    tasks.start(task, async move {
        listener.serve(axum_service(routes), limits, stop).await;
        Ok(())
    });
    Ok(format!("http://{address}/faults"))
}

async fn show<F: FaultApi>(State(faults): State<F>) -> Json<Value> {
    Json(faults.state())
}

async fn inject<F: FaultApi>(State(faults): State<F>, body: Bytes) -> Response {
    let refuse = |why: &str| (StatusCode::BAD_REQUEST, Json(json!({"errors": [why]}))).into_response();
    match serde_json::from_slice(&body) {
        Ok(fault) => faults.inject(fault).await.map_or_else(refuse, |done| Json(done).into_response()),
        Err(error) => refuse(&error.to_string()),
    }
}

/// Rejects requests without the key in `X-Faults-Key`.
fn require_key(routes: Router, key: SecretString) -> Router {
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

/// Binds a listener on a loopback address; returns its actual address.
pub(super) fn bind_loopback(address: SocketAddr) -> Result<(Listener, SocketAddr), BindError> {
    require_loopback(address)?;
    let listener = Listener::bind(&Endpoint::Tcp(address)).map_err(|cause| BindError::Bind { address, cause })?;
    let bound = listener.tcp_address().unwrap_or(address);
    Ok((listener, bound))
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
