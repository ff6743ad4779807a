//! What of a secret outlives a restart, and what is taken of it.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::encrypted_file::FileRejected;
use super::lease::{LeaseState, Step};
use crate::agent::token::{Lease, Token};
use crate::clock::{ClockReading, millis};

/// What a file holds. Times are in milliseconds since 1970 by the wall clock.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Content<E> {
    saved: u64,
    /// The session's token then.
    pub(super) token: Option<TokenFingerprint>,
    pub(super) kept: Vec<E>,
}

impl<E> Content<E> {
    pub(super) fn new(now: ClockReading, token: Option<TokenFingerprint>, kept: Vec<E>) -> Self {
        Self { saved: millis(now.wall), token, kept }
    }

    /// Anonymous knows how old things are where the clock is behind.
    pub(super) fn in_time(self, now: ClockReading) -> Result<Self, FileRejected> {
        if self.saved > millis(now.wall).saturating_add(CLOCK_SLACK) { Err(FileRejected::Clock) } else { Ok(self) }
    }
}

/// Tells one token from another without holding it, and when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenFingerprint {
    hash: [u8; 32],
    ends: Option<u64>,
}

impl TokenFingerprint {
    pub(super) fn of(token: &Token) -> Self {
        let text = token.secret.secret().expose_secret();
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self { hash, ends: token.expires.map(|ends| millis(ends.wall)) }
    }

    pub(super) fn is(&self, token: &Token) -> bool {
        self.hash == Self::of(token).hash
    }

    /// Whether its own end has not come.
    pub(super) fn lives(&self, now: ClockReading) -> bool {
        self.ends.is_none_or(|ends| ends > millis(now.wall))
    }
}

/// A lease as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedLease {
    ends: u64,
    left: u64,
    first: u64,
    renewable: bool,
    /// When another is got; `None` for one that is renewed.
    read: Option<u64>,
}

impl SavedLease {
    pub(super) fn of(lease_state: &LeaseState, next: Step, now: ClockReading) -> Self {
        let wall = millis(now.wall);
        let span = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let left = span(now.until(lease_state.ends()));
        let read = match next {
            Step::ReadAt(at) => Some(wall.saturating_add(span(now.until(at)))),
            Step::RenewAt(_) => None,
        };
        let ends = wall.saturating_add(left);
        Self { ends, left, first: span(lease_state.first), renewable: lease_state.lease.renewable, read }
    }

    /// The lease with what is left of it, and what comes next: where it can be renewed that is tried at once, which tells
    /// whether it still lives. Nothing of one that has ended.
    pub(super) fn taken_up(&self, now: ClockReading) -> Option<(LeaseState, Step)> {
        let wall = millis(now.wall);
        let left = Duration::from_millis(self.ends.saturating_sub(wall).min(self.left));
        if left.is_zero() {
            return None;
        }
        let lease = Lease { ttl: left, renewable: self.renewable };
        let lease_state =
            LeaseState { since: now, lease, first: Duration::from_millis(self.first), refused: self.read.is_some() };
        let next = match self.read {
            Some(at) => Step::ReadAt(now + Duration::from_millis(at.saturating_sub(wall)).min(left)),
            None => Step::RenewAt(now),
        };
        Some((lease_state, next))
    }
}

/// How long ago something was, by the wall clock.
pub(super) fn age(at: u64, now: ClockReading) -> Duration {
    Duration::from_millis(millis(now.wall).saturating_sub(at))
}

/// How far the wall clock may be behind the time of the last write, in milliseconds.
const CLOCK_SLACK: u64 = 60_000;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn at(boot: u64, wall: u64) -> ClockReading {
        ClockReading { boot: Duration::from_secs(boot), wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall) }
    }

    #[test]
    fn a_lease_is_taken_up_with_what_is_left_of_it_whenever_the_machine_was_started() {
        let lease = |renewable| Lease { ttl: Duration::from_mins(10), renewable };
        let lease_state =
            LeaseState { since: at(5000, 100_000), lease: lease(true), first: Duration::from_mins(10), refused: false };
        let saved = SavedLease::of(&lease_state, Step::RenewAt(at(5400, 100_400)), at(5100, 100_100));
        for now in [at(5300, 100_300), at(20, 100_300)] {
            let (taken, next) = saved.taken_up(now).unwrap();
            assert_eq!((taken.ends(), taken.first), (now + Duration::from_mins(5), Duration::from_mins(10)));
            assert_eq!(next, Step::RenewAt(now), "whether it lives is asked at once");
        }
        assert!(saved.taken_up(at(20, 100_600)).is_none(), "it has ended");
        let back = saved.taken_up(at(5100, 90_000)).unwrap().0;
        assert_eq!(back.lease.ttl, Duration::from_secs(500), "a clock that was set back gives no life");

        let lease_state = LeaseState { lease: lease(false), ..lease_state };
        let saved = SavedLease::of(&lease_state, Step::ReadAt(at(5400, 100_400)), at(5100, 100_100));
        let now = at(20, 100_300);
        assert_eq!(saved.taken_up(now).unwrap().1, Step::ReadAt(now + Duration::from_secs(100)));
        let now = at(20, 100_500);
        assert_eq!(saved.taken_up(now).unwrap().1, Step::ReadAt(now));
    }

    #[test]
    fn a_content_from_ahead_of_the_clock_is_not_taken() {
        let content = || Content::<u8>::new(at(0, 1000), None, vec![]);
        assert!(content().in_time(at(0, 950)).is_ok());
        assert!(matches!(content().in_time(at(0, 900)), Err(FileRejected::Clock)));
    }
}
