//! Looks up the user that owns a local TCP connection by the kernel's socket diagnostics (`sock_diag(7)`): one request
//! and one response, each of a fixed layout.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Returns the user of the socket that is bound to `peer` and connected to `local`; `None` if the kernel does not
/// support the query or the socket has no owner any more.
pub(super) fn user(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    static CHANNEL: OnceLock<Option<Channel>> = OnceLock::new();
    let channel = CHANNEL.get_or_init(|| match Channel::open().and_then(|channel| channel.check().map(|()| channel)) {
        Ok(channel) => Some(channel),
        Err(error) => {
            tracing::warn!(
                event = "listener.callers.unknown",
                error = error.to_string(),
                "the kernel does not tell which user a TCP connection is of; where connections are short, callers are message apart by \
                 address alone"
            );
            None
        }
    });
    channel.as_ref()?.query(peer, local).ok()?
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

    fn query(&self, peer: SocketAddr, local: SocketAddr) -> io::Result<Option<u32>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (socket, sequence) = &mut *inner;
        *sequence = sequence.wrapping_add(1);
        let Some(request) = request(peer, local, *sequence) else { return Ok(None) };
        rustix::net::sendto(&*socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        loop {
            let mut answer = [0; 1024];
            // The kernel queues its response before `sendto` returns.
            let (length, _) = rustix::net::recv(&*socket, &mut answer, RecvFlags::empty())?;
            let answer = answer.get(..length).unwrap_or_default();
            if read_u32(answer, 8) == Some(*sequence) {
                return read(answer);
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
fn read(answer: &[u8]) -> io::Result<Option<u32>> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    if kind != Some(SOCK_DIAG_BY_FAMILY) {
        return match read_u32(answer, 16).map(u32::cast_signed) {
            Some(error) if kind == Some(NLMSG_ERROR) && -error == rustix::io::Errno::NOENT.raw_os_error() => Ok(None),
            Some(error) if kind == Some(NLMSG_ERROR) => Err(io::Error::from_raw_os_error(-error)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        };
    }
    let (state, user, inode) = (answer.get(17).copied(), read_u32(answer, 16 + 64), read_u32(answer, 16 + 68));
    // The kernel reports the remains of a closed socket as root's.
    let owned = matches!(state, Some(ESTABLISHED | CLOSE_WAIT)) && inode.is_some_and(|inode| inode != 0);
    Ok(user.filter(|_| owned))
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
        assert_eq!(read(&message(ESTABLISHED, 1000, 5)).unwrap(), Some(1000));
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
    fn a_request_has_its_announced_length() {
        let (peer, local) = ("127.0.0.1:5".parse().unwrap(), "127.0.0.1:6".parse().unwrap());
        assert_eq!(request(peer, local, 1).unwrap().len(), LENGTH as usize);
        assert_eq!(request(peer, "[::1]:6".parse().unwrap(), 1), None);
    }
}
