//! Looks up the user and the cgroup that own a local TCP connection by the kernel's socket diagnostics (`sock_diag(7)`): one request
//! and one response, each of a fixed layout.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Once, OnceLock};

use parking_lot::Mutex;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use tokio::net::TcpStream;

/// Owner of a local TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketOwner {
    /// User that created the socket.
    pub uid: u32,
    /// Cgroup of version 2 in which the socket was created (Linux 5.9).
    pub cgroup_id: Option<u64>,
}

/// Returns the owner of the socket at the other end of an accepted connection; `peer` and `local` are the addresses of its two
/// ends. `None` for another machine's, if the kernel does not support the query, and if the socket has no owner any more.
pub(crate) fn peer_owner(stream: &TcpStream, peer: SocketAddr, local: SocketAddr) -> Option<SocketOwner> {
    // Users of other machines are unknown here.
    let is_local = peer.ip().is_loopback() || peer.ip() == local.ip();
    let owner = is_local.then(|| owner(peer, local)).flatten();
    // A peer that has reset the connection leaves its address to others, one of whom was found then. While this end is
    // connected, nobody else can have the pair of addresses.
    owner.filter(|_| stream.peer_addr().is_ok())
}

fn owner(peer: SocketAddr, local: SocketAddr) -> Option<SocketOwner> {
    channel()?.query(peer, local).ok()?
}

/// Returns true if the kernel reports the owners of TCP connections.
pub fn reports_tcp_owners() -> bool {
    channel().is_some()
}

/// Checks once whether the kernel reports the owners of TCP connections. Call it before this process gives up the right to
/// connect to itself; the first use reports the outcome.
pub fn check_tcp_owners() {
    open_once();
}

fn open_once() -> &'static io::Result<Channel> {
    static CHANNEL: OnceLock<io::Result<Channel>> = OnceLock::new();
    CHANNEL.get_or_init(|| Channel::open().and_then(|channel| channel.check().map(|()| channel)))
}

fn channel() -> Option<&'static Channel> {
    static REPORT: Once = Once::new();
    if let Err(error) = open_once() {
        REPORT.call_once(|| {
            tracing::warn!(
                event = "listener.callers.unknown",
                error = error.to_string(),
                "the kernel does not report the user of a TCP connection; limits per caller apply by address"
            );
        });
    }
    open_once().as_ref().ok()
}

/// Netlink socket for one request at a time.
struct Channel(Mutex<(OwnedFd, u32)>);

