//! A TCP proxy between the program and a server of the test that breaks connections as networks do, and counts what passes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Behaviour of the proxy. Positions count the bytes of a response, from the request before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Nothing listens, and open connections are reset.
    Refuse,
    /// Connections are accepted and read; nothing is forwarded.
    Silence,
    /// Each piece of a response comes later.
    Latency(Duration),
    /// The connection is reset after so many bytes.
    Reset(usize),
    /// The connection is closed in order after so many bytes.
    Finish(usize),
    /// One byte at a time, with this pause.
    Drip(Duration),
    /// One bit of this byte is wrong.
    Flip(usize),
}

/// A running proxy; its connections end with it.
pub(crate) struct ChaosProxy {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    upstream: Mutex<SocketAddr>,
    fault: watch::Sender<Fault>,
    listens: watch::Sender<bool>,
    connections: AtomicU64,
    requests: Mutex<Vec<String>>,
    logins: AtomicUsize,
    most_logins: AtomicUsize,
}

impl ChaosProxy {
    /// Listens at an address and forwards to another; both may not be reachable from outside of the test's network.
    pub(crate) fn start(runtime: &Handle, address: SocketAddr, upstream: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            fault: watch::Sender::default(),
            listens: watch::Sender::default(),
            connections: AtomicU64::new(0),
            requests: Mutex::default(),
            logins: AtomicUsize::new(0),
            most_logins: AtomicUsize::new(0),
        });
        let accepting = runtime.spawn(accept(Arc::clone(&shared), address));
        let this = Self { shared, accepting };
        this.set(runtime, Fault::None);
        this
    }

    /// Changes the behaviour, also of open connections; returns once the listener follows.
    pub(crate) fn set(&self, runtime: &Handle, fault: Fault) {
        self.shared.fault.send_replace(fault);
        let expected = fault != Fault::Refuse;
        let mut listens = self.shared.listens.subscribe();
        runtime.block_on(async { listens.wait_for(|listens| *listens == expected).await.map(drop) }).unwrap();
    }

    /// Forwards new connections to another server.
    pub(crate) fn set_target(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock() = upstream;
    }

    /// Number of connections that were accepted.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// First lines of the requests that came, where they came in plain text.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().clone()
    }

    /// Most logins that were under way at once.
    pub(crate) fn most_logins(&self) -> usize {
        self.shared.most_logins.load(Ordering::SeqCst)
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(shared: Arc<Shared>, address: SocketAddr) {
    let mut fault = shared.fault.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let Ok(listener) = TcpListener::bind(address).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        shared.listens.send_replace(true);
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    if let Ok((near, _)) = accepted {
                        shared.connections.fetch_add(1, Ordering::SeqCst);
                        connections.spawn(relay(near, Arc::clone(&shared)));
                    }
                }
                _ = fault.wait_for(|fault| *fault == Fault::Refuse) => break,
            }
        }
        drop(listener);
        connections.shutdown().await;
        shared.listens.send_replace(false);
        let _ = fault.wait_for(|fault| *fault != Fault::Refuse).await;
    }
}

/// A login under way.
struct Login(Arc<Shared>);

impl Login {
    fn begin(shared: &Arc<Shared>) -> Self {
        let logins = shared.logins.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_logins.fetch_max(logins, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.0.logins.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    /// Records a request's first line; a login counts until its response begins.
    fn record(self: &Arc<Self>, bytes: &[u8]) -> Option<Login> {
        let text = String::from_utf8_lossy(bytes);
        let line = text.lines().next().filter(|line| line.ends_with(" HTTP/1.1"))?.to_owned();
        let login = line.contains("/login ").then(|| Login::begin(self));
        self.requests.lock().push(line);
        login
    }
}

/// Forwards one connection. It is reset where this ends before the other side closes.
async fn relay(mut near: TcpStream, shared: Arc<Shared>) {
    let upstream = *shared.upstream.lock();
    let Ok(mut far) = TcpStream::connect(upstream).await else { return };
    let _ = near.set_zero_linger();
    let fault = shared.fault.subscribe();
    let (mut request, mut response) = (vec![0; 65536], vec![0; 65536]);
    let (mut sent, mut login) = (0, None);
    loop {
        tokio::select! {
            read = near.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                login = shared.record(&request[..length]).or(login);
                sent = 0;
                if *fault.borrow() != Fault::Silence && far.write_all(&request[..length]).await.is_err() {
                    return;
                }
            }
            read = far.read(&mut response) => {
                let length = read.unwrap_or(0);
                if length == 0 {
                    close(&mut near).await;
                    return;
                }
                drop(login.take());
                if !deliver(&mut near, &mut response[..length], sent, &fault).await {
                    return;
                }
                sent += length;
            }
        }
    }
}

/// Passes a piece of a response on, as the fault has it; false if the connection is over.
async fn deliver(near: &mut TcpStream, piece: &mut [u8], sent: usize, fault: &watch::Receiver<Fault>) -> bool {
    let now = *fault.borrow();
    match now {
        Fault::None | Fault::Refuse => near.write_all(piece).await.is_ok(),
        // A response that was already being sent when the silence began.
        Fault::Silence => true,
        Fault::Latency(time) => {
            tokio::time::sleep(time).await;
            near.write_all(piece).await.is_ok()
        }
        Fault::Flip(at) => {
            if let Some(byte) = at.checked_sub(sent).and_then(|at| piece.get_mut(at)) {
                *byte ^= 1;
            }
            near.write_all(piece).await.is_ok()
        }
        Fault::Drip(pause) => {
            for byte in piece.iter() {
                if near.write_all(&[*byte]).await.is_err() {
                    return false;
                }
                if *fault.borrow() == now {
                    tokio::time::sleep(pause).await;
                }
            }
            true
        }
        Fault::Reset(after) | Fault::Finish(after) => {
            let rest = after.saturating_sub(sent);
            if rest > piece.len() {
                return near.write_all(piece).await.is_ok();
            }
            let _ = near.write_all(&piece[..rest]).await;
            if matches!(now, Fault::Finish(_)) {
                close(near).await;
            }
            false
        }
    }
}

/// Closes a connection in order.
async fn close(near: &mut TcpStream) {
    let _ = near.shutdown().await;
    // Its other end closes too; a connection that is dropped before is reset.
    let _ = tokio::time::timeout(Duration::from_secs(2), near.read(&mut [0; 64])).await;
}

/// An address where packets vanish: a listener whose queue is full answers no connection, and refuses none.
pub(crate) struct Blackhole {
    _listener: rustix::fd::OwnedFd,
    _queue: Vec<std::net::TcpStream>,
}

impl Blackhole {
    pub(crate) fn at(address: SocketAddr) -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
        let listener = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseaddr(&listener, true).unwrap();
        bind(&listener, &address).unwrap();
        listen(&listener, 0).unwrap();
        // A queue of length 0 holds one connection; the next one is never answered.
        let short = Duration::from_millis(300);
        let queue = std::iter::from_fn(|| std::net::TcpStream::connect_timeout(&address, short).ok()).take(8).collect();
        Self { _listener: listener, _queue: queue }
    }
}
