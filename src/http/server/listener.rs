//! Binds sockets and accepts connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use super::socket_file::{self, SocketFile};
use super::{ActivatedSockets, Endpoint, Peer, UnixSocket};
use crate::peer::{known_group, sock_diag};

/// Accepted stream.
pub(super) type Stream = Either<TcpStream, UnixStream>;

/// Bound socket that does not accept yet, so that a conflict is known before anything starts.
///
/// A unix socket file that was bound here is removed when the last clone is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    file: Option<Arc<SocketFile>>,
    /// True once another listener serves the socket.
    is_handed_over: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    /// The socket, and the group whose members are accepted; `None` for a group without an id in this user namespace.
    Unix(UnixListener, Option<u32>),
}

impl Listener {
    /// Binds an endpoint. Must be called inside a tokio runtime. An [`Endpoint::Activated`] is an error here: see
    /// [`Listener::open`].
    ///
    /// The path of a unix socket may hold a dead socket or one of this process, which is replaced.
    pub fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        Self::open(endpoint, &ActivatedSockets::default())
    }

    /// Binds an endpoint like [`Listener::bind`], or takes it from the sockets that the service manager passed.
    ///
    /// # Errors
    /// As [`Listener::bind`]; or no socket or several were passed by that name, or it does not accept streams.
    pub fn open(endpoint: &Endpoint, inherited: &ActivatedSockets) -> io::Result<Self> {
        let listener = Self::open_unplaced(endpoint, inherited)?;
        listener.place()?;
        listener.discard_replaced();
        Ok(listener)
    }

    /// Opens an endpoint like [`Listener::open`], but leaves the path of a unix socket alone until [`Listener::place`].
    pub fn open_unplaced(endpoint: &Endpoint, inherited: &ActivatedSockets) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                // The standard library's queue is 128 long: of a larger burst, callers wait a second for another try.
                rustix::net::listen(&listener, socket_file::BACKLOG)?;
                Self::tcp(listener)
            }
            Endpoint::Unix(socket) => Self::unix(socket),
            Endpoint::Activated(name) => Self::adopt(inherited.socket(name)?),
        }
    }

    /// Moves the file of a unix socket to its path, unless it is there already. If the last clone is dropped before
    /// [`Listener::discard_replaced`], the file that was there is put back.
    pub fn place(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.place())
    }

    /// Removes the file that [`Listener::place`] replaced.
    pub fn discard_replaced(&self) {
        if let Some(file) = &self.file {
            file.discard_replaced();
        }
    }

    fn tcp(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?.ip().to_canonical();
        // Accepted connections inherit both options. With a TTL of 1 no packet passes the first router, whatever
        // `route_localnet` and port forwards do with loopback addresses.
        rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
        if local.is_loopback() {
            match local {
                IpAddr::V4(_) => rustix::net::sockopt::set_ip_ttl(&listener, 1)?,
                IpAddr::V6(_) => rustix::net::sockopt::set_ipv6_unicast_hops(&listener, Some(1))?,
            }
        }
        Ok(Self::new(Socket::Tcp(TcpListener::from_std(listener)?), None))
    }

    fn unix(socket: &UnixSocket) -> io::Result<Self> {
        let (listener, file) = socket_file::bind(socket)?;
        let socket = Socket::Unix(UnixListener::from_std(listener)?, known_group(file.group));
        Ok(Self::new(socket, Some(Arc::new(file))))
    }

    fn adopt(socket: OwnedFd) -> io::Result<Self> {
        use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
        // With `Accept=yes` a socket unit passes connections, which accept none (systemd.socket(5)).
        if socket_type(&socket)? != SocketType::STREAM || !socket_acceptconn(&socket)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the passed socket does not accept streams"));
        }
        match socket_domain(&socket)? {
            AddressFamily::INET | AddressFamily::INET6 => Self::tcp(std::net::TcpListener::from(socket)),
            AddressFamily::UNIX => {
                let address = SocketAddrUnix::try_from(rustix::net::getsockname(&socket)?).ok();
                let Some(address) = address.filter(|address| address.path().is_some()) else {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, ABSTRACT_NAME));
                };
                let group = socket_group(&address);
                let listener = std::os::unix::net::UnixListener::from(socket);
                listener.set_nonblocking(true)?;
                Ok(Self::new(Socket::Unix(UnixListener::from_std(listener)?, group), None))
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the passed socket is neither TCP nor unix")),
        }
    }

    fn new(socket: Socket, file: Option<Arc<SocketFile>>) -> Self {
        Self { socket, file, is_handed_over: Arc::default() }
    }

    /// Duplicates the socket for the listener that serves it next: clients that connect in between wait in the kernel's
    /// queue. [`Listener::hand_over`] leaves them there.
    pub fn clone_for_successor(&self) -> io::Result<Self> {
        Ok(Self { is_handed_over: Arc::default(), ..self.try_clone()? })
    }

    /// Leaves clients in the kernel's queue to the listener that serves the socket next, whose rules may differ. For this
    /// listener and its duplicates.
    pub fn hand_over(&self) {
        self.is_handed_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Relaxed)
    }

    /// Duplicates the socket.
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
        Ok(Self { socket, file: self.file.clone(), is_handed_over: Arc::clone(&self.is_handed_over) })
    }

    /// Returns the bound TCP address; `None` for a unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Returns the listener if only callers of this machine can reach it.
    ///
    /// # Errors
    /// It is a TCP socket beyond loopback. The configuration's own addresses were checked before; a passed socket shows its
    /// address only now.
    pub fn require_loopback(self) -> io::Result<Self> {
        match self.tcp_address() {
            Some(address) if !address.ip().to_canonical().is_loopback() => {
                let text = format!(
                    "the passed socket listens on {address}, which is not loopback; set ListenStream=127.0.0.1:{} in its unit",
                    address.port()
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            _ => Ok(self),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // A socket for both families reports an IPv4 client as `::ffff:a.b.c.d`, which is not a loopback address by itself.
                let address = canonical(address);
                let local = canonical(stream.local_addr()?);
                let owner = sock_diag::peer_owner(&stream, address, local);
                Ok((Either::Left(stream), Peer::Tcp { address, local, owner }))
            }
            Socket::Unix(listener, group) => {
                let (stream, _) = listener.accept().await?;
                let credentials = stream.peer_cred()?;
                // The kernel reports 0 for a process of a pid namespace that this one does not see.
                let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
                let in_group = group.is_some_and(|group| {
                    credentials.gid() == group
                        || keyward_machine::os::peer_groups(&stream).is_ok_and(|groups| groups.contains(&group))
                });
                let peer = Peer::Unix { uid: credentials.uid(), gid: credentials.gid(), pid, in_group };
                Ok((Either::Right(stream), peer))
            }
        }
    }
}

