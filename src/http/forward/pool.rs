//! Connections to one upstream: lent for one request each, kept for the next, never more than the cap.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{ForwardError, Options, Target, Upstream};

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) options: Options,
    /// One permit for each connection that answers a request.
    places: Arc<Semaphore>,
    idle: Arc<Idle>,
    /// What drives the connections; dropped with the pool.
    drivers: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct Idle(Mutex<Vec<(SendRequest<Upstream>, Instant)>>);

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Vec<(SendRequest<Upstream>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is lent for one request. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Lent {
    sender: SendRequest<Upstream>,
    idle: Arc<Idle>,
    _place: OwnedSemaphorePermit,
    /// Whether it has answered a request before.
    pub(super) kept: bool,
}

impl Lent {
    pub(super) const fn sender(&mut self) -> &mut SendRequest<Upstream> {
        &mut self.sender
    }

    /// Its answer is read: it may serve the next request.
    pub(super) fn give_back(self) {
        if !self.sender.is_closed() {
            self.idle.lock().push((self.sender, Instant::now()));
        }
    }
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        let places = Arc::new(Semaphore::new(options.connections));
        Self { options, places, idle: Arc::default(), drivers: Mutex::default() }
    }

    /// A connection that was kept, or a new one.
    pub(super) async fn lend(&self) -> Result<Lent, ForwardError> {
        let place = self.place().await?;
        while let Some(mut sender) = self.last_kept() {
            // It is ready once its driver has seen the last answer's end, which may be a moment after its reader.
            if let Ok(Ok(())) = tokio::time::timeout(READY_WITHIN, sender.ready()).await {
                return Ok(Lent { sender, idle: Arc::clone(&self.idle), _place: place, kept: true });
            }
        }
        self.connect(place).await
    }

    /// A new connection.
    pub(super) async fn lend_new(&self) -> Result<Lent, ForwardError> {
        let place = self.place().await?;
        self.connect(place).await
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, ForwardError> {
        let place = Arc::clone(&self.places).acquire_owned();
        match tokio::time::timeout(self.options.connect_timeout, place).await {
            Ok(Ok(place)) => Ok(place),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(ForwardError::Busy(self.options.connections)),
        }
    }

    /// The one that was used last: the others get old and are closed.
    fn last_kept(&self) -> Option<SendRequest<Upstream>> {
        let mut idle = self.idle.lock();
        let now = Instant::now();
        idle.retain(|(sender, since)| !sender.is_closed() && now - *since < self.options.idle);
        idle.pop().map(|(sender, _)| sender)
    }

    async fn connect(&self, place: OwnedSemaphorePermit) -> Result<Lent, ForwardError> {
        let limit = self.options.connect_timeout;
        let sender = tokio::time::timeout(limit, self.dial())
            .await
            .map_err(|_| ForwardError::ConnectTimeout(limit))?
            .map_err(ForwardError::Connect)?;
        Ok(Lent { sender, idle: Arc::clone(&self.idle), _place: place, kept: false })
    }

    async fn dial(&self) -> io::Result<SendRequest<Upstream>> {
        match &self.options.target {
            Target::Tcp(address) => self.speak(nodelay(TcpStream::connect(address).await?)?).await,
            Target::Host(host, port) => self.speak(nodelay(TcpStream::connect((host.as_str(), *port)).await?)?).await,
            Target::Unix(path) => self.speak(UnixStream::connect(path).await?).await,
        }
    }

    async fn speak<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: I,
    ) -> io::Result<SendRequest<Upstream>> {
        match &self.options.tls {
            None => self.start(stream).await,
            Some((config, name)) => {
                let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
                self.start(connector.connect(name.clone(), stream).await?).await
            }
        }
    }

    async fn start<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: I,
    ) -> io::Result<SendRequest<Upstream>> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async move {
            // Its failure is the failure of the request on it, told there.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// A driver that takes longer than this has not read its answer's end: the connection is closed, and another taken.
const READY_WITHIN: Duration = Duration::from_millis(100);

fn nodelay(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}
