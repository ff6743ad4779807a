//! HTTP server with the only accept loop: TCP and unix sockets, timeouts, eviction of idle connections, draining.

mod accept;
mod streams;
mod response_future;
mod metrics;
mod listener;
mod request_head;
mod response_head;
mod incoming_body;
mod tracked_stream;
mod connection_metrics;
mod connection;
mod pipe;
mod peer_group;
mod socket_activation;
mod lingering;
mod eviction;
mod worker_threads;
mod stale_socket;
mod socket_file;
mod connection_state;
mod connection_table;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use incoming_body::{IncomingBody, IncomingBodyError};
pub use listener::Listener;
pub use metrics::ResponseCounter;
pub use metrics::{HttpMetrics, ListenerLabel, RefusalLabels, ResponseLabels};
pub use peer_group::CallerGroup;
pub(crate) use pipe::serve_stream;
pub use response_future::ResponseFuture;
pub use socket_activation::ActivatedSockets;
pub use socket_file::SocketOwnerError;

use keyward_telemetry::metrics::Metrics;

#[cfg(doc)]
use crate::peer::PeerIdentity;
use crate::peer::{PeerReader, SocketOwner};
use crate::tls::ServerTls;

/// Address of a listener, formatted as `tcp://ADDRESS:PORT`, `unix:///PATH` or `systemd:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP address; port 0 selects a free port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(UnixSocket),
    /// Socket that the service manager passed by this name (`FileDescriptorName=`).
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
    /// Path of the socket.
    pub path: PathBuf,
    /// Mode, set before a client can connect.
    pub mode: u32,
    /// Owner, if not the process's user.
    pub owner: Option<u32>,
    /// Group, if not the process's.
    pub group: Option<u32>,
}

/// Limits of a listener's connections.
#[derive(Debug, Clone)]
pub struct ListenerLimits {
    /// Time limit for the first byte of a connection; over TLS also for the handshake.
    pub first_byte_timeout: Duration,
    /// Time limit for a request's head, from its first byte.
    pub header_timeout: Duration,
    /// Time that a connection may be idle between two requests.
    pub idle_timeout: Duration,
    /// Time that a response may wait for the caller to read.
    pub write_timeout: Duration,
    /// Largest request head in bytes; a larger one gets a 431 response.
    pub head_bytes: usize,
    /// Maximum of open connections. At the maximum, the longest idle connection of the group with most connections is
    /// closed for a new one; a group is a user of this machine, else an address and its network. Two shares of a
    /// sixteenth each, at most 16, are reserved: one for groups with fewer connections than that, and, where users are
    /// known, one for root and the process's own user.
    pub connections: usize,
    /// Maximum of connections of one user over a unix socket; root and the process's own user are exempt.
    pub per_user: usize,
    /// Time limit for requests in flight when the listener stops; then their connections are closed.
    pub drain: Duration,
    /// Set if another listener replaces this one when it stops: idle connections stay open for one more request, which
    /// gets `Connection: close`, until `drain` has passed or the token is cancelled. `None` closes them at once.
    pub replaced_until: Option<CancellationToken>,
    /// TLS configuration; `None` for plain HTTP.
    pub tls: Option<ServerTls>,
    /// Threads that serve the connections: the one that runs the listener, and others of its own.
    pub threads: usize,
    /// Metrics of the listener.
    pub listener_metrics: Option<ListenerMetrics>,
    /// Reads the identity of each peer, which its requests then carry as an extension ([`PeerIdentity`] in an `Arc`). `None`
    /// reads none.
    pub peer_reader: Option<Arc<PeerReader>>,
    /// Told of each request whose head the server itself refuses, so that no service sees it.
    pub refused_heads: Option<RefusedHeads>,
}

/// Takes the peer, the status of the response (400 or 431) and the reason of a refused head. Clones share it.
#[derive(Clone)]
pub struct RefusedHeads(Arc<RecordRefusal>);

type RecordRefusal = dyn Fn(&Peer, u16, &'static str) + Send + Sync;

impl RefusedHeads {
    /// Creates it of a function, which must not block.
    pub fn new(record: impl Fn(&Peer, u16, &'static str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(record))
    }
}

impl std::fmt::Debug for RefusedHeads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RefusedHeads")
    }
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
            threads: 1,
            listener_metrics: None,
            peer_reader: None,
            refused_heads: None,
        }
    }
}

/// Metrics registry with the listener's name as label.
#[derive(Debug, Clone)]
pub struct ListenerMetrics {
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Name of the listener, the value of its label.
    pub listener: String,
}

/// Peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Peer of a unix socket, as the kernel recorded it when it connected.
    Unix {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Process id.
        pid: u32,
        /// The peer is a member of the socket's group, by its primary or a supplementary group.
        in_group: bool,
    },
    /// A TCP peer.
    Tcp {
        /// Its address.
        address: SocketAddr,
        /// Address at which the connection arrived; of the connection, as a listener may have several.
        local: SocketAddr,
        /// Owner of its socket when it connected, if it is a process of this machine and the kernel tells.
        owner: Option<SocketOwner>,
    },
}

impl Peer {
    /// Returns the user id; `None` over TCP.
    pub const fn uid(&self) -> Option<u32> {
        match self {
            Self::Unix { uid, .. } => Some(*uid),
            Self::Tcp { .. } => None,
        }
    }

    /// Returns the process id; `None` over TCP.
    pub const fn pid(&self) -> Option<u32> {
        match self {
            Self::Unix { pid, .. } => Some(*pid),
            Self::Tcp { .. } => None,
        }
    }
}
