//! Bound sockets, and the loop that accepts on them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::socket_file::{self, SocketFile};
use super::table::Table;
use super::{Endpoint, Inherited, Limits, Peer, UnixSocket};
use crate::metrics::{self, Metrics};

/// A bound socket that does not accept yet: an address that is taken is known before anything starts.
///
/// The file of a unix socket that was bound here is removed when the last clone is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    file: Option<Arc<SocketFile>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    /// The socket, and the group whose members may be let in.
    Unix(UnixListener, Option<u32>),
}

impl Listener {
    /// Binds. Must be called inside a runtime. An [`Endpoint::Inherited`] is an error here: see [`Listener::open`].
    ///
    /// A unix socket's path may hold a socket that nobody listens on, which is replaced, or one of this process.
    ///
    /// # Errors
    /// The address is taken, not allowed, or not there; the path holds a live socket or something else than a socket.
    pub fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        Self::open(endpoint, &Inherited::default())
    }

    /// As [`Listener::bind`], and takes sockets that the service manager passed.
    ///
    /// # Errors
    /// As [`Listener::bind`]; no socket was passed by that name, several were, or it is none that accepts streams.
    pub fn open(endpoint: &Endpoint, inherited: &Inherited) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => Self::tcp(std::net::TcpListener::bind(address)?),
            Endpoint::Unix(socket) => Self::unix(socket),
            Endpoint::Inherited(name) => Self::adopt(inherited.socket(name)?),
        }
    }

    fn tcp(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?.ip().to_canonical();
        // Accepted connections inherit both. With a time to live of one nothing gets past the first router, whatever
        // `route_localnet` and port forwards on this machine make of loopback.
        rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
        if local.is_loopback() {
            match local {
                IpAddr::V4(_) => rustix::net::sockopt::set_ip_ttl(&listener, 1)?,
                IpAddr::V6(_) => rustix::net::sockopt::set_ipv6_unicast_hops(&listener, Some(1))?,
            }
        }
        Ok(Self { socket: Socket::Tcp(TcpListener::from_std(listener)?), file: None })
    }

    fn unix(socket: &UnixSocket) -> io::Result<Self> {
        let (listener, file) = socket_file::bind(socket)?;
        let socket = Socket::Unix(UnixListener::from_std(listener)?, Some(file.group));
        Ok(Self { socket, file: Some(Arc::new(file)) })
    }

    fn adopt(socket: OwnedFd) -> io::Result<Self> {
        use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
        if socket_type(&socket)? != SocketType::STREAM || !socket_acceptconn(&socket)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket that was passed accepts no streams"));
        }
        match socket_domain(&socket)? {
            AddressFamily::INET | AddressFamily::INET6 => Self::tcp(std::net::TcpListener::from(socket)),
            AddressFamily::UNIX => {
                let group = socket_group(rustix::net::getsockname(&socket)?);
                let listener = std::os::unix::net::UnixListener::from(socket);
                listener.set_nonblocking(true)?;
                Ok(Self { socket: Socket::Unix(UnixListener::from_std(listener)?, group), file: None })
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket that was passed is neither TCP nor unix")),
        }
    }

    /// A second handle of the same socket, for the one who serves it next: callers that connect between the end of
    /// one and the start of the other wait in the kernel's queue.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = match &self.socket {
            Socket::Tcp(listener) => {
                let copy = listener.as_fd().try_clone_to_owned()?;
                Socket::Tcp(TcpListener::from_std(std::net::TcpListener::from(copy))?)
            }
            Socket::Unix(listener, group) => {
                let copy = std::os::unix::net::UnixListener::from(listener.as_fd().try_clone_to_owned()?);
                Socket::Unix(UnixListener::from_std(copy)?, *group)
            }
        };
        Ok(Self { socket, file: self.file.clone() })
    }

    /// The TCP address that was bound.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Serves until `stop`, then lets requests in flight end, at most for `limits.drain`.
    pub async fn serve<S, F, B>(self, service: S, limits: Limits, stop: CancellationToken)
    where
        S: Fn(Peer, Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let counts = Counts::of(&limits);
        let table = Arc::new(Table::new(limits.clone(), counts.connections()));
        let mut tasks = JoinSet::new();
        let mut sweep: Option<Instant> = None;
        let mut trouble = Trouble::default();
        let acceptor = limits.tls.clone().map(tokio_rustls::TlsAcceptor::from);
        let loopback = self.tcp_address().is_some_and(|address| address.ip().to_canonical().is_loopback());
        let mut http = hyper::server::conn::http1::Builder::new();
        // The table keeps time: hyper's own timer would cost each request an entry in the timer wheel. No
        // `pipeline_flush`: with it an answer is lost when bytes are left unread at the connection's end.
        http.header_read_timeout(None).max_header_size(limits.head_bytes);
        for id in 0.. {
            let accepted = loop {
                tokio::select! {
                    accepted = self.accept() => break Some(accepted),
                    () = stop.cancelled() => break None,
                    () = sleep_until(sweep) => sweep = table.sweep(),
                    () = table.attention.notified() => sweep = table.sweep(),
                    Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
                }
            };
            let (stream, peer) = match accepted {
                None => break,
                Some(Ok(accepted)) => accepted,
                Some(Err(error)) => {
                    trouble.rest(&error, &table, &stop).await;
                    continue;
                }
            };
            trouble.over();
            if loopback && matches!(peer, Peer::Tcp(address) if !address.ip().is_loopback()) {
                counts.refuse("peer", &peer);
                continue;
            }
            if !table.make_room(&peer) {
                counts.refuse("connections", &peer);
                continue;
            }
            let first =
                Instant::now() + if acceptor.is_some() { limits.header_timeout } else { limits.first_byte_timeout };
            sweep = Some(sweep.map_or(first, |at| at.min(first)));
            table.enter(id, &peer, |state, entered| {
                let (http, service, acceptor, counts) =
                    (http.clone(), service.clone(), acceptor.clone(), counts.clone());
                tasks.spawn(async move {
                    let outcome = match acceptor {
                        None => connection::serve(http, stream, peer, service, state, &entered).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => connection::serve(http, stream, peer, service, state, &entered).await,
                            Err(_) => return counts.refuse("tls", &peer),
                        },
                    };
                    match outcome {
                        Err(error) if error.is_parse_too_large() => counts.refuse("head_size", &peer),
                        Err(error) if error.is_parse() => counts.refuse("malformed", &peer),
                        _ => {}
                    }
                })
            });
        }
        drop(self);
        table.close();
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain, ended).await.is_err() {
            tasks.shutdown().await;
        }
    }

    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                Ok((Stream::Tcp(stream), Peer::Tcp(address)))
            }
            Socket::Unix(listener, group) => {
                let (stream, _) = listener.accept().await?;
                let credentials = stream.peer_cred()?;
                let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
                let in_group = group.is_some_and(|group| {
                    credentials.gid() == group
                        || crate::sys::peer_groups(&stream).is_ok_and(|groups| groups.contains(&group))
                });
                let peer = Peer::Unix { uid: credentials.uid(), gid: credentials.gid(), pid, in_group };
                Ok((Stream::Unix(stream), peer))
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The group of the file that a passed socket was bound to.
fn socket_group(address: SocketAddrAny) -> Option<u32> {
    let address = SocketAddrUnix::try_from(address).ok()?;
    rustix::fs::lstat(address.path()?).ok().map(|stat| stat.st_gid)
}

/// Where refusals of this listener are counted and told.
#[derive(Debug, Clone)]
struct Counts(Option<(Metrics, Arc<str>)>);

impl Counts {
    fn of(limits: &Limits) -> Self {
        Self(limits.observed.as_ref().map(|it| (it.metrics.clone(), it.listener.as_str().into())))
    }

    fn connections(&self) -> Option<prometheus_client::metrics::gauge::Gauge> {
        let (metrics, listener) = self.0.as_ref()?;
        let label = metrics::Listener { listener: listener.to_string() };
        Some(metrics.local_connections.get_or_create(&label).clone())
    }

    fn refuse(&self, reason: &'static str, peer: &Peer) {
        let listener = self.0.as_ref().map_or("", |(_, listener)| listener);
        tracing::debug!(event = "local.connection.refused", listener, reason, uid = peer.uid(), pid = peer.pid());
        if let Some((metrics, listener)) = &self.0 {
            metrics.local_refused.get_or_create(&metrics::Refusal { listener: listener.to_string(), reason }).inc();
        }
    }
}

/// How accepting fails: descriptors or memory used up, mostly.
#[derive(Debug, Default)]
struct Trouble {
    pause: Duration,
    told: Option<Instant>,
}

impl Trouble {
    /// Gets a descriptor back from a connection that answers no request, or gives the system a moment.
    async fn rest(&mut self, error: &io::Error, table: &Table, stop: &CancellationToken) {
        // The caller's own going away is no trouble of ours.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        let now = Instant::now();
        if self.told.is_none_or(|told| now - told >= Self::QUIET) {
            self.told = Some(now);
            tracing::warn!(event = "listener.accept.failed", %error, "cannot accept connections for now");
        }
        let freed = table.free_one();
        self.pause = (self.pause * 2).clamp(Self::SHORTEST, Self::LONGEST);
        let pause = if freed { Self::SHORTEST } else { self.pause };
        let _ = tokio::time::timeout(pause, stop.cancelled()).await;
    }

    fn over(&mut self) {
        self.pause = Duration::ZERO;
    }

    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);
    const QUIET: Duration = Duration::from_secs(10);
}

/// What was accepted. An enum and no trait object: a token read is short enough for the difference to show.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
