//! Format of saved secrets, responses and their leases.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use keyward_machine::clock::{ClockReading, millis};
use serde::{Deserialize, Serialize};

use super::active_lease::{ActiveLease, Step};
use crate::encrypted_file::{FileRejected, check_clock};
use crate::token::{Lease, Token};

/// Content of a file. Times are in milliseconds since 1970 by the wall clock.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Snapshot<E> {
    saved_at: u64,
    /// The session's token at that time.
    pub token: Option<TokenFingerprint>,
    pub entries: Vec<E>,
}

impl<E> Snapshot<E> {
    pub(crate) fn new(now: ClockReading, token: Option<TokenFingerprint>, entries: Vec<E>) -> Self {
        Self { saved_at: millis(now.wall), token, entries }
    }

    /// Parses a snapshot.
    pub(crate) fn parse<'a>(json: &'a [u8], now: ClockReading) -> Result<Self, FileRejected>
    where
        E: Deserialize<'a>,
    {
        let snapshot: Self = serde_json::from_slice(json).map_err(|_| FileRejected::Format)?;
        check_clock(snapshot.saved_at, now)?;
        Ok(snapshot)
    }

    /// Serializes the snapshot as JSON; `None` if that takes more than `max` bytes, or a value has no JSON form.
    pub(crate) fn to_json(&self, max: usize) -> Option<Vec<u8>>
    where
        E: Serialize,
    {
        let mut size = SizeCounter { bytes: 0, max };
        serde_json::to_writer(&mut size, self).ok()?;
        let mut json = Vec::with_capacity(size.bytes);
        serde_json::to_writer(&mut json, self).ok()?;
        Some(json)
    }
}

/// Counts the bytes that are written to it, and fails above `max`.
struct SizeCounter {
    bytes: usize,
    max: usize,
}

impl std::io::Write for SizeCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes += bytes.len();
        if self.bytes > self.max { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Hash and end of a token: recognises the token without containing it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenFingerprint {
    hash: [u8; 32],
    expires: Option<u64>,
}

impl TokenFingerprint {
    pub(crate) fn new(token: &Token) -> Self {
        let text = token.secret.secret().expose_secret();
        let mut hash = [0; 32];
        // A token is long and random, so that a plain hash does not reveal it.
        hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self { hash, expires: token.expires.map(|end| millis(end.wall)) }
    }

    pub(crate) fn matches(&self, token: &Token) -> bool {
        self.hash == Self::new(token).hash
    }

    /// Returns true before the token's end.
    pub(crate) fn is_alive(&self, now: ClockReading) -> bool {
        self.expires.is_none_or(|expires| expires > millis(now.wall))
    }
}

/// A lease in a file. Durations are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedLease {
    expires: u64,
    remaining: u64,
    initial_ttl: u64,
    renewable: bool,
    /// Time when another lease is requested; `None` for one that is renewed.
    read_at: Option<u64>,
}

impl SavedLease {
    pub(crate) fn new(active: &ActiveLease, now: ClockReading) -> Self {
        let wall = millis(now.wall);
        let to_millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let remaining = to_millis(now.until(active.ends()));
        let read_at = match active.next {
            Step::ReadAt(at) => Some(wall.saturating_add(to_millis(now.until(at)))),
            Step::RenewAt(_) => None,
        };
        let expires = wall.saturating_add(remaining);
        let initial_ttl = to_millis(active.initial_ttl);
        Self { expires, remaining, initial_ttl, renewable: active.lease.renewable, read_at }
    }

    /// Returns the lease with its remaining lifetime; `None` if it has ended. A renewable lease is renewed at once, which shows
    /// whether it is still valid.
    pub(crate) fn restore(&self, now: ClockReading) -> Option<ActiveLease> {
        let wall = millis(now.wall);
        // Bounded by what was left at that time: the wall clock may have been set back since.
        let remaining = Duration::from_millis(self.expires.saturating_sub(wall).min(self.remaining));
        if remaining.is_zero() {
            return None;
        }
        let next = match self.read_at {
            Some(at) => Step::ReadAt(now + Duration::from_millis(at.saturating_sub(wall)).min(remaining)),
            None => Step::RenewAt(now),
        };
        Some(ActiveLease {
            since: now,
            lease: Lease { ttl: remaining, renewable: self.renewable },
            initial_ttl: Duration::from_millis(self.initial_ttl),
            renewal_refused: self.read_at.is_some(),
            next,
            is_verified: false,
        })
    }
}

