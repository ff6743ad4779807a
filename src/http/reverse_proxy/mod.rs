//! Forwards requests to an upstream: pooled and limited connections, bodies streamed both ways, hop-by-hop headers
//! removed. The part that forwards decides who may send what.

mod headers;
mod replay_buffer;
mod request_body;
mod request_head;
mod http1;
mod metrics;
mod connect;
mod connection_slots;
mod pool;
mod response_body;
mod upstream_target;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};

pub(crate) use connect::Tunnel;
pub use headers::{is_direct, remove_all};
pub use http1::ConnectionError;
#[cfg(feature = "fuzzing")]
pub use http1::fuzz;
pub use metrics::{UpstreamMetrics, UpstreamOutcome, UpstreamRecorder};
pub use replay_buffer::{ReplayBuffer, TeeBody};
pub use request_body::RequestBody;
pub(crate) use request_body::RequestBodyError;
pub use request_head::{RequestHead, RequestLine};
pub use response_body::{BufferedBody, ResponseBody};
pub use upstream_target::{UpstreamTarget, UpstreamTargetError};

use crate::server::CallerGroup;
use crate::tls::ClientTls;
use http1::SendError;
use pool::{Pool, PooledConnection};
use request_body::{BodyProgress, ProgressBody};

/// Options of a forwarder.
#[derive(Debug, Clone)]
pub struct ForwarderOptions {
    /// Address of the upstream.
    pub target: UpstreamAddress,
    /// TLS configuration and the name to expect in the certificate; `None` for plain HTTP.
    pub tls: Option<(ClientTls, rustls::pki_types::ServerName<'static>)>,
    /// Maximum of connections; a request beyond it waits for `connect_timeout`.
    pub connections: usize,
    /// Time that an idle connection is kept; shorter than the upstream keeps it.
    pub idle: Duration,
    /// Time limit for a connection, TLS included.
    pub connect_timeout: Duration,
    /// Time that a response body may pause; `None` without a limit.
    pub body_idle: Option<Duration>,
    /// Records the waits for a connection.
    pub recorder: Option<UpstreamRecorder>,
}

/// Address of an upstream.
#[derive(Debug, Clone)]
pub enum UpstreamAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A host and a port, resolved for each new connection.
    Host(String, u16),
    /// A unix socket.
    Unix(PathBuf),
    /// A host and a port through an HTTP proxy.
    Through(Box<Tunnel>),
}

impl std::fmt::Display for UpstreamAddress {
    /// Formats the address that connections are made to.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix socket {}", path.display()),
            Self::Through(tunnel) => {
                let (host, port) = &tunnel.proxy;
                write!(f, "{} through the proxy {host}:{port}", tunnel.authority)
            }
        }
    }
}

/// Forwards requests to one upstream. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Forwarder(Arc<Pool>);

/// Reason why a request was not forwarded or has no response.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No connection could be made.
    #[error("cannot connect to {0}")]
    Connect(String, #[source] std::io::Error),
    /// No connection was established in time.
    #[error("no connection to {upstream} within {} s", after.as_secs_f32())]
    ConnectTimeout {
        /// Address of the upstream.
        upstream: String,
        /// Time limit.
        after: Duration,
    },
    /// All connections served requests for the whole wait.
    #[error("all {0} connections to the upstream are busy")]
    Busy(usize),
    /// The caller's own requests held its whole share of connections for the whole wait.
    #[error("all {0} connections to the upstream that one caller may use are busy")]
    ShareBusy(usize),
    /// The connection ended, or the response is not valid HTTP.
    #[error("incomplete or invalid response from the upstream")]
    Connection(#[source] ConnectionError),
    /// The request's body did not arrive completely: the caller's fault.
    #[error("the request body did not arrive completely")]
    RequestBody(#[source] ConnectionError),
    /// The response head did not arrive in time.
    #[error("no response from the upstream within {}", keyward_telemetry::time_format::format_duration(*.0))]
    ResponseTimeout(Duration),
}

impl ForwardError {
    /// Returns the status for the caller: 502, 503 or 504; 400 or 408 if the caller is at fault.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::RequestBody(ConnectionError::RequestBody(RequestBodyError::TooSlow)) => StatusCode::REQUEST_TIMEOUT,
            Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::Connect(..) | Self::Connection(_) => StatusCode::BAD_GATEWAY,
            Self::Busy(_) | Self::ShareBusy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout { .. } | Self::ResponseTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl Forwarder {
    /// Creates a forwarder without connecting.
    pub fn new(options: ForwarderOptions) -> Self {
        Self(Arc::new(Pool::new(options)))
    }

    /// Sends a request and returns the response with its body still to be read. If the future, or the response with an
    /// unread body, is dropped, the connection is closed, and the upstream sees its client hang up.
    ///
    /// `limit` is the time limit for the response head, from the sending of the request or the last progress of its
    /// body: within twice this time a stalled body or a silent upstream ends the request.
    ///
    /// `caller` is charged for the connection: no caller gets more than half of them. While the upstream waits for the
    /// request's body, it must arrive at 1 KiB a second or more over half a minute.
    ///
    /// A request without a body is retried once on a new connection if the upstream closed an idle connection
    /// meanwhile: always if nothing of it was sent, else only `GET`, `HEAD` and `LIST`.
    ///
    /// # Errors
    /// The request was not forwarded or has no response: see [`ForwardError::status`].
    pub async fn send(
        &self,
        caller: CallerGroup,
        head: &RequestHead,
        body: RequestBody,
        limit: Duration,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        let mut connection = self.0.check_out(caller).await?;
        let progress = BodyProgress::new(&body);
        let again = connection.reused && body.is_empty();
        match connection.wire.exchange(head, ProgressBody::new(body, progress.clone()), &progress, limit).await {
            Ok(response) => return Ok(finish(response, connection)),
            // Nothing was sent, so a repetition cannot do anything twice.
            Err(SendError::Unsent(_)) if again => {}
            // The upstream may have handled it: only reads are repeated (RFC 9110, 9.2.2).
            Err(SendError::Sent(ForwardError::Connection(_))) if again && head.is_read_only() => {}
            Err(SendError::Unsent(error) | SendError::Sent(error)) => return Err(error),
        }
        drop(connection);
        Box::pin(self.retry_on_new_connection(caller, head, limit)).await
    }

    /// Sends a request without a body on a new connection.
    async fn retry_on_new_connection(
        &self,
        caller: CallerGroup,
        head: &RequestHead,
        limit: Duration,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        let mut connection = self.0.open_new(caller).await?;
        let nothing = ProgressBody::new(RequestBody::empty(), BodyProgress::default());
        match connection.wire.exchange(head, nothing, &BodyProgress::default(), limit).await {
            Ok(response) => Ok(finish(response, connection)),
            Err(SendError::Unsent(error) | SendError::Sent(error)) => Err(error),
        }
    }
}

fn finish(response: Response<()>, connection: PooledConnection) -> Response<ResponseBody> {
    response.map(|()| ResponseBody::new(connection))
}
