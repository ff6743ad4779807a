//! Restart decisions: a pure function of the exit and of the exits before it.

use std::time::Duration;

use rustix::process::Signal;

use keyward_credentials::backoff::Backoff;
use keyward_machine::clock::ClockReading;

/// Reaction to a change of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnChange {
    /// Restart the process with the new variables.
    Restart,
    /// Send a signal. The process's environment stays as it was.
    Signal(Signal),
    /// Do nothing: the next start uses the new variables.
    Ignore,
}

/// Reaction to the end of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartMode {
    /// The agent exits with the same code.
    Never,
    /// Restart after a failure; the agent exits after a success.
    OnFailure,
    /// Restart in any case.
    Always,
}

/// Decision after an exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartDecision {
    /// The agent exits with the process's code.
    Exit,
    /// The process is restarted after this time.
    RestartAfter(Duration),
}

/// Decides on the exits of one process. A process without an exit of its own for `STABLE_AFTER` resets the backoff.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestartPolicy {
    restart: RestartMode,
    backoff: Backoff,
    /// First start since the last exit of its own: restarts for changed variables do not count.
    started: Option<ClockReading>,
}

impl RestartPolicy {
    /// Creates a policy without exits.
    pub(crate) const fn new(restart: RestartMode) -> Self {
        Self { restart, backoff: Backoff::new(BASE_DELAY, MAX_DELAY), started: None }
    }

    /// Records a start of the process.
    pub(crate) const fn record_start(&mut self, now: ClockReading) {
        if self.started.is_none() {
            self.started = Some(now);
        }
    }

    /// Decides on an exit at `now` that the process made itself. `unit` is a random number in `0.0..1.0`.
    pub(crate) fn decide(&mut self, succeeded: bool, now: ClockReading, unit: f64) -> RestartDecision {
        let started = self.started.take();
        if self.restart == RestartMode::Never || (self.restart == RestartMode::OnFailure && succeeded) {
            return RestartDecision::Exit;
        }
        if started.is_some_and(|started| now.since(started) >= STABLE_AFTER) {
            self.backoff.reset();
        }
        // At least half of the delay: with full jitter a program that cannot start might be restarted at once.
        RestartDecision::RestartAfter(self.backoff.next_half_jitter(unit))
    }
}

const BASE_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_mins(5);

/// Lifetime after which a process did not fail at its start.
const STABLE_AFTER: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use keyward_machine::clock::{Clock, TestClock};

    use super::*;

    #[tokio::test]
    async fn an_exit_ends_the_agent_or_is_followed_by_a_restart_with_back_off() {
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
            let mut policy = RestartPolicy::new(restart);
            policy.record_start(start);
            let verdict = policy.decide(well, soon, 1.0);
            assert_eq!(verdict == RestartDecision::Exit, ends, "{restart:?} {well}");
        }
        let mut policy = RestartPolicy::new(RestartMode::Always);
        let mut waits = |lived: u64, unit| {
            // In between it is restarted for a changed variable.
            policy.record_start(start);
            policy.record_start(start + Duration::from_secs(lived / 2));
            match policy.decide(false, start + Duration::from_secs(lived), unit) {
                RestartDecision::RestartAfter(wait) => wait.as_millis(),
                RestartDecision::Exit => panic!("it is started again"),
            }
        };
        assert_eq!([waits(1, 1.0), waits(1, 1.0), waits(1, 0.0)], [1000, 2000, 2000]);
        for _ in 0..10 {
            waits(1, 1.0);
        }
        assert_eq!(waits(599, 1.0), 300_000, "five minutes at most");
        assert_eq!(waits(600, 1.0), 1000, "a long life resets the backoff");
    }
}
