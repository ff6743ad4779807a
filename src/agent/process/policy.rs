//! What is done when the child has ended: a function of how it ended and of how often it did.

use std::time::Duration;

use rustix::process::Signal;

use crate::backoff::Backoff;
use crate::clock::ClockReading;

/// What is done when a variable has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChange {
    /// The child is stopped, and started with the new ones.
    RestartMode,
    /// It gets a signal. Its environment stays as it was.
    Signal(Signal),
    /// Nothing: the next start has them.
    Ignore,
}

/// What is done when the child has ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartMode {
    /// The agent ends too, with the same code.
    Never,
    /// It is started again if it failed; where it did not, the agent ends too.
    OnFailure,
    /// It is started again.
    Always,
}

/// What follows from an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// The agent ends, with the child's code.
    ExitCause,
    /// The child is started again after this time.
    StartAfter(Duration),
}

/// Judges the ends of one child. A child that lives long enough has its earlier ends forgotten.
#[derive(Debug, Clone, Copy)]
pub struct RestartPolicy {
    restart: RestartMode,
    backoff: Backoff,
}

impl RestartPolicy {
    /// One that has seen nothing.
    pub const fn new(restart: RestartMode) -> Self {
        Self { restart, backoff: Backoff::new(BASE_DELAY, MAX_DELAY) }
    }

    /// The child, started at `started`, has ended at `now`. `unit` is a random number in `0.0..1.0`.
    pub fn ended(&mut self, well: bool, started: ClockReading, now: ClockReading, unit: f64) -> RestartDecision {
        if self.restart == RestartMode::Never || (self.restart == RestartMode::OnFailure && well) {
            return RestartDecision::ExitCause;
        }
        if now.since(started) >= STABLE_AFTER {
            self.backoff.reset();
        }
        // Half of the wait is certain: a program that cannot start must not be started in a loop.
        RestartDecision::StartAfter(self.backoff.next(0.5 + unit / 2.0))
    }
}

const BASE_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_mins(5);

/// Who lived so long did not fail at the start.
const STABLE_AFTER: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::clock::{Clock, TestClock};

    #[tokio::test]
    async fn an_end_ends_the_agent_or_is_followed_by_a_start_that_waits_longer_each_time() {
        let start = Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)).now();
        let soon = start + Duration::from_secs(1);
        for (restart, well, ends) in [
            (RestartMode::Never, true, true),
            (RestartMode::Never, false, true),
            (RestartMode::OnFailure, true, true),
            (RestartMode::OnFailure, false, false),
            (RestartMode::Always, true, false),
            (RestartMode::Always, false, false),
        ] {
            let verdict = RestartPolicy::new(restart).ended(well, start, soon, 1.0);
            assert_eq!(verdict == RestartDecision::ExitCause, ends, "{restart:?} {well}");
        }
        let mut policy = RestartPolicy::new(RestartMode::Always);
        let mut waits = |lived: u64, unit| match policy.ended(false, start, start + Duration::from_secs(lived), unit) {
            RestartDecision::StartAfter(wait) => wait.as_millis(),
            RestartDecision::ExitCause => panic!("it is started again"),
        };
        assert_eq!([waits(1, 1.0), waits(1, 1.0), waits(1, 0.0)], [1000, 2000, 2000]);
        for _ in 0..10 {
            waits(1, 1.0);
        }
        assert_eq!(waits(599, 1.0), 300_000, "five minutes are the most");
        assert_eq!(waits(600, 1.0), 1000, "who lived long begins anew");
    }
}
