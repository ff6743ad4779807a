//! The only accept loop: TCP and unix sockets, time-outs, room for new callers, drain.

mod accept;
mod response_future;
mod response_metrics;
mod listener;
mod connection;
mod framing;
mod peer_group;
mod socket_activation;
mod lingering;
mod eviction;
mod sock_diag;
mod socket_file;
mod connection_state;
mod connection_table;
mod timed_body;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

pub use listener::Listener;
pub use peer_group::{Caller, CallerGroup};
pub use response_future::ResponseFuture;
pub use response_metrics::ResponseCounter;
pub use socket_activation::ActivatedSockets;

use crate::http::tls::ServerTls;
use crate::metrics::Metrics;

/// Where to listen. Shown as `tcp://ADDRESS:PORT`, `unix:///PATH` or `systemd:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(UnixSocket),
    /// A socket that the service manager opened and passed by this name (`FileDescriptorName=`).
    Activated(String),
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Unix(socket) => write!(f, "unix://{}", socket.path.display()),
            Self::Activated(name) => write!(f, "systemd:{name}"),
        }
    }
}

/// A unix socket in the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its path.
    pub path: PathBuf,
    /// Its mode from the first moment that anyone can connect.
    pub mode: u32,
    /// Its owner, if not the process's.
    pub owner: Option<u32>,
    /// Its group, if not the process's.
    pub group: Option<u32>,
}

/// How a listener treats its connections.
#[derive(Debug, Clone)]
pub struct ListenerLimits {
    /// Time for the first byte of a connection; over TLS the time for the handshake too.
    pub first_byte_timeout: Duration,
    /// Time for a request's head to arrive, from its first byte.
    pub header_timeout: Duration,
    /// Time that a connection may stay open between two requests.
    pub idle_timeout: Duration,
    /// Time that a caller may take no byte of an answer that waits for it.
    pub write_timeout: Duration,
    /// Size of a request's head in bytes; a larger one is answered with 431.
    pub head_bytes: usize,
    /// Connections at once. Where there are no more, the one that was quiet the longest makes room, of those who hold most: a user
    /// of this machine, else an address and its network. Two parts of a sixteenth each, at most 16, are kept back: one for those
    /// who hold fewer than that many, and where users are known one for root and the process's own user.
    pub connections: usize,
    /// Connections of one user at once over a unix socket; root and the process's own user are not bound by it.
    pub per_user: usize,
    /// Time for requests in flight to end once it stops; connections that are open then are closed.
    pub drain: Duration,
    /// Where another listener takes this one's place when it stops: idle connections stay open for one more request, which is
    /// answered with `Connection: close`, until `drain` has passed or this is cancelled. `None` closes them at once.
    pub replaced_until: Option<CancellationToken>,
    /// TLS, where it is spoken.
    pub tls: Option<ServerTls>,
    /// Where connections and refusals are counted.
    pub listener_metrics: Option<ListenerMetrics>,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            first_byte_timeout: Duration::from_secs(2),
            header_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_mins(1),
            write_timeout: Duration::from_secs(30),
            head_bytes: 16 * 1024,
            connections: 1024,
            per_user: 256,
            drain: Duration::from_secs(10),
            replaced_until: None,
            tls: None,
            listener_metrics: None,
        }
    }
}

/// Where a listener's connections and refusals are counted.
#[derive(Debug, Clone)]
pub struct ListenerMetrics {
    /// The process's metrics.
    pub metrics: Metrics,
    /// The listener's name in them.
    pub listener: String,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A unix peer, as the kernel knew it when it connected.
    Unix {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Process id.
        pid: u32,
        /// Whether the socket's group is the peer's group or one of its supplementary groups.
        in_group: bool,
    },
    /// A TCP peer.
    Tcp(SocketAddr),
}

impl Peer {
    /// The user id, where the kernel tells it.
    pub const fn uid(&self) -> Option<u32> {
        match self {
            Self::Unix { uid, .. } => Some(*uid),
            Self::Tcp(_) => None,
        }
    }

    /// The process id, where the kernel tells it.
    pub const fn pid(&self) -> Option<u32> {
        match self {
            Self::Unix { pid, .. } => Some(*pid),
            Self::Tcp(_) => None,
        }
    }
}

/// Serves an axum router; each request carries its [`Peer`] as an extension, and its body must arrive within half a
/// minute from when a handler waits for it.
pub fn router(router: axum::Router) -> impl Fn(Peer, Request<Incoming>) -> RouterResponse + Clone + Send + 'static {
    move |peer, mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let router = router.clone();
        Box::pin(async move {
            let request = request.map(|body| timed_body::TimedBody::new(body, BODY_TIMEOUT));
            let Ok(answer) = tower::ServiceExt::oneshot(router, request).await;
            answer
        })
    }
}

/// What [`router`]'s service answers with.
pub type RouterResponse = std::pin::Pin<Box<dyn Future<Output = Response<axum::body::Body>> + Send + 'static>>;

const BODY_TIMEOUT: Duration = Duration::from_secs(30);