/// Returns the time since `at`, which is in milliseconds since 1970.
pub(crate) fn age_of(at: u64, now: ClockReading) -> Duration {
    Duration::from_millis(millis(now.wall).saturating_sub(at))
}

/// Returns the time from which on `age` has passed, in milliseconds since 1970.
pub(crate) fn time_of_age(age: Duration, now: ClockReading) -> u64 {
    millis(now.wall).saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

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
        let issued = |renewable| ActiveLease::issued(lease(renewable), at(5000, 100_000), 0.0);
        let saved = SavedLease::new(&issued(true), at(5100, 100_100));
        for now in [at(5300, 100_300), at(20, 100_300)] {
            let restored = saved.restore(now).unwrap();
            assert_eq!(
                (restored.ends(), restored.initial().ttl),
                (now + Duration::from_mins(5), Duration::from_mins(10))
            );
            assert_eq!(restored.next(), Step::RenewAt(now), "it is renewed at once");
        }
        assert!(saved.restore(at(20, 100_600)).is_none(), "it has ended");
        let back = saved.restore(at(5100, 90_000)).unwrap();
        assert_eq!(back.ends(), at(5600, 90_500), "a clock that was set back extends no lease");

        let mut replaced = issued(false);
        replaced.replace_at(at(5400, 100_400));
        let saved = SavedLease::new(&replaced, at(5100, 100_100));
        let now = at(20, 100_300);
        assert_eq!(saved.restore(now).unwrap().next(), Step::ReadAt(now + Duration::from_secs(100)));
        let now = at(20, 100_500);
        assert_eq!(saved.restore(now).unwrap().next(), Step::ReadAt(now));
    }

    #[test]
    fn a_restored_lease_counts_as_ended_if_its_first_renewal_is_refused() {
        let lease = Lease { ttl: Duration::from_mins(10), renewable: true };
        let now = at(5000, 100_000);
        let saved = SavedLease::new(&ActiveLease::issued(lease, now, 0.0), now);
        let mut restored = saved.restore(now).unwrap();
        assert!(!restored.refuse_renewal(0.0));
        let mut restored = saved.restore(now).unwrap();
        restored.record_renewal(lease, now, 0.0);
        assert!(restored.refuse_renewal(0.0), "a response has shown that it lives");
    }

    #[test]
    fn a_snapshot_from_the_future_is_refused() {
        let json = Snapshot::<u8>::new(at(0, 1000), None, vec![7]).to_json(100).unwrap();
        let parse = |now| Snapshot::<u8>::parse(&json, now).map(|snapshot| snapshot.entries);
        assert_eq!(parse(at(0, 950)).unwrap(), [7]);
        assert!(matches!(parse(at(0, 900)), Err(FileRejected::Clock)));
        assert!(matches!(Snapshot::<u8>::parse(&json[1..], at(0, 1000)), Err(FileRejected::Format)));
    }

    #[test]
    fn a_snapshot_is_serialized_in_one_buffer_of_its_size() {
        let snapshot = Snapshot::new(at(0, 1000), None, vec!["value"]);
        let json = snapshot.to_json(1000).unwrap();
        assert_eq!(json, br#"{"saved_at":1000000,"token":null,"entries":["value"]}"#);
        assert_eq!(json.capacity(), json.len());
        assert!(snapshot.to_json(json.len()).is_some() && snapshot.to_json(json.len() - 1).is_none());
    }

    #[test]
    fn an_age_and_its_time_are_each_others_inverse() {
        let age = Duration::from_secs(90);
        assert_eq!(time_of_age(age, at(5, 1000)), 910_000);
        assert_eq!(age_of(910_000, at(5, 1000)), age);
        assert_eq!(age_of(910_000, at(5, 900)), Duration::ZERO, "the clock was set back");
    }
}