impl Channel {
    fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(SOCK_DIAG))?;
        Ok(Self(Mutex::new((socket, 0))))
    }

    /// Checks that the kernel finds a socket of this process.
    fn check(&self) -> io::Result<()> {
        let listener =
            std::net::TcpListener::bind("127.0.0.1:0").or_else(|_| std::net::TcpListener::bind("[::1]:0"))?;
        let stream = std::net::TcpStream::connect(listener.local_addr()?)?;
        match self.query(stream.local_addr()?, stream.peer_addr()?)? {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn query(&self, peer: SocketAddr, local: SocketAddr) -> io::Result<Option<SocketOwner>> {
        let mut inner = self.0.lock();
        let (socket, sequence) = &mut *inner;
        *sequence = sequence.wrapping_add(1);
        let Some(request) = request(peer, local, *sequence) else { return Ok(None) };
        rustix::net::sendto(&*socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        loop {
            let mut reply = [0; 1024];
            // The kernel queues its response before `sendto` returns.
            let (length, _) = rustix::net::recv(&*socket, &mut reply, RecvFlags::empty())?;
            let reply = reply.get(..length).unwrap_or_default();
            if read_u32(reply, 8) == Some(*sequence) {
                return read(reply);
            }
        }
    }
}

/// Encodes an `inet_diag_req_v2` after its `nlmsghdr`; `None` if the addresses are of different families.
fn request(peer: SocketAddr, local: SocketAddr, sequence: u32) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(LENGTH as usize);
    out.extend(LENGTH.to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend(NLM_F_REQUEST.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend(0_u32.to_ne_bytes());
    let family = match (peer, local) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => AddressFamily::INET,
        (SocketAddr::V6(_), SocketAddr::V6(_)) => AddressFamily::INET6,
        _ => return None,
    };
    out.extend([u8::try_from(family.as_raw()).ok()?, IPPROTO_TCP, 0, 0]);
    out.extend(u32::MAX.to_ne_bytes());
    // From the client's point of view: its socket is the source.
    out.extend(peer.port().to_be_bytes());
    out.extend(local.port().to_be_bytes());
    for ip in [peer.ip(), local.ip()] {
        let mut field = [0; 16];
        match ip {
            IpAddr::V4(ip) => field[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => field = ip.octets(),
        }
        out.extend(field);
    }
    // Any interface, and no cookie.
    out.extend([0_u32, u32::MAX, u32::MAX].map(u32::to_ne_bytes).as_flattened());
    Some(out)
}

/// Decodes the owner from an `inet_diag_msg` after its `nlmsghdr`.
fn read(reply: &[u8]) -> io::Result<Option<SocketOwner>> {
    let kind = reply.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    if kind != Some(SOCK_DIAG_BY_FAMILY) {
        return match read_u32(reply, 16).map(u32::cast_signed) {
            Some(error) if kind == Some(NLMSG_ERROR) && -error == rustix::io::Errno::NOENT.raw_os_error() => Ok(None),
            Some(error) if kind == Some(NLMSG_ERROR) => Err(io::Error::from_raw_os_error(-error)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        };
    }
    let state = reply.get(17).copied();
    let user = read_u32(reply, 16 + 64);
    let inode = read_u32(reply, 16 + 68);
    // The kernel reports the remains of a closed socket as root's.
    let owned = matches!(state, Some(ESTABLISHED | CLOSE_WAIT)) && inode.is_some_and(|inode| inode != 0);
    Ok(user.filter(|_| owned).map(|uid| SocketOwner { uid, cgroup_id: cgroup_id(reply.get(16 + 72..)) }))
}

/// Finds the cgroup among the attributes behind an `inet_diag_msg`, each of a length, a type and a padded value.
fn cgroup_id(attributes: Option<&[u8]>) -> Option<u64> {
    let mut attributes = attributes?;
    loop {
        let field = |at: usize| attributes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
        let length = usize::from(field(0)?);
        let kind = field(2)?;
        if kind == INET_DIAG_CGROUP_ID {
            return attributes.get(4..12)?.try_into().ok().map(u64::from_ne_bytes);
        }
        // A length includes its own four bytes.
        attributes = attributes.get(Some(length).filter(|length| *length >= 4)?.next_multiple_of(4)..)?;
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

// From linux/netlink.h, linux/sock_diag.h and net/tcp_states.h.
const LENGTH: u32 = 16 + 56;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const IPPROTO_TCP: u8 = 6;
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;
// From linux/inet_diag.h.
const INET_DIAG_CGROUP_ID: u16 = 21;

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as the kernel writes it.
    fn message(state: u8, user: u32, inode: u32) -> Vec<u8> {
        let mut message = vec![0; 16 + 72];
        message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message[17] = state;
        message[16 + 64..16 + 68].copy_from_slice(&user.to_ne_bytes());
        message[16 + 68..].copy_from_slice(&inode.to_ne_bytes());
        message
    }

    #[test]
    fn the_remains_of_a_closed_socket_have_no_owner() {
        let owner = |cgroup_id| Some(SocketOwner { uid: 1000, cgroup_id });
        assert_eq!(read(&message(ESTABLISHED, 1000, 5)).unwrap(), owner(None));
        // TIME_WAIT and an orphan in FIN_WAIT2.
        assert_eq!(read(&message(6, 0, 0)).unwrap(), None);
        assert_eq!(read(&message(5, 0, 0)).unwrap(), None);
        assert_eq!(read(&message(ESTABLISHED, 0, 0)).unwrap(), None);
        let mut error = message(0, 0, 0);
        error[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        error[16..20].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert_eq!(read(&error).unwrap(), None);
        error[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!(read(&error).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(read(&[]).is_err());
    }

    #[test]
    fn the_cgroup_is_found_behind_other_attributes() {
        let mut message = message(ESTABLISHED, 1000, 5);
        // A value of one byte with its padding, then the cgroup.
        message.extend([5_u16, 8].map(u16::to_ne_bytes).as_flattened());
        message.extend([1, 0, 0, 0]);
        message.extend([12, INET_DIAG_CGROUP_ID].map(u16::to_ne_bytes).as_flattened());
        message.extend(77_u64.to_ne_bytes());
        let cgroup = |message: &[u8]| read(message).unwrap().unwrap().cgroup_id;
        assert_eq!(cgroup(&message), Some(77));
        assert_eq!(cgroup(&message[..message.len() - 1]), None, "a cut value");
        message[88..90].copy_from_slice(&0_u16.to_ne_bytes());
        assert_eq!(cgroup(&message), None, "a malformed length");
    }

    #[tokio::test]
    async fn a_local_peer_has_an_owner_while_it_is_connected() {
        for bound in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let listener = tokio::net::TcpListener::bind(bound).await.unwrap();
            let local = listener.local_addr().unwrap();
            let to = if local.ip().is_unspecified() { ([127, 0, 0, 1], local.port()).into() } else { local };
            let stream = TcpStream::connect(to).await.unwrap();
            let (accepted, peer) = listener.accept().await.unwrap();
            let uid = || peer_owner(&accepted, peer, accepted.local_addr().unwrap()).map(|owner| owner.uid);
            assert_eq!(uid(), Some(rustix::process::geteuid().as_raw()), "{bound}");
            drop(stream);
            // Another test may start a program meanwhile, which has a copy of the socket for a moment.
            while uid().is_some() {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn a_peer_that_has_reset_its_connection_is_not_taken_for_the_next_one_at_its_address() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = listener.local_addr().unwrap();
        let connect = async |from: SocketAddr| {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(from).unwrap();
            socket.connect(local).await.unwrap()
        };
        let closed = connect(([127, 0, 0, 1], 0).into()).await;
        let from = closed.local_addr().unwrap();
        closed.set_zero_linger().unwrap();
        drop(closed);
        let _there = connect(from).await;
        for user in [None, Some(rustix::process::geteuid().as_raw())] {
            let (accepted, peer) = listener.accept().await.unwrap();
            assert_eq!(peer, from);
            assert_eq!(peer_owner(&accepted, peer, local).map(|owner| owner.uid), user);
        }
    }

    #[test]
    fn a_request_has_its_announced_length() {
        let peer = "127.0.0.1:5".parse().unwrap();
        let local = "127.0.0.1:6".parse().unwrap();
        assert_eq!(request(peer, local, 1).unwrap().len(), LENGTH as usize);
        assert_eq!(request(peer, "[::1]:6".parse().unwrap(), 1), None);
    }
}
