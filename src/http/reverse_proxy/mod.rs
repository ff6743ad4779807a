//! Forwards requests to an upstream: connections kept and capped, bodies streamed both ways, hop-by-hop headers kept
//! to their hop. Decides nothing about who may send what: that is for the part that forwards.

mod headers;
mod replay_buffer;
mod request_body;
mod request_head;
mod http1;
mod tunnel;
mod connection_slots;
mod pool;
mod response_body;
mod upstream_target;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};

pub use headers::{is_direct, remove_all};
pub use http1::{ConnectionError, ProtocolError};
pub use replay_buffer::{ReplayBuffer, TeeBody};
pub use request_body::RequestBody;
pub use request_head::{RequestHead, RequestLine};
pub use response_body::{BufferedBody, ResponseBody};
pub use tunnel::Tunnel;
pub use upstream_target::{UpstreamTarget, UpstreamTargetError};

use crate::http::server::Caller;
use http1::SendError;
use pool::{Pool, PooledConnection};
use request_body::{BodyProgress, ProgressBody};

use crate::http::tls::ClientTls;

/// How an upstream is reached.
#[derive(Debug, Clone)]
pub struct ForwarderOptions {
    /// Where it is.
    pub target: UpstreamAddress,
    /// TLS, where it is spoken: the configuration and the name to expect in the certificate.
    pub tls: Option<(ClientTls, rustls::pki_types::ServerName<'static>)>,
    /// Connections at once; a request over it waits for one for `connect_timeout`.
    pub connections: usize,
    /// How long a connection is kept without a request; less than the upstream keeps it.
    pub idle: Duration,
    /// Time to get a connection, TLS included.
    pub connect_timeout: Duration,
    /// Time that an answer's body may bring nothing; `None` where it may take as long as it does.
    pub body_idle: Option<Duration>,
}

/// Where an upstream is.
#[derive(Debug, Clone)]
pub enum UpstreamAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A host and a port, resolved for each new connection.
    Host(String, u16),
    /// A unix socket.
    Unix(PathBuf),
    /// A host and a port behind a proxy.
    Through(Box<Tunnel>),
}

impl std::fmt::Display for UpstreamAddress {
    /// The address that a connection is made to.
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

/// Sends requests to one upstream. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Forwarder(Arc<Pool>);

/// Why an upstream did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No connection could be made.
    #[error("cannot connect to {0}")]
    Connect(String, #[source] std::io::Error),
    /// No connection could be had in time.
    #[error("no connection to {upstream} within {} s", after.as_secs_f32())]
    ConnectTimeout {
        /// The address that was to be reached.
        upstream: String,
        /// The time that was given.
        after: Duration,
    },
    /// Every connection was answering a request for all of that time.
    #[error("all {0} connections to the upstream are busy")]
    Busy(usize),
    /// The caller's own requests had as many connections as one caller may have, for all of that time.
    #[error("all {0} connections to the upstream that one caller may have are busy")]
    ShareBusy(usize),
    /// The connection ended, or what came was no answer.
    #[error("the upstream gave no whole answer")]
    Connection(#[source] ConnectionError),
    /// The request's own body did not arrive whole, which is its caller's doing.
    #[error("the request's body did not arrive whole")]
    RequestBody(#[source] ConnectionError),
    /// The answer's head did not come in time.
    #[error("the upstream gave no answer within {}", humantime::format_duration(*.0))]
    ResponseTimeout(Duration),
}

impl ForwardError {
    /// The status that tells a caller: 502, 503 or 504, or 400 or 408 for what is its own doing.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::RequestBody(ConnectionError::SlowRequestBody) => StatusCode::REQUEST_TIMEOUT,
            Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::Connect(..) | Self::Connection(_) => StatusCode::BAD_GATEWAY,
            Self::Busy(_) | Self::ShareBusy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout { .. } | Self::ResponseTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl Forwarder {
    /// Makes no connection yet.
    pub fn new(options: ForwarderOptions) -> Self {
        Self(Arc::new(Pool::new(options)))
    }

    /// Sends a request and gives the answer, its body still to come. Dropped before it is done, or with the answer's body
    /// unread, it closes the connection, and the upstream sees its caller hang up.
    ///
    /// `limit` is the time to the head of the answer, from sending the request, or from the last piece of its body: within
    /// twice this time a body that does not move, or an upstream that does not answer, is given up.
    ///
    /// `caller` is who asks for it: no caller has more than half of the connections. A body must move while its caller is waited
    /// for: less than 1 KiB a second over half a minute ends it.
    ///
    /// A request without body that met a kept connection as the upstream closed it is sent once more: one of which nothing was
    /// sent, and a `GET`, `HEAD` or `LIST`.
    ///
    /// # Errors
    /// No connection, or no answer: see [`ForwardError::status`].
    pub async fn send(
        &self,
        caller: Caller,
        head: &RequestHead,
        body: RequestBody,
        limit: Duration,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        let mut connection = self.0.lend(caller).await?;
        let moved = BodyProgress::new(&body);
        let again = connection.kept && body.is_empty();
        match connection.wire.exchange(head, ProgressBody::new(body, moved.clone()), &moved, limit).await {
            Ok(answer) => return Ok(finish(answer, connection)),
            Err(SendError::Unsent(_)) if again => {}
            Err(SendError::Sent(ForwardError::Connection(_))) if again && head.reads() => {}
            Err(SendError::Unsent(error) | SendError::Sent(error)) => return Err(error),
        }
        drop(connection);
        Box::pin(self.anew(caller, head, limit)).await
    }

    /// The same on a new connection, without a body.
    async fn anew(
        &self,
        caller: Caller,
        head: &RequestHead,
        limit: Duration,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        let mut connection = self.0.lend_new(caller).await?;
        let nothing = ProgressBody::new(RequestBody::empty(), BodyProgress::default());
        match connection.wire.exchange(head, nothing, &BodyProgress::default(), limit).await {
            Ok(answer) => Ok(finish(answer, connection)),
            Err(SendError::Unsent(error) | SendError::Sent(error)) => Err(error),
        }
    }
}

fn finish(answer: Response<()>, connection: PooledConnection) -> Response<ResponseBody> {
    answer.map(|()| ResponseBody::new(connection))
}
