//! Pure decisions about minting: lifetime, time of renewal, retry delays, and orphaned tokens.

use std::time::{Duration, SystemTime};

use keyward_credentials::backoff::{Backoff, time_to_renewal};
use keyward_machine::clock::ClockReading;

use super::description::DescriptionPrefix;

/// Lifetime of a token as the platform reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MintedLifetime {
    /// Expires after this time.
    Ends(Duration),
    /// Never expires.
    NoExpiry,
    /// Expires after this unusably short time: the clocks of both sides differ.
    TooShort(Duration),
}

/// A lifetime below this, and below half of the requested one, is unusable.
const MIN_LIFETIME: Duration = Duration::from_mins(1);

/// Computes the lifetime of a token that was requested for `ttl`. Both times are by the platform's clock, which may
/// differ from ours.
pub(super) fn token_lifetime(
    ttl: Duration,
    created: Option<SystemTime>,
    expires: Option<SystemTime>,
) -> MintedLifetime {
    let Some(expires) = expires else { return MintedLifetime::NoExpiry };
    let lifetime = created.map_or(ttl, |created| expires.duration_since(created).unwrap_or_default());
    if lifetime < MIN_LIFETIME && lifetime < ttl / 2 {
        MintedLifetime::TooShort(lifetime)
    } else {
        MintedLifetime::Ends(lifetime)
    }
}

/// Computes when to replace a token: after 63 to 70 % of its lifetime, so that gateways started together spread out.
/// `unit` is a random number in `0.0..1.0`.
pub(super) fn renewal_time(created: ClockReading, ttl: Duration, lifetime: MintedLifetime, unit: f64) -> ClockReading {
    let usable_time = match lifetime {
        MintedLifetime::Ends(lifetime) | MintedLifetime::TooShort(lifetime) => lifetime.min(ttl),
        MintedLifetime::NoExpiry => ttl,
    };
    created + time_to_renewal(usable_time, unit)
}

/// Kind of failure, which decides about the retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MintFailure {
    /// May be temporary; the platform may have sent `Retry-After`.
    Transient(Option<Duration>),
    /// Needs an operator: the parent token, its permissions, or the owner.
    Rejected,
    /// Another gateway on this machine holds the lock.
    Locked,
}

/// Delays after failed attempts.
#[derive(Debug)]
pub(super) struct MintRetryPolicy {
    passing: Backoff,
    refused: Backoff,
}

impl MintRetryPolicy {
    pub(super) const fn new() -> Self {
        let refused = Backoff::new(Duration::from_mins(2), Duration::from_mins(30));
        Self { passing: Backoff::UPSTREAM, refused }
    }

    pub(super) const fn reset(&mut self) {
        self.passing.reset();
        self.refused.reset();
    }

    /// Returns the delay after one more failure.
    pub(super) fn next_delay(&mut self, failure: MintFailure, unit: f64) -> Duration {
        match failure {
            MintFailure::Transient(retry_after) => {
                self.passing.next(unit).max(retry_after.unwrap_or_default()).max(MIN_DELAY)
            }
            // At least half of the backoff: the platform counts each attempt as a failed login.
            MintFailure::Rejected => self.refused.next_half_jitter(unit),
            MintFailure::Locked => MIN_DELAY,
        }
    }
}

/// A backoff with full jitter may be zero.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// A token in the owner's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedToken {
    pub(super) id: String,
    pub(super) description: String,
}

/// Returns the ids of tokens that this gateway has minted and lost track of.
pub(super) fn orphaned_tokens(listed: Vec<ListedToken>, prefix: &DescriptionPrefix, known_ids: &[&str]) -> Vec<String> {
    let is_orphan = |token: &ListedToken| prefix.matches(&token.description) && !known_ids.contains(&token.id.as_str());
    listed.into_iter().filter(is_orphan).map(|token| token.id).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use keyward_machine::clock::{Clock, TestClock};

    use super::*;

    #[test]
    fn lifetime_is_computed_by_the_platforms_clock() {
        let at = |seconds: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let seconds = Duration::from_secs;
        assert_eq!(token_lifetime(seconds(3600), at(1000), at(4600)), MintedLifetime::Ends(seconds(3600)));
        assert_eq!(
            token_lifetime(seconds(3600), at(2000), at(4600)),
            MintedLifetime::Ends(seconds(2600)),
            "its clock is ahead of ours"
        );
        assert_eq!(token_lifetime(seconds(3600), at(0), at(4600)), MintedLifetime::Ends(seconds(4600)));
        assert_eq!(token_lifetime(seconds(3600), None, at(4600)), MintedLifetime::Ends(seconds(3600)));
        assert_eq!(token_lifetime(seconds(3600), at(1000), None), MintedLifetime::NoExpiry);
        assert_eq!(token_lifetime(seconds(3600), at(5000), at(4600)), MintedLifetime::TooShort(Duration::ZERO));
        assert_eq!(
            token_lifetime(seconds(3), at(1000), at(1002)),
            MintedLifetime::Ends(seconds(2)),
            "so short was asked for"
        );
    }

    #[test]
    fn tokens_are_renewed_before_they_expire() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let check = |lifetime: MintedLifetime, unit: f64, expected: f64| {
            let after = start.until(renewal_time(start, Duration::from_secs(100), lifetime, unit)).as_secs_f64();
            assert!((after - expected).abs() < 0.01, "{lifetime:?}: {after}");
        };
        check(MintedLifetime::Ends(Duration::from_secs(100)), 0.0, 63.0);
        check(MintedLifetime::Ends(Duration::from_secs(100)), 1.0, 70.0);
        check(MintedLifetime::Ends(Duration::from_secs(50)), 0.0, 31.5);
        check(MintedLifetime::Ends(Duration::from_hours(9)), 0.0, 63.0);
        check(MintedLifetime::NoExpiry, 0.0, 63.0);
    }

    #[tokio::test]
    async fn rejected_mints_are_retried_rarely() {
        let mut retry_policy = MintRetryPolicy::new();
        let waits: Vec<u64> = (0..6).map(|_| retry_policy.next_delay(MintFailure::Rejected, 0.0).as_secs()).collect();
        assert_eq!(waits, [60, 120, 240, 480, 900, 900]);
        assert_eq!(retry_policy.next_delay(MintFailure::Transient(None), 1.0), Duration::from_secs(1));
        assert_eq!(retry_policy.next_delay(MintFailure::Transient(None), 1.0), Duration::from_secs(2));
        assert_eq!(
            retry_policy.next_delay(MintFailure::Transient(Some(Duration::from_mins(1))), 1.0),
            Duration::from_mins(1)
        );
        retry_policy.reset();
        assert_eq!(retry_policy.next_delay(MintFailure::Rejected, 0.0), Duration::from_mins(1));
    }

    #[test]
    fn orphans_have_our_description_and_an_unknown_id() {
        let is_orphan = DescriptionPrefix::for_gateway(Path::new("/a/token"));
        let other = DescriptionPrefix::for_gateway(Path::new("/b/token"));
        let token = |id: &str, description: Option<String>| ListedToken {
            id: id.to_owned(),
            description: description.unwrap_or_default(),
        };
        let listed = vec![
            token("1", is_orphan.next_description()),
            token("2", is_orphan.next_description()),
            token("3", other.next_description()),
            token("4", None),
        ];
        assert_eq!(orphaned_tokens(listed, &is_orphan, &["2"]), ["1"]);
    }
}
