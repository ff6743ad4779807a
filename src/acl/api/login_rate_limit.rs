//! Rate limit of logins by source: callers are unknown before a login is verified, and verification is costly.

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

use keyward_credentials::token_bucket::{KeyedBuckets, TokenBucket};
use keyward_http::server::{CallerGroup, Peer};
use keyward_machine::clock::ClockReading;

/// Rate of logins allowed to one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginLimit {
    /// Logins allowed at once; at least 1.
    pub burst: u32,
    /// Logins per second after the burst; at least 1.
    pub per_second: u32,
}

impl Default for LoginLimit {
    /// Default: enough for a fleet behind one address after an outage, at a few per cent of a core.
    fn default() -> Self {
        Self { burst: 200, per_second: 20 }
    }
}

/// Source of logins that share a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LoginSource {
    /// A local user, by uid.
    User(u32),
    /// An IPv4 address, or the /64 of an IPv6 one: a host usually has a whole /64.
    Address(IpAddr),
    /// Local processes of which the kernel does not tell the user. Each may have any address of loopback.
    Loopback,
}

impl LoginSource {
    /// Asks the kernel for the user of a local connection over TCP.
    fn from_peer(peer: &Peer) -> Self {
        Self::from_group(peer.group())
    }

    fn from_group(group: CallerGroup) -> Self {
        match group {
            CallerGroup::User(uid) => Self::User(uid),
            CallerGroup::Address(address) if address.to_canonical().is_loopback() => Self::Loopback,
            CallerGroup::Address(address) => match address.to_canonical() {
                IpAddr::V6(address) => Self::Address(IpAddr::V6((u128::from(address) >> 64 << 64).into())),
                address @ IpAddr::V4(_) => Self::Address(address),
            },
        }
    }
}

/// Rate limiter of logins, with a token bucket for each source.
#[derive(Debug)]
pub(crate) struct LoginRateLimiter(Mutex<KeyedBuckets<LoginSource>>);

/// Maximum number of stored sources. Bounds the memory that a client with many addresses can take.
const MAX_SOURCES: usize = 8192;

impl LoginRateLimiter {
    /// Creates a limiter without logins so far.
    pub(crate) fn new(limit: LoginLimit) -> Self {
        let full = TokenBucket::full(limit.burst.max(1), Duration::from_secs(1) / limit.per_second.max(1));
        Self(Mutex::new(KeyedBuckets::new(full, MAX_SOURCES)))
    }

    /// Counts a login. The error is the time until the next login is allowed.
    pub(super) fn admit(&self, peer: &Peer, now: ClockReading) -> Result<(), Duration> {
        let source = LoginSource::from_peer(peer);
        self.0.lock().try_take(source, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use keyward_http::peer::SocketOwner;

    use super::*;

    fn at(millis: u64) -> ClockReading {
        ClockReading { boot: Duration::from_millis(1_000_000 + millis), wall: SystemTime::UNIX_EPOCH }
    }

    fn tcp(address: &str) -> Peer {
        Peer::Tcp { address: address.parse().unwrap(), local: ([127, 0, 0, 1], 8500).into(), owner: None }
    }

    fn user(uid: u32) -> Peer {
        Peer::Unix { uid, gid: 0, pid: 1, in_group: false }
    }

    #[test]
    fn a_source_has_its_burst_and_then_its_rate() {
        let limiter = LoginRateLimiter::new(LoginLimit { burst: 3, per_second: 2 });
        let peer = tcp("192.0.2.1:1000");
        for _ in 0..3 {
            assert_eq!(limiter.admit(&peer, at(0)), Ok(()));
        }
        assert_eq!(limiter.admit(&peer, at(0)), Err(Duration::from_millis(500)));
        assert_eq!(limiter.admit(&peer, at(400)), Err(Duration::from_millis(100)));
        assert_eq!(limiter.admit(&peer, at(500)), Ok(()));
        assert_eq!(limiter.admit(&peer, at(500)), Err(Duration::from_millis(500)));
        for _ in 0..3 {
            assert_eq!(limiter.admit(&peer, at(60_000)), Ok(()));
        }
        assert!(limiter.admit(&peer, at(60_000)).is_err());
    }

    #[test]
    fn sources_are_addresses_networks_and_users() {
        let limiter = LoginRateLimiter::new(LoginLimit { burst: 1, per_second: 1 });
        let check = |peer: Peer, admitted: bool| {
            assert_eq!(limiter.admit(&peer, at(0)).is_ok(), admitted, "{peer:?}");
        };
        check(tcp("192.0.2.1:1000"), true);
        check(tcp("192.0.2.1:1001"), false);
        check(tcp("[::ffff:192.0.2.1]:1"), false);
        check(tcp("192.0.2.2:1000"), true);
        check(tcp("[2001:db8::1]:1"), true);
        check(tcp("[2001:db8::ffff:0:0:1]:1"), false);
        check(tcp("[2001:db8:0:1::1]:1"), true);
        check(user(1000), true);
        check(user(1000), false);
        check(user(1001), true);
        // No process has these sockets.
        check(tcp("127.0.0.1:1"), true);
        check(tcp("127.1.2.3:1"), false);
        check(tcp("[::1]:1"), false);
        check(tcp("[::ffff:127.0.0.2]:1"), false);
    }

    #[test]
    fn a_local_user_has_one_limit_over_unix_sockets_and_all_its_addresses() {
        let limiter = LoginRateLimiter::new(LoginLimit { burst: 4, per_second: 1 });
        let owner = Some(SocketOwner { uid: 1000, cgroup_id: None });
        let local = ([127, 0, 0, 1], 8500).into();
        for last in 1..=4 {
            let address = ([127, 0, 0, last], 1).into();
            assert_eq!(limiter.admit(&Peer::Tcp { address, local, owner }, at(0)), Ok(()), "{address}");
        }
        assert!(limiter.admit(&user(1000), at(0)).is_err(), "the same user by another way");
        assert!(limiter.admit(&user(1001), at(0)).is_ok());
        assert!(limiter.admit(&tcp("127.0.0.1:1"), at(0)).is_ok());
    }
}
