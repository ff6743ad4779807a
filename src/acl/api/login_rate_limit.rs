//! How often one source may log in: who is not known before a login is judged, and judging costs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::ClockReading;
use crate::http::server::Peer;

/// How often one source may log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginLimit {
    /// Logins at once; at least 1.
    pub burst: u32,
    /// Logins a second after that; at least 1.
    pub per_second: u32,
}

impl Default for LoginLimit {
    /// Room for a fleet behind one address that comes back from an outage, and a few per cent of a core at most.
    fn default() -> Self {
        Self { burst: 200, per_second: 20 }
    }
}

/// Whose logins are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    /// A user of this machine.
    User(u32),
    /// An IPv4 address, or the /64 of an IPv6 one: whoever has one address of it has them all.
    Address(IpAddr),
}

impl Source {
    fn of(peer: &Peer) -> Self {
        match peer {
            Peer::Unix { uid, .. } => Self::User(*uid),
            Peer::Tcp(address) => Self::Address(match address.ip().to_canonical() {
                IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
                address @ IpAddr::V4(_) => address,
            }),
        }
    }
}

/// The logins of each source, as a bucket that fills up with time.
#[derive(Debug)]
pub struct Limiter {
    limit: LoginLimit,
    buckets: Mutex<HashMap<Source, Bucket>>,
}

/// Told by when it is full again: one that is full need not be kept.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    full: ClockReading,
}

/// Sources that are kept. More at once are no longer told apart from new ones.
const SOURCES: usize = 8192;

impl Limiter {
    /// With no login so far.
    pub fn new(limit: LoginLimit) -> Self {
        Self { limit, buckets: Mutex::default() }
    }

    /// Counts a login.
    ///
    /// # Errors
    /// It is one too many; says when there is room for one.
    pub(super) fn admit(&self, peer: &Peer, now: ClockReading) -> Result<(), Duration> {
        let each = Duration::from_secs(1) / self.limit.per_second.max(1);
        let burst = each * self.limit.burst.max(1);
        let source = Source::of(peer);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let left = buckets.get(&source).map_or(Duration::ZERO, |bucket| now.until(bucket.full));
        // The time until it is full is what has been taken out; this login takes one more.
        if let Some(wait) = (left + each).checked_sub(burst).filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        if buckets.len() >= SOURCES && !buckets.contains_key(&source) {
            buckets.retain(|_, bucket| !now.until(bucket.full).is_zero());
            if buckets.len() >= SOURCES {
                buckets.clear();
            }
        }
        buckets.insert(source, Bucket { full: now + left + each });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(millis: u64) -> ClockReading {
        ClockReading { boot: Duration::from_millis(1_000_000 + millis), wall: SystemTime::UNIX_EPOCH }
    }

    fn tcp(address: &str) -> Peer {
        Peer::Tcp(address.parse().unwrap())
    }

    fn user(uid: u32) -> Peer {
        Peer::Unix { uid, gid: 0, pid: 1, in_group: false }
    }

    #[test]
    fn a_source_has_its_burst_and_then_its_rate() {
        let limiter = Limiter::new(LoginLimit { burst: 3, per_second: 2 });
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
        let limiter = Limiter::new(LoginLimit { burst: 1, per_second: 1 });
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
    }

    #[test]
    fn memory_is_bounded_and_who_waits_is_not_forgotten_for_the_idle() {
        let limiter = Limiter::new(LoginLimit { burst: 2, per_second: 1 });
        for uid in (0..).take(SOURCES - 1) {
            assert!(limiter.admit(&user(uid), at(0)).is_ok());
        }
        let busy = user(u32::MAX);
        assert!(limiter.admit(&busy, at(1_500)).is_ok() && limiter.admit(&busy, at(1_500)).is_ok());
        assert!(limiter.admit(&user(u32::MAX - 1), at(1_500)).is_ok());
        assert_eq!(limiter.buckets.lock().unwrap().len(), 2);
        assert!(limiter.admit(&busy, at(1_500)).is_err());
    }
}
