//! Connection pool of one upstream: each connection serves one request at a time and is then kept for the next.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{self, Handle};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::either::Either;

use super::connect::connect_host;
use super::connection_slots::{ConnectionSlot, ConnectionSlots};
use super::http1::{PlainStream, UpstreamConnection};
use super::{ForwardError, ForwarderOptions, UpstreamAddress, connect};
use crate::server::CallerGroup;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) options: ForwarderOptions,
    /// One slot for each connection that serves a request.
    slots: Arc<ConnectionSlots>,
    idle: Arc<IdlePool>,
    /// Task that closes old connections; aborted with the pool.
    closing: Mutex<JoinSet<()>>,
}

/// Idle connections, separately for each runtime that they are registered with: a listener with several threads has as many.
#[derive(Debug, Default)]
struct IdlePool(Mutex<Vec<IdleConnections>>);

/// Idle connections of one runtime, the last used one at the end.
#[derive(Debug)]
struct IdleConnections {
    runtime: runtime::Id,
    connections: Vec<(Box<UpstreamConnection>, Instant)>,
    /// A task closes them in time.
    watched: bool,
}

impl IdlePool {
    /// Accesses the connections of a runtime.
    fn access<T>(&self, runtime: runtime::Id, access: impl FnOnce(&mut IdleConnections) -> T) -> T {
        let mut all = self.0.lock();
        let number = all.iter().position(|idle| idle.runtime == runtime).unwrap_or_else(|| {
            all.push(IdleConnections { runtime, connections: Vec::new(), watched: false });
            all.len() - 1
        });
        access(&mut all[number])
    }

    /// Closes the connections of a runtime that get old, until there are none.
    async fn close_old(&self, runtime: runtime::Id, max_age: Duration) {
        loop {
            let oldest = self.access(runtime, |idle| {
                let now = Instant::now();
                idle.connections.retain(|(_, since)| now - *since < max_age);
                idle.watched = !idle.connections.is_empty();
                idle.connections.first().map(|(_, since)| *since)
            });
            match oldest {
                Some(since) => tokio::time::sleep_until(since + max_age).await,
                None => return,
            }
        }
    }

    /// Closes the connections that have been idle for longest, so that at most `max` remain.
    fn retain(&self, max: usize) {
        let mut all = self.0.lock();
        let count = all.iter().map(|idle| idle.connections.len()).sum::<usize>();
        for _ in max..count {
            let idle = all.iter_mut().filter(|idle| !idle.connections.is_empty());
            if let Some(oldest) = idle.min_by_key(|idle| idle.connections.first().map(|(_, since)| *since)) {
                oldest.connections.remove(0);
            }
        }
    }
}

/// Connection checked out for one request; closed when dropped.
#[derive(Debug)]
pub(super) struct PooledConnection {
    /// Boxed, since it is moved several times for each request.
    pub(super) wire: Box<UpstreamConnection>,
    pool: Arc<Pool>,
    _place: ConnectionSlot,
    /// It has served a request before.
    pub(super) reused: bool,
}

impl PooledConnection {
    /// Returns the time that a response body may pause.
    pub(super) fn body_idle(&self) -> Option<Duration> {
        self.pool.options.body_idle
    }

    /// Returns the connection to the pool after its response was read, if it can be reused.
    pub(super) fn release(self) {
        if self.wire.is_reusable() {
            self.pool.keep(self.wire);
        }
    }
}

impl Pool {
    pub(super) fn new(options: ForwarderOptions) -> Self {
        let slots =
            Arc::new(ConnectionSlots::new(options.connections, options.connect_timeout, options.recorder.clone()));
        Self { options, slots, idle: Arc::default(), closing: Mutex::default() }
    }

    /// Checks out an idle connection, or opens a new one.
    pub(super) async fn check_out(self: &Arc<Self>, caller: CallerGroup) -> Result<PooledConnection, ForwardError> {
        let slot = self.slots.take(caller).await?;
        while let Some(mut wire) = self.pop_idle() {
            if poll_fn(|cx| Poll::Ready(wire.poll_ready(cx))).await {
                return Ok(PooledConnection { wire, pool: Arc::clone(self), _place: slot, reused: true });
            }
        }
        // Boxed: otherwise every request's future would reserve memory for a handshake, which few do.
        Box::pin(self.connect(slot)).await
    }

    /// Opens a new connection.
    pub(super) async fn open_new(self: &Arc<Self>, caller: CallerGroup) -> Result<PooledConnection, ForwardError> {
        let slot = self.slots.take(caller).await?;
        self.connect(slot).await
    }

    /// Takes the last used connection; if it is too old, all are.
    fn pop_idle(&self) -> Option<Box<UpstreamConnection>> {
        self.idle.access(Handle::current().id(), |idle| {
            // The last used one first: the others get old, and a burst's connections are closed soon after it.
            let (wire, since) = idle.connections.pop()?;
            if since.elapsed() < self.options.idle {
                return Some(wire);
            }
            idle.connections.clear();
            None
        })
    }

    async fn connect(self: &Arc<Self>, slot: ConnectionSlot) -> Result<PooledConnection, ForwardError> {
        // A thread cannot use the idle connections of another one.
        self.idle.retain(self.options.connections.saturating_sub(self.slots.in_use()));
        let limit = self.options.connect_timeout;
        let wire = tokio::time::timeout(limit, self.dial())
            .await
            .map_err(|_| ForwardError::ConnectTimeout { upstream: self.options.target.to_string(), after: limit })?
            .map_err(|error| ForwardError::Connect(self.options.target.to_string(), error))?;
        Ok(PooledConnection { wire: Box::new(wire), pool: Arc::clone(self), _place: slot, reused: false })
    }

    /// Keeps a connection for the next request. One that the upstream closes is detected at the next checkout, or
    /// dropped when it gets old.
    fn keep(&self, wire: Box<UpstreamConnection>) {
        let runtime = Handle::current().id();
        let watched = self.idle.access(runtime, |idle| {
            idle.connections.push((wire, Instant::now()));
            std::mem::replace(&mut idle.watched, true)
        });
        if !watched {
            let idle = Arc::clone(&self.idle);
            let most = self.options.idle;
            let mut closing = self.closing.lock();
            while closing.try_join_next().is_some() {}
            closing.spawn(async move { idle.close_old(runtime, most).await });
        }
    }

    async fn dial(&self) -> io::Result<UpstreamConnection> {
        let limit = self.options.connect_timeout;
        let stream = match &self.options.target {
            UpstreamAddress::Tcp(address) => tcp(TcpStream::connect(address).await?)?,
            UpstreamAddress::Host(host, port) => tcp(connect_host(host, *port, limit).await?)?,
            UpstreamAddress::Unix(path) => Either::Left(Either::Right(UnixStream::connect(path).await?)),
            UpstreamAddress::Through(proxy) => Either::Right(connect::connect_tunnel(proxy, limit).await?),
        };
        let stream = match &self.options.tls {
            None => Either::Left(stream),
            Some((config, name)) => {
                let connector = tokio_rustls::TlsConnector::from(config.current());
                Either::Right(Box::new(connector.connect(name.clone(), stream).await?))
            }
        };
        Ok(UpstreamConnection::new(stream))
    }
}

fn tcp(stream: TcpStream) -> io::Result<PlainStream> {
    stream.set_nodelay(true)?;
    Ok(Either::Left(Either::Left(stream)))
}
