//! Accepts connections and serves them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Body;
use keyward_credentials::backoff::Backoff;
use keyward_telemetry::time_format::seconds;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::connection::{ConnectedPeer, Connection};
use super::connection_metrics::ConnectionMetrics;
use super::connection_table::{ConnectionTable, Registration};
use super::incoming_body::IncomingBody;
use super::listener::Stream;
use super::socket_file::BACKLOG;
use super::worker_threads::WorkerThreads;
use super::{Listener, ListenerLimits, Peer};
use crate::peer::PeerIdentity;
use crate::tls::ServerTls;

impl Listener {
    /// Serves until `stop`, then waits for requests in flight, at most for `limits.drain`.
    pub async fn serve<S, F, B>(self, service: S, limits: ListenerLimits, stop: CancellationToken)
    where
        S: Fn(Peer, Request<IncomingBody>) -> F + Clone + Send + Unpin + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut connections = ConnectionSet::new(&self, service, limits);
        let mut backoff = AcceptBackoff::new(connections.counters.listener());
        loop {
            // In this order: a listener that was stopped accepts nothing more, as its successor, with other rules, takes over the
            // socket. What comes before a connection is rare, or follows from one.
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(connections.sweep) => {
                    connections.close_expired();
                    continue;
                }
                () = connections.table.sweep_requested.notified() => {
                    connections.close_expired();
                    continue;
                }
                Some(_) = connections.tasks.join_next(), if !connections.tasks.is_empty() => continue,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    backoff.reset();
                    connections.serve_connection(stream, peer);
                }
                Err(error) => backoff.back_off(&error, || connections.table.evict_one(), &stop).await,
            }
        }
        accept_queued(&self, |stream, peer| connections.serve_connection(stream, peer)).await;
        drop(self);
        connections.end().await;
    }
}

/// Accepts the clients in the kernel's queue when a listener stops: they have connected and would be reset when the socket
/// is closed. A listener that was handed over leaves them to its successor.
pub(super) async fn accept_queued(listener: &Listener, mut take: impl FnMut(Stream, Peer)) {
    if listener.is_handed_over() {
        return;
    }
    let deadline = Instant::now() + ACCEPT_QUEUE_TIME;
    // The queue holds no more: clients that keep connecting do not delay the stop.
    for _ in 0..BACKLOG {
        match tokio::time::timeout_at(deadline, listener.accept()).await {
            Ok(Ok((stream, peer))) => take(stream, peer),
            Ok(Err(_)) | Err(_) => break,
        }
    }
}

/// Lateness of a sweep beyond which the process did not run.
const MAX_LATENESS: Duration = Duration::from_millis(250);

/// Time for connections to read what arrived while the process did not run.
const CATCH_UP_TIME: Duration = Duration::from_millis(100);

/// Time to accept clients from the kernel's queue when a listener stops.
const ACCEPT_QUEUE_TIME: Duration = Duration::from_millis(5);

/// Time that a connection without a first byte keeps when its listener stops: its request may have arrived unread.
const FIRST_BYTE_GRACE: Duration = Duration::from_millis(250);

/// Open connections of a listener with the service for their requests.
struct ConnectionSet<S> {
    service: S,
    tls: Option<ServerTls>,
    limits: ListenerLimits,
    counters: Arc<ConnectionMetrics>,
    table: Arc<ConnectionTable>,
    tasks: JoinSet<()>,
    threads: WorkerThreads,
    /// The listener is bound to loopback, so peers from elsewhere are refused.
    loopback: bool,
    next_id: u64,
    /// Time of the next sweep for expired connections.
    sweep: Option<Instant>,
    /// The next sweep replaces one that was late.
    is_postponed: bool,
}

