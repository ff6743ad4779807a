//! Format of saved secrets and leases, shared by templates' secrets and the response cache.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::encrypted_file::FileRejected;
use super::lease::{LeaseState, Step};
use crate::agent::token::{Lease, Token};
use crate::clock::{ClockReading, millis};

/// Content of a file. Times are in milliseconds since 1970 by the wall clock.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::agent) struct Snapshot<E> {
    #[serde(rename = "saved")]
    saved_at: u64,
    /// The session's token at that time.
    pub(in crate::agent) token: Option<TokenFingerprint>,
    #[serde(rename = "kept")]
    pub(in crate::agent) entries: Vec<E>,
}

impl<E> Snapshot<E> {
    pub(in crate::agent) fn new(now: ClockReading, token: Option<TokenFingerprint>, entries: Vec<E>) -> Self {
        Self { saved_at: millis(now.wall), token, entries }
    }

    /// Refuses a snapshot from the future: with the clock set back, ages cannot be computed.
    ///
    /// # Errors
    /// The clock is behind the last write.
    pub(in crate::agent) fn check_clock(self, now: ClockReading) -> Result<Self, FileRejected> {
        if self.saved_at > millis(now.wall).saturating_add(CLOCK_SLACK) { Err(FileRejected::Clock) } else { Ok(self) }
    }
}

/// Hash and end of a token: recognises the token without containing it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::agent) struct TokenFingerprint {
    hash: [u8; 32],
    #[serde(rename = "ends")]
    expires: Option<u64>,
}

impl TokenFingerprint {
    pub(in crate::agent) fn new(token: &Token) -> Self {
        let text = token.secret.secret().expose_secret();
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self { hash, expires: token.expires.map(|end| millis(end.wall)) }
    }

    pub(in crate::agent) fn matches(&self, token: &Token) -> bool {
        self.hash == Self::new(token).hash
    }

    /// Returns true before the token's end.
    pub(in crate::agent) fn is_alive(&self, now: ClockReading) -> bool {
        self.expires.is_none_or(|expires| expires > millis(now.wall))
    }
}

/// A lease in a file. Durations are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::agent) struct SavedLease {
    #[serde(rename = "ends")]
    expires: u64,
    #[serde(rename = "left")]
    remaining: u64,
    #[serde(rename = "first")]
    initial_ttl: u64,
    renewable: bool,
    /// Time when another lease is requested; `None` for one that is renewed.
    #[serde(rename = "read")]
    read_at: Option<u64>,
}

impl SavedLease {
    pub(in crate::agent) fn new(state: &LeaseState, next: Step, now: ClockReading) -> Self {
        let wall = millis(now.wall);
        let to_millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let remaining = to_millis(now.until(state.ends()));
        let read_at = match next {
            Step::ReadAt(at) => Some(wall.saturating_add(to_millis(now.until(at)))),
            Step::RenewAt(_) => None,
        };
        let (expires, initial_ttl) = (wall.saturating_add(remaining), to_millis(state.initial_ttl));
        Self { expires, remaining, initial_ttl, renewable: state.lease.renewable, read_at }
    }

    /// Returns the lease with its remaining lifetime, and the next step; `None` if it has ended. A renewable lease is renewed at
    /// once, which tells whether it still lives.
    pub(in crate::agent) fn restore(&self, now: ClockReading) -> Option<(LeaseState, Step)> {
        let wall = millis(now.wall);
        let remaining = Duration::from_millis(self.expires.saturating_sub(wall).min(self.remaining));
        if remaining.is_zero() {
            return None;
        }
        let lease = Lease { ttl: remaining, renewable: self.renewable };
        let initial_ttl = Duration::from_millis(self.initial_ttl);
        let state = LeaseState { since: now, lease, initial_ttl, renewal_refused: self.read_at.is_some() };
        let next = match self.read_at {
            Some(at) => Step::ReadAt(now + Duration::from_millis(at.saturating_sub(wall)).min(remaining)),
            None => Step::RenewAt(now),
        };
        Some((state, next))
    }
}

/// Returns the time since `at`, by the wall clock.
pub(in crate::agent) fn age_of(at: u64, now: ClockReading) -> Duration {
    Duration::from_millis(millis(now.wall).saturating_sub(at))
}

/// Tolerated lag of the wall clock behind the last write, in milliseconds.
const CLOCK_SLACK: u64 = 60_000;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(boot), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall) }
    }

    #[test]
    fn a_lease_is_restored_with_its_remaining_lifetime_after_any_boot() {
        let lease = |renewable| Lease { ttl: Duration::from_mins(10), renewable };
        let lease_state = LeaseState {
            since: at(5000, 100_000),
            lease: lease(true),
            initial_ttl: Duration::from_mins(10),
            renewal_refused: false,
        };
        let saved = SavedLease::new(&lease_state, Step::RenewAt(at(5400, 100_400)), at(5100, 100_100));
        for now in [at(5300, 100_300), at(20, 100_300)] {
            let (restored, next) = saved.restore(now).unwrap();
            assert_eq!(
                (restored.ends(), restored.initial_ttl),
                (now + Duration::from_mins(5), Duration::from_mins(10))
            );
            assert_eq!(next, Step::RenewAt(now), "it is renewed at once");
        }
        assert!(saved.restore(at(20, 100_600)).is_none(), "it has ended");
        let back = saved.restore(at(5100, 90_000)).unwrap().0;
        assert_eq!(back.lease.ttl, Duration::from_secs(500), "a clock that was set back extends no lease");

        let lease_state = LeaseState { lease: lease(false), ..lease_state };
        let saved = SavedLease::new(&lease_state, Step::ReadAt(at(5400, 100_400)), at(5100, 100_100));
        let now = at(20, 100_300);
        assert_eq!(saved.restore(now).unwrap().1, Step::ReadAt(now + Duration::from_secs(100)));
        let now = at(20, 100_500);
        assert_eq!(saved.restore(now).unwrap().1, Step::ReadAt(now));
    }

    #[test]
    fn a_snapshot_from_the_future_is_refused() {
        let snapshot = || Snapshot::<u8>::new(at(0, 1000), None, vec![]);
        assert!(snapshot().check_clock(at(0, 950)).is_ok());
        assert!(matches!(snapshot().check_clock(at(0, 900)), Err(FileRejected::Clock)));
    }
}
