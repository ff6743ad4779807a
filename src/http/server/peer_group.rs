//! Groups callers whose connections are counted together: a user of this machine, or an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Peer;
use crate::peer::sock_diag;

/// Peer of a connection, or this process. Its user is looked up only by [`ConnectionCaller::group`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCaller(Option<Peer>);

/// Group of callers whose connections are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallerGroup {
    /// A user of this machine, by its id.
    User(u32),
    /// An address.
    Address(IpAddr),
}

impl ConnectionCaller {
    /// Creates the caller at the other end of a connection.
    pub const fn new(peer: Peer) -> Self {
        Self(Some(peer))
    }

    /// Returns this process as the caller.
    pub const fn own_process() -> Self {
        Self(None)
    }

    /// Looks up the caller's user; falls back to its address.
    pub fn group(&self) -> CallerGroup {
        let (address, local) = match self.0 {
            None => return CallerGroup::User(rustix::process::geteuid().as_raw()),
            Some(Peer::Unix { uid, .. }) => return CallerGroup::User(uid),
            Some(Peer::Tcp { address, local }) => (address, local),
        };
        // Users of other machines are unknown here.
        let is_local = address.ip().is_loopback() || address.ip() == local.ip();
        let owner = is_local.then(|| sock_diag::owner(address, local)).flatten();
        owner.map_or(CallerGroup::Address(address.ip()), |owner| CallerGroup::User(owner.uid))
    }
}

impl CallerGroup {
    /// Maps an address to the network that one party is usually given: 24 bits of IPv4, 56 of IPv6.
    pub(super) fn network(self) -> Self {
        match self {
            Self::User(_) => self,
            Self::Address(IpAddr::V4(ip)) => Self::Address(Ipv4Addr::from_bits(ip.to_bits() & !0xff).into()),
            Self::Address(IpAddr::V6(ip)) => {
                Self::Address(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 72)).into())
            }
        }
    }

    /// Returns the user; `None` for an address.
    pub const fn user(self) -> Option<u32> {
        match self {
            Self::User(uid) => Some(uid),
            Self::Address(_) => None,
        }
    }

    /// Returns true for root and this process's own user.
    pub(crate) fn is_trusted(self) -> bool {
        matches!(self, Self::User(uid) if uid == 0 || uid == rustix::process::geteuid().as_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one_group() {
        let network = |text: &str| CallerGroup::Address(text.parse().unwrap()).network();
        assert_eq!(network("192.0.2.1"), network("192.0.2.254"));
        assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
        assert_eq!(network("2001:db8:0:1200::1"), network("2001:db8:0:12ff:ffff::2"));
        assert_ne!(network("2001:db8:0:1200::1"), network("2001:db8:0:1300::1"));
        assert_eq!(CallerGroup::User(7).network(), CallerGroup::User(7));
    }

    #[tokio::test]
    async fn a_loopback_caller_is_identified_by_its_user_while_connected() {
        for bound in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let listener = tokio::net::TcpListener::bind(bound).await.unwrap();
            let local = listener.local_addr().unwrap();
            let to = if local.ip().is_unspecified() { ([127, 0, 0, 1], local.port()).into() } else { local };
            let stream = tokio::net::TcpStream::connect(to).await.unwrap();
            let (accepted, peer) = listener.accept().await.unwrap();
            let caller = ConnectionCaller::new(Peer::Tcp { address: peer, local: accepted.local_addr().unwrap() });
            let uid = rustix::process::geteuid().as_raw();
            assert_eq!(caller.group(), CallerGroup::User(uid), "{bound}");
            drop(stream);
            // Another test may start a program meanwhile, which has a copy of the socket for a moment.
            while caller.group() != CallerGroup::Address(peer.ip()) {
                tokio::task::yield_now().await;
            }
            drop(accepted);
        }
        assert!(ConnectionCaller::own_process().group().is_trusted());
    }
}
