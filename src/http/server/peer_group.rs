//! Groups callers whose connections are counted together: a user of this machine, or an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Peer;

/// Group of callers whose connections are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallerGroup {
    /// A user of this machine, by its id.
    User(u32),
    /// An address.
    Address(IpAddr),
}

impl Peer {
    /// Returns the group of the peer: its user, or its address where the user is not known.
    pub fn group(&self) -> CallerGroup {
        match self {
            Self::Unix { uid, .. } => CallerGroup::User(*uid),
            Self::Tcp { owner: Some(owner), .. } => CallerGroup::User(owner.uid),
            Self::Tcp { address, .. } => CallerGroup::Address(address.ip()),
        }
    }
}

impl CallerGroup {
    /// Returns the group of this process.
    pub fn own_process() -> Self {
        Self::User(rustix::process::geteuid().as_raw())
    }

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
    use crate::peer::SocketOwner;

    #[test]
    fn addresses_of_one_network_are_one_group() {
        let network = |text: &str| CallerGroup::Address(text.parse().unwrap()).network();
        assert_eq!(network("192.0.2.1"), network("192.0.2.254"));
        assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
        assert_eq!(network("2001:db8:0:1200::1"), network("2001:db8:0:12ff:ffff::2"));
        assert_ne!(network("2001:db8:0:1200::1"), network("2001:db8:0:1300::1"));
        assert_eq!(CallerGroup::User(7).network(), CallerGroup::User(7));
    }

    #[test]
    fn a_peer_without_a_known_user_is_grouped_by_its_address() {
        let address: std::net::SocketAddr = ([127, 0, 0, 1], 40000).into();
        let peer = |owner| Peer::Tcp { address, local: address, owner };
        assert_eq!(peer(None).group(), CallerGroup::Address(address.ip()));
        assert_eq!(peer(Some(SocketOwner { uid: 7, cgroup_id: None })).group(), CallerGroup::User(7));
        assert!(CallerGroup::own_process().is_trusted());
    }
}