/// Returns an address with an IPv4 address in place of one that IPv6 maps.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the group of a passed unix socket's file.
fn socket_group(address: &SocketAddrUnix) -> Option<u32> {
    rustix::fs::lstat(address.path()?).ok().and_then(|stat| known_group(stat.st_gid))
}

/// An abstract name has neither mode nor owner, and containers that share the network reach it (CVE-2020-15257).
const ABSTRACT_NAME: &str =
    "the passed socket has an abstract name, which no mode protects; set ListenStream= to a path in its unit";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_burst_of_connections_waits_in_the_queue() {
        let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let address = listener.tcp_address().unwrap();
        let connect = |_| std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(900));
        let queued: Vec<_> = (0..500).map(connect).collect::<Result<_, _>>().unwrap();
        assert_eq!(queued.len(), 500);
    }

    #[tokio::test]
    async fn connections_on_loopback_have_a_ttl_of_one_and_no_delay() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = Listener::bind(&Endpoint::Tcp(address.parse().unwrap())).unwrap();
            let address = listener.tcp_address().unwrap();
            let (_caller, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (Either::Left(stream), Peer::Tcp { .. }) = accepted.unwrap() else { panic!("a TCP stream") };
            assert!(stream.nodelay().unwrap());
            let hops = match address {
                SocketAddr::V4(_) => rustix::net::sockopt::ip_ttl(&stream).unwrap(),
                SocketAddr::V6(_) => u32::from(rustix::net::sockopt::ipv6_unicast_hops(&stream).unwrap()),
            };
            assert_eq!(hops, 1, "{address}");
        }
    }
}
