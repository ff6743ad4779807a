//! Ten thousand agents around an outage, a start and a mass revocation: times to a token, and logins per second at the server.
//!
//! `tests/herd` makes docs/internals/fleet.md and its curves from the same simulation.

mod report;
mod simulation;

use std::time::Duration;

use keyward_agent::retry_budget::{FailureCause, RetryBudget};
use keyward_machine::clock::ClockReading;

use self::report::{Recovery, is_published, publish};
use self::simulation::{AGENTS, Fleet, Randomness, at};

/// Returns the time of the next login: by the session's backoff, or sooner if a caller waits.
fn next_login(budget: &mut RetryBudget, now: ClockReading, random: &mut Randomness) -> ClockReading {
    let own = budget.earliest_login(now);
    if let Some(sooner) = budget.next_for_caller(now, random.unit()).filter(|sooner| sooner.boot < own.boot) {
        budget.take_for_caller(now);
        sooner
    } else {
        budget.take_login(now);
        own
    }
}

/// Returns the 99th percentile of the time between the outage's end and a token, for agents with a waiting caller.
fn recovery(outage: Duration, random: &mut Randomness) -> Duration {
    let mut took: Vec<_> = (0..AGENTS)
        .map(|_| {
            let ends = at(outage + Duration::from_secs(30).mul_f64(random.unit()));
            let (mut budget, mut now) = (RetryBudget::new(at(Duration::ZERO)), at(Duration::ZERO));
            while !now.until(ends).is_zero() {
                budget.record_failure(now, FailureCause::Transient, None, random.unit());
                now = next_login(&mut budget, now, random);
            }
            now.since(ends)
        })
        .collect();
    took.sort_unstable();
    took[AGENTS * 99 / 100]
}

#[test]
fn after_an_outage_of_a_minute_99_of_100_agents_with_waiting_callers_recover_in_time() {
    let took = recovery(Duration::from_mins(1), &mut Randomness(0x9E37_79B9));
    assert!(took <= Duration::from_secs(10), "{took:?}");
}

const OUTAGE: Duration = Duration::from_mins(30);
/// Lease of the tokens before the outage: each of them ends in it.
const SHORT_LEASE: Duration = Duration::from_mins(20);
/// All agents have a token again after this time.
const AFTERWARDS: Duration = Duration::from_mins(8);

/// Share of the agents at which a caller waits.
#[derive(Debug, Clone, Copy)]
enum Callers {
    Third,
    All,
}

impl Callers {
    const fn divisor(self) -> usize {
        match self {
            Self::Third => 3,
            Self::All => 1,
        }
    }

    const fn describe(self) -> &'static str {
        match self {
            Self::Third => "a third",
            Self::All => "all",
        }
    }
}

/// A fleet at the time from which its recovery counts.
struct FleetScenario {
    fault: &'static str,
    callers: Callers,
    fleet: Fleet,
    start: Duration,
}

impl FleetScenario {
    fn outage(callers: Callers) -> Self {
        let mut fleet = Fleet::running(callers.divisor(), SHORT_LEASE, 0x1234_5678_9ABC);
        fleet.run_until(SHORT_LEASE);
        fleet.server.away = true;
        let start = SHORT_LEASE + OUTAGE;
        fleet.run_until(start);
        fleet.come_back(start);
        Self { fault: "outage of 30 min", callers, fleet, start }
    }

    fn start(fault: &'static str, callers: Callers, jitter: Duration) -> Self {
        let fleet = Fleet::starting(callers.divisor(), jitter, 0xABCD_EF01);
        Self { fault, callers, fleet, start: Duration::ZERO }
    }

    /// Callers make a call each 30 s, sessions a check each 5 minutes.
    fn revocation(callers: Callers) -> Self {
        let start = Duration::from_hours(1);
        let mut fleet = Fleet::running(callers.divisor(), start, 0x0BAD_CAFE);
        fleet.run_until(start);
        fleet.revoke_all(start, Duration::from_secs(30), Duration::from_secs(330));
        Self { fault: "all tokens revoked", callers, fleet, start }
    }

    /// Runs a copy of the fleet against a server with this limit.
    fn run(&self, limit: Limit) -> Recovery {
        let mut fleet = self.fleet.clone();
        (fleet.server.limit, fleet.server.retry_after) = match limit {
            Limit::None => (None, None),
            Limit::Unavailable => (Some(LIMIT), None),
            Limit::TooMany => (Some(LIMIT), Some(Duration::from_secs(1))),
        };
        fleet.run_until(self.start + AFTERWARDS);
        let recovery = Recovery::new([self.fault, self.callers.describe(), limit.describe()], &fleet, self.start);
        assert_eq!(recovery.missing, 0, "agents without a token: {recovery}");
        assert!(recovery.peak.accepted <= LIMIT, "{recovery}");
        recovery
    }
}

/// Logins that the server accepts in a second.
const LIMIT: u32 = 300;

/// Response to logins over the limit.
#[derive(Debug, Clone, Copy)]
enum Limit {
    None,
    Unavailable,
    TooMany,
}

impl Limit {
    const fn describe(self) -> &'static str {
        match self {
            Self::None => "no limit",
            Self::Unavailable => "503 over 300/s",
            Self::TooMany => "429 over 300/s",
        }
    }
}

/// Checks the bounds of docs/internals/fleet.md: seconds to a token for 99 of 100 waiting callers, and logins per second with those refused.
fn check(recovery: Recovery, p99: f64, attempted: u32) -> Recovery {
    assert!(recovery.p99() <= p99 && recovery.peak.attempted <= attempted, "{recovery}");
    recovery
}

const ANY: u32 = u32::MAX;
const AT_ONCE: &str = "start at once";
const JITTERED: &str = "start, jitter 40 s";
const JITTER: Duration = Duration::from_secs(40);

#[test]
fn ten_thousand_agents_come_back_within_the_published_bounds() {
    let outage = FleetScenario::outage(Callers::Third);
    let mut recoveries = vec![
        check(outage.run(Limit::Unavailable), 30.0, LIMIT),
        check(FleetScenario::start(AT_ONCE, Callers::Third, Duration::ZERO).run(Limit::Unavailable), 32.0, ANY),
        check(FleetScenario::start(JITTERED, Callers::Third, JITTER).run(Limit::Unavailable), 40.0, LIMIT),
        check(FleetScenario::revocation(Callers::Third).run(Limit::Unavailable), 30.0, LIMIT),
    ];
    if !is_published() {
        return;
    }
    recoveries.extend([
        check(outage.run(Limit::None), 30.0, LIMIT),
        check(outage.run(Limit::TooMany), 30.0, LIMIT),
        check(FleetScenario::outage(Callers::All).run(Limit::Unavailable), 45.0, 700),
        check(FleetScenario::start(AT_ONCE, Callers::Third, Duration::ZERO).run(Limit::TooMany), 32.0, ANY),
        check(FleetScenario::start(AT_ONCE, Callers::All, Duration::ZERO).run(Limit::Unavailable), 36.0, ANY),
        check(FleetScenario::start(JITTERED, Callers::All, JITTER).run(Limit::Unavailable), 40.0, LIMIT),
        check(FleetScenario::revocation(Callers::All).run(Limit::Unavailable), 30.0, ANY),
    ]);
    publish(&mut recoveries);
}
