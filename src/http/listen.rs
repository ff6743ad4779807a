//! The only accept loop: TCP and unix sockets, time-outs, connection limits, drain.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(UnixSocket),
    /// A socket that the service manager opened and passed by this name (`FileDescriptorName=`).
    Inherited(String),
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
pub struct Limits {
    /// Time for a request's head to arrive, from the first byte awaited on.
    pub header_timeout: Duration,
    /// Connections at once.
    pub connections: usize,
    /// Time for requests in flight to end once it stops.
    pub drain: Duration,
    /// TLS, where it is spoken.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { header_timeout: Duration::from_secs(5), connections: 1024, drain: Duration::from_secs(10), tls: None }
    }
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
    },
    /// A TCP peer.
    Tcp(SocketAddr),
}

/// A bound socket that does not accept yet: an address that is taken is known before anything starts.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Binds. Must be called inside a runtime.
    ///
    /// # Errors
    /// The address is taken, not allowed, or not there.
    pub fn bind(endpoint: &Endpoint) -> std::io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(TcpListener::from_std(listener)?))
            }
            Endpoint::Unix(socket) => Ok(Self::Unix(UnixListener::bind(&socket.path)?)),
            Endpoint::Inherited(name) => Err(std::io::Error::other(format!("no socket was passed by the name {name}"))),
        }
    }

    /// The TCP address that was bound.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Serves until `stop`, then lets requests in flight end, at most for `limits.drain`.
    pub async fn serve<S, F, B>(self, service: S, limits: Limits, stop: CancellationToken)
    where
        S: Fn(Peer, Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let acceptor = limits.tls.clone().map(tokio_rustls::TlsAcceptor::from);
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let Ok((stream, peer)) = accepted else {
                // Out of descriptors or the like: give the system a moment.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout);
            let watcher = graceful.watcher();
            let service = service.clone();
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let answer = service(peer, request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let stream: Box<dyn Stream> = match acceptor {
                    None => stream,
                    Some(acceptor) => match acceptor.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => return,
                    },
                };
                let _ = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await;
            });
        }
        drop(self);
        let _ = tokio::time::timeout(limits.drain, graceful.shutdown()).await;
    }

    async fn accept(&self) -> std::io::Result<(Box<dyn Stream>, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), Peer::Tcp(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let credentials = stream.peer_cred()?;
                let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
                Ok((Box::new(stream), Peer::Unix { uid: credentials.uid(), gid: credentials.gid(), pid }))
            }
        }
    }
}

/// Serves an axum router; each request carries its [`Peer`] as an extension.
pub fn router(router: axum::Router) -> impl Fn(Peer, Request<Incoming>) -> RouterAnswer + Clone + Send + 'static {
    move |peer, mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let router = router.clone();
        Box::pin(async move {
            let Ok(answer) = tower::ServiceExt::oneshot(router, request).await;
            answer
        })
    }
}

/// What [`router`]'s service answers with.
pub type RouterAnswer = std::pin::Pin<Box<dyn Future<Output = Response<axum::body::Body>> + Send + 'static>>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}
