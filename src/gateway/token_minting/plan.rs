//! When the next token is made, when another attempt, and which tokens of a list were left behind.

use std::time::{Duration, SystemTime};

use super::description::Prefix;
use crate::backoff::Backoff;
use crate::clock::ClockReading;

/// How long a token lives, as the platform tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// The platform ends it after so long.
    Ends(Duration),
    /// The platform does not end it.
    Endless,
    /// It ends so soon that it is of no use, after so long: the clocks of both sides differ.
    TooShort(Duration),
}

/// A life below this, and below half of what was asked for, is none.
const SHORTEST: Duration = Duration::from_mins(1);

/// The life of a token that was asked to live for `ttl`. Both times are the platform's: its clock may differ from ours.
pub(super) fn life(ttl: Duration, created: Option<SystemTime>, expires: Option<SystemTime>) -> Life {
    let Some(expires) = expires else { return Life::Endless };
    let life = created.map_or(ttl, |created| expires.duration_since(created).unwrap_or_default());
    if life < SHORTEST && life < ttl / 2 { Life::TooShort(life) } else { Life::Ends(life) }
}

/// When a token is replaced: at 63 to 70 % of its life, so that gateways that started together drift apart. `unit` is a
/// random number in `0.0..1.0`.
pub(super) fn replaced_at(made: ClockReading, ttl: Duration, life: Life, unit: f64) -> ClockReading {
    let lasts = match life {
        Life::Ends(life) | Life::TooShort(life) => life.min(ttl),
        Life::Endless => ttl,
    };
    made + lasts.mul_f64(0.07f64.mul_add(unit, 0.63))
}

/// What went wrong, as far as the next attempt goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It may pass by itself; the platform may have said when.
    Passing(Option<Duration>),
    /// Someone has to mend it: the parent token, its rights, the owner.
    Refused,
    /// Another gateway of this machine has the lock.
    Waiting,
}

/// How often and how long attempts have failed.
#[derive(Debug)]
pub(super) struct Pace {
    passing: Backoff,
    refused: Backoff,
}

impl Pace {
    pub(super) const fn new() -> Self {
        let refused = Backoff::new(Duration::from_mins(2), Duration::from_mins(30));
        Self { passing: Backoff::UPSTREAM, refused }
    }

    pub(super) const fn succeeded(&mut self) {
        self.passing.reset();
        self.refused.reset();
    }

    /// How long to wait after one more failure.
    pub(super) fn failed(&mut self, failure: Failure, unit: f64) -> Duration {
        match failure {
            Failure::Passing(told) => self.passing.next(unit).max(told.unwrap_or_default()).max(SOON),
            // Not less than half of it: each attempt is one that the platform counts as a failure to log in.
            Failure::Refused => self.refused.next(0.5f64.mul_add(unit, 0.5)),
            Failure::Waiting => SOON,
        }
    }
}

const SOON: Duration = Duration::from_secs(1);

/// A token of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) id: String,
    pub(super) description: String,
}

/// The ids of the tokens that this gateway has made and no longer knows of.
pub(super) fn left_behind(listed: Vec<Listed>, prefix: &Prefix, known: &[&str]) -> Vec<String> {
    let ours = |token: &Listed| prefix.begins(&token.description) && !known.contains(&token.id.as_str());
    listed.into_iter().filter(ours).map(|token| token.id).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::{Clock, TestClock};

    #[test]
    fn a_life_is_measured_by_the_platforms_own_clock() {
        let at = |seconds: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let seconds = Duration::from_secs;
        assert_eq!(life(seconds(3600), at(1000), at(4600)), Life::Ends(seconds(3600)));
        assert_eq!(life(seconds(3600), at(2000), at(4600)), Life::Ends(seconds(2600)), "its clock is ahead of ours");
        assert_eq!(life(seconds(3600), at(0), at(4600)), Life::Ends(seconds(4600)));
        assert_eq!(life(seconds(3600), None, at(4600)), Life::Ends(seconds(3600)));
        assert_eq!(life(seconds(3600), at(1000), None), Life::Endless);
        assert_eq!(life(seconds(3600), at(5000), at(4600)), Life::TooShort(Duration::ZERO));
        assert_eq!(life(seconds(3), at(1000), at(1002)), Life::Ends(seconds(2)), "so short was asked for");
    }

    #[test]
    fn a_token_is_replaced_before_it_ends() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let check = |life: Life, unit: f64, wanted: f64| {
            let after = start.until(replaced_at(start, Duration::from_secs(100), life, unit)).as_secs_f64();
            assert!((after - wanted).abs() < 0.01, "{life:?}: {after}");
        };
        check(Life::Ends(Duration::from_secs(100)), 0.0, 63.0);
        check(Life::Ends(Duration::from_secs(100)), 1.0, 70.0);
        check(Life::Ends(Duration::from_secs(50)), 0.0, 31.5);
        check(Life::Ends(Duration::from_hours(9)), 0.0, 63.0);
        check(Life::Endless, 0.0, 63.0);
    }

    #[tokio::test]
    async fn what_someone_has_to_mend_is_tried_seldom() {
        let mut pace = Pace::new();
        let waits: Vec<u64> = (0..6).map(|_| pace.failed(Failure::Refused, 0.0).as_secs()).collect();
        assert_eq!(waits, [60, 120, 240, 480, 900, 900]);
        assert_eq!(pace.failed(Failure::Passing(None), 1.0), Duration::from_secs(1));
        assert_eq!(pace.failed(Failure::Passing(None), 1.0), Duration::from_secs(2));
        assert_eq!(pace.failed(Failure::Passing(Some(Duration::from_mins(1))), 1.0), Duration::from_mins(1));
        pace.succeeded();
        assert_eq!(pace.failed(Failure::Refused, 0.0), Duration::from_mins(1));
    }

    #[test]
    fn what_is_left_behind_has_our_description_and_is_unknown_here() {
        let (ours, other) = (Prefix::of(Path::new("/a/token")), Prefix::of(Path::new("/b/token")));
        let token = |id: &str, description: Option<String>| Listed {
            id: id.to_owned(),
            description: description.unwrap_or_default(),
        };
        let listed = vec![token("1", ours.next()), token("2", ours.next()), token("3", other.next()), token("4", None)];
        assert_eq!(left_behind(listed, &ours, &["2"]), ["1"]);
    }
}