impl<S> ConnectionSet<S> {
    fn new(listener: &Listener, service: S, limits: ListenerLimits) -> Self {
        let counters = Arc::new(ConnectionMetrics::new(&limits));
        let threads = WorkerThreads::start(limits.threads, &counters.listener());
        Self {
            service,
            tls: limits.tls.clone(),
            table: Arc::new(ConnectionTable::new(limits.clone(), counters.connections())),
            limits,
            counters,
            tasks: JoinSet::new(),
            threads,
            loopback: listener.tcp_address().is_some_and(|address| address.ip().to_canonical().is_loopback()),
            next_id: 0,
            sweep: None,
            is_postponed: false,
        }
    }

    /// Closes connections whose time is over. After a pause of the whole process (SIGSTOP, a paused machine, a lack of
    /// processor time), what clients have sent meanwhile is read first.
    fn close_expired(&mut self) {
        let now = Instant::now();
        if let Some(at) = self.sweep {
            if now > at + MAX_LATENESS {
                (self.sweep, self.is_postponed) = (Some(now + CATCH_UP_TIME), true);
                return;
            }
            if self.is_postponed && now < at {
                return;
            }
        }
        (self.sweep, self.is_postponed) = (self.table.sweep(), false);
    }

    fn serve_connection<F, B>(&mut self, stream: Stream, peer: Peer)
    where
        S: Fn(Peer, Request<IncomingBody>) -> F + Clone + Send + Unpin + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // With `route_localnet`, packets from other machines reach a loopback address (CVE-2020-8558).
        if self.loopback && matches!(peer, Peer::Tcp { address, .. } if !address.ip().is_loopback()) {
            return self.counters.refuse("peer", &peer);
        }
        if !self.table.make_room(&peer) {
            return self.counters.refuse("connections", &peer);
        }
        // With TLS a handshake of several messages comes before the first byte of a request.
        let first_byte = if self.tls.is_some() { self.limits.header_timeout } else { self.limits.first_byte_timeout };
        let deadline = Instant::now() + first_byte;
        self.sweep = Some(self.sweep.map_or(deadline, |at| at.min(deadline)));
        let id = self.next_id;
        self.next_id += 1;
        let (identity, incomplete) = match self.identify(&stream, &peer) {
            Some(identity) if identity.lacks_cgroup() => (None, Some(identity)),
            identity => (identity.map(Arc::new), None),
        };
        let connected = ConnectedPeer { peer, identity };
        let Ok((stream, thread)) = self.threads.assign(stream) else {
            return self.counters.refuse("connections", &peer);
        };
        let table = &self.table;
        let tasks = &mut self.tasks;
        let head_limit = self.limits.head_bytes;
        let service = self.service.clone();
        let counters = Arc::clone(&self.counters);
        // One task type each for plain and TLS connections: a common one would take TLS's memory for every plain
        // connection.
        table.enter(id, &peer, |state, entered| {
            let registration = Some(Registration { entered, counters: Arc::clone(&counters) });
            match (&self.tls, incomplete) {
                // The search may take seconds. Others are served meanwhile.
                (tls, Some(incomplete)) => {
                    let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.current()));
                    tasks.spawn_on(
                        async move {
                            let connected =
                                ConnectedPeer { peer, identity: Some(Arc::new(incomplete.with_cgroup().await)) };
                            let Some(acceptor) = acceptor else {
                                return Connection::new(stream, connected, service, head_limit, state, registration)
                                    .await;
                            };
                            match acceptor.accept(stream).await {
                                Ok(stream) => {
                                    Connection::new(stream, connected, service, head_limit, state, registration).await;
                                }
                                Err(_) => counters.refuse("tls", &peer),
                            }
                        },
                        &thread,
                    )
                }
                // The connection alone: a block around it would have room for a second one.
                (None, None) => tasks
                    .spawn_on(Connection::new(stream, connected, service, head_limit, state, registration), &thread),
                (Some(tls), None) => {
                    let acceptor = TlsAcceptor::from(tls.current());
                    tasks.spawn_on(
                        async move {
                            match acceptor.accept(stream).await {
                                Ok(stream) => {
                                    Connection::new(stream, connected, service, head_limit, state, registration).await;
                                }
                                Err(_) => counters.refuse("tls", &peer),
                            }
                        },
                        &thread,
                    )
                }
            }
        });
    }

    /// Reads the identity of a new peer at once, before its process can change much.
    fn identify(&self, stream: &Stream, peer: &Peer) -> Option<PeerIdentity> {
        let reader = self.limits.peer_reader.as_ref()?;
        Some(match (stream, *peer) {
            (Stream::Right(socket), Peer::Unix { uid, gid, pid, .. }) => {
                PeerIdentity::from_unix(reader, socket, pid, uid, gid)
            }
            (_, Peer::Tcp { owner, .. }) => PeerIdentity::from_tcp(reader, owner),
            (Stream::Left(_), Peer::Unix { .. }) => return None,
        })
    }

    /// Waits for requests in flight, at most for the drain time. If another listener replaces this one, idle clients
    /// have that time to learn of it from a response.
    async fn end(self) {
        // The threads run until the last connection has ended.
        let Self { table, mut tasks, limits, threads: _threads, .. } = self;
        if let Some(until) = &limits.replaced_until {
            table.linger();
            let ended = async { while tasks.join_next().await.is_some() {} };
            tokio::select! {
                () = ended => return,
                () = until.cancelled() => {}
                () = tokio::time::sleep(limits.drain) => {}
            }
        }
        table.close();
        let ended = async { while tasks.join_next().await.is_some() {} };
        let first_byte_grace = async {
            tokio::time::sleep(FIRST_BYTE_GRACE).await;
            table.close_silent();
            std::future::pending::<()>().await;
        };
        let ended = async {
            tokio::select! {
                () = ended => {}
                () = first_byte_grace => {}
            }
        };
        if tokio::time::timeout(limits.drain, ended).await.is_err() {
            tasks.shutdown().await;
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Backoff after failures of `accept`, mostly for lack of descriptors or memory.
#[derive(Debug)]
pub(super) struct AcceptBackoff {
    /// Name of the listener; empty for one without metrics.
    listener: Arc<str>,
    backoff: Backoff,
    logged: Option<Instant>,
    /// Time of the reported failure, until a connection is accepted.
    failing_since: Option<Instant>,
}

impl AcceptBackoff {
    pub(super) const fn new(listener: Arc<str>) -> Self {
        Self { listener, backoff: Self::PAUSES, logged: None, failing_since: None }
    }

    /// Has `evict` close an idle connection to free a descriptor, or waits.
    pub(super) async fn back_off(&mut self, error: &io::Error, evict: impl FnOnce() -> bool, stop: &CancellationToken) {
        // The client has disconnected, which is not a failure of this listener.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        let now = Instant::now();
        if self.logged.is_none_or(|logged| now - logged >= Self::QUIET) {
            self.logged = Some(now);
            self.failing_since.get_or_insert(now);
            let listener = &*self.listener;
            let error = error.to_string();
            tracing::warn!(event = "listener.accept.failed", listener, error, "cannot accept connections for now");
        }
        let freed = evict();
        let pause = self.backoff.next(1.0);
        let pause = if freed { Self::MIN_PAUSE } else { pause };
        let _ = tokio::time::timeout(pause, stop.cancelled()).await;
    }

    pub(super) fn reset(&mut self) {
        self.backoff.reset();
        if let Some(since) = self.failing_since.take() {
            let listener = &*self.listener;
            let lasted_seconds = seconds(since.elapsed());
            tracing::info!(event = "listener.recovered", listener, lasted_seconds, "connections are accepted again");
        }
    }

    /// Without a free descriptor `accept` fails at once: the loop would occupy a whole core.
    const PAUSES: Backoff = Backoff::new(Self::MIN_PAUSE, Duration::from_secs(1));
    const MIN_PAUSE: Duration = Duration::from_millis(50);
    const QUIET: Duration = Duration::from_secs(10);
}
