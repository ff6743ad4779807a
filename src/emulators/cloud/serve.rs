//! Listeners that close on command, and the parts that all responses share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER, SERVER};
use keyward_http::peer::PeerReader;
use keyward_http::server::{Listener, ListenerLimits};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::faults::{Failure, FaultInjector, FaultTarget};
use super::{CloudProvider, StartError, State};
use crate::{ReservedPort, axum_service};

/// One listener of the emulated cloud.
pub(super) struct EmulatedListener {
    pub(super) listener: Listener,
    /// Keeps the port while the listener is closed.
    pub(super) port: ReservedPort,
    pub(super) router: axum::Router,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    /// Reads whose connections are.
    pub(super) peer_reader: Option<Arc<PeerReader>>,
}

impl EmulatedListener {
    /// Serves until `stop`; closes the listener while a fault says so, and reopens it at the same address.
    pub(super) async fn serve(self, faults: FaultInjector, stop: CancellationToken) -> anyhow::Result<()> {
        let mut is_refusing = faults.subscribe_refusing();
        let mut listener = Some(self.listener);
        faults.add_listener();
        loop {
            let open = stop.child_token();
            let listening = if let Some(listener) = listener.take() {
                listener
            } else {
                let bound = self.port.listen()?;
                faults.set_closed(false);
                bound
            };
            let limits = ListenerLimits {
                tls: self.tls.clone().map(Into::into),
                drain: DRAIN,
                peer_reader: self.peer_reader.clone(),
                ..ListenerLimits::default()
            };
            let serving = listening.serve(axum_service(with_server_header(self.router.clone())), limits, open.clone());
            let closing = async {
                // Fails only after all fault injectors were dropped; then nothing can close the listener.
                if is_refusing.wait_for(|refusing| *refusing).await.is_err() {
                    std::future::pending::<()>().await;
                }
                open.cancel();
            };
            tokio::join!(serving, async {
                tokio::select! {
                    () = closing => {}
                    () = stop.cancelled() => {}
                }
            });
            faults.set_closed(true);
            tokio::select! {
                _ = is_refusing.wait_for(|refusing| !*refusing) => {}
                () = stop.cancelled() => {}
            }
            if stop.is_cancelled() {
                return Ok(());
            }
        }
    }
}

pub(super) fn bind(address: SocketAddr) -> Result<(Listener, ReservedPort), StartError> {
    ReservedPort::bind_listening(address).map_err(|cause| StartError::Bind { address, cause })
}

#[expect(clippy::expect_used, reason = "a scheme and a socket address make a URL")]
pub(super) fn url(scheme: &str, address: SocketAddr) -> Url {
    Url::parse(&format!("{scheme}://{address}/")).expect("a scheme and a socket address make a URL")
}

impl State {
    /// Counts the request, then delays or fails it as injected. Tokens and documents are returned only after `Ok`.
    pub(super) async fn apply_faults(&self, target: FaultTarget) -> Result<(), Box<Response>> {
        let (delay, failure) = self.faults.record_request(target);
        if !delay.is_zero() {
            self.clock.sleep(delay).await;
        }
        failure.map_or(Ok(()), |failure| Err(Box::new(failed(self.provider, target, failure))))
    }
}

fn failed(provider: CloudProvider, target: FaultTarget, failure: Failure) -> Response {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match (failure.body, provider) {
        (Some(body), _) => json_response(status, &body),
        (None, CloudProvider::Azure) => json_response(status, &azure_error(status, target)),
        // Those of AWS and Google Cloud answer with a page or a text where they fail themselves.
        (None, CloudProvider::Aws | CloudProvider::Gcp) => {
            (status, "The emulated cloud was told to fail").into_response()
        }
    };
    if let Some(seconds) = failure.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn azure_error(status: StatusCode, target: FaultTarget) -> Value {
    let (error, description) = match status.as_u16() {
        400 => ("invalid_request", "Identity not found"),
        401 => ("unauthorized_client", "The emulated cloud was told to refuse"),
        404 => ("not_found", "The service is being updated"),
        410 => ("gone", "The service is being updated"),
        429 => ("too_many_requests", "Temporarily throttled, too many requests"),
        500 if target != FaultTarget::Authority => ("unknown", "Failed to retrieve token from the Active directory"),
        _ => ("temporarily_unavailable", "The emulated cloud was told to fail"),
    };
    serde_json::json!({"error": error, "error_description": description})
}

/// Builds a JSON response that must not be cached.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = (status, axum::Json(body)).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Adds the `Server` header that marks every response as emulated.
fn with_server_header(routes: axum::Router) -> axum::Router {
    routes.layer(axum::middleware::map_response(async |mut response: Response| {
        response.headers_mut().insert(SERVER, HeaderValue::from_static("keyward-emulated-cloud"));
        response
    }))
}

const DRAIN: Duration = Duration::from_secs(1);
