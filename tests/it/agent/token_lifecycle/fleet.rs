//! Simulation of ten thousand agents around an outage: time to recovery, and logins per second at the server.
//!
//! The agents' decisions are the real ones; the server, the time and the randomness are the test's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, SystemTime};

use keyward::agent::retry_budget::{FailureCause, RetryBudget};
use keyward::agent::token_lifecycle::schedule::{LastOutcome, NextStep, NotBefore, TokenLifetime, next_step};
use keyward::clock::ClockReading;

const AGENTS: usize = 10_000;

fn at(time: Duration) -> ClockReading {
    ClockReading { boot: time, wall: SystemTime::UNIX_EPOCH + time }
}

/// Random numbers by xorshift64, the same in each run.
struct Randomness(u64);

impl Randomness {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Returns the time of the next login: by the session's backoff, or sooner if a caller waits.
fn next_login(budget: &mut RetryBudget, now: ClockReading, waits: bool, random: &mut Randomness) -> ClockReading {
    let own = budget.earliest_login(now);
    if let Some(sooner) = budget.next_for_caller(now, random.unit()).filter(|sooner| waits && sooner.boot < own.boot) {
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
                now = next_login(&mut budget, now, true, random);
            }
            now.since(ends)
        })
        .collect();
    took.sort_unstable();
    took[AGENTS * 99 / 100]
}

#[test]
fn after_an_outage_99_of_100_agents_with_waiting_callers_recover_in_time() {
    let mut random = Randomness(0x9E37_79B9);
    for (outage, within) in [(60, 10), (1800, 30)] {
        let took = recovery(Duration::from_secs(outage), &mut random);
        assert!(took <= Duration::from_secs(within), "{took:?} after an outage of {outage} s");
    }
}

struct Agent {
    life: Option<TokenLifetime>,
    budget: RetryBudget,
    step: NextStep,
    /// True if a caller waits while there is no token.
    waits: bool,
}

const LEASE: Duration = Duration::from_hours(1);

fn lifetime(now: ClockReading) -> TokenLifetime {
    TokenLifetime { obtained: now, ends: Some(now + LEASE), ttl: LEASE, renewable: true }
}

impl Agent {
    fn plan(&mut self, last: LastOutcome, now: ClockReading, random: &mut Randomness) {
        let earliest = NotBefore { renewal: self.budget.renewal_not_before(), login: self.budget.not_before() };
        self.step = next_step(self.life.as_ref(), last, earliest, now, random.unit());
        if let (NextStep::LoginAt(_), LastOutcome::Failed) = (self.step, last) {
            let waits = self.waits && self.life.is_none();
            self.step = NextStep::LoginAt(next_login(&mut self.budget, now, waits, random));
        }
    }

    /// Returns the time of the next event: its step, or the expiry of its token.
    fn next_event(&self) -> Duration {
        let step = self.step.at().unwrap().boot;
        self.life.as_ref().and_then(|life| life.ends).map_or(step, |ends| ends.boot.min(step))
    }

    /// Runs the due event; returns true if that was a login.
    fn run_event(&mut self, now: ClockReading, away: bool, random: &mut Randomness) -> bool {
        if self.life.as_ref().and_then(|life| life.ends).is_some_and(|ends| now.until(ends).is_zero()) {
            self.life = None;
            self.plan(LastOutcome::Failed, now, random);
            return false;
        }
        let login = matches!(self.step, NextStep::LoginAt(_));
        let last = if !away {
            self.budget.record_success(now);
            self.life = Some(lifetime(now));
            LastOutcome::Succeeded
        } else if login {
            self.budget.record_failure(now, FailureCause::Transient, None, random.unit());
            LastOutcome::Failed
        } else {
            self.budget.record_renewal_failure(now, None, random.unit());
            LastOutcome::Failed
        };
        self.plan(last, now, random);
        login
    }
}

/// Returns the highest number of logins in one second, from the start of an outage to an hour after it.
///
/// Logins that do not reach the server are included. A caller waits at every third agent without a token.
fn peak(outage: Duration, random: &mut Randomness) -> u32 {
    let start = LEASE * 2;
    let mut agents: Vec<_> = (0..AGENTS)
        .map(|number| {
            let now = at(LEASE.mul_f64(random.unit()));
            let mut agent = Agent {
                life: Some(lifetime(now)),
                budget: RetryBudget::new(now),
                step: NextStep::Idle,
                waits: number % 3 == 0,
            };
            agent.plan(LastOutcome::Succeeded, now, random);
            agent
        })
        .collect();
    let mut queue: BinaryHeap<_> =
        agents.iter().enumerate().map(|(which, agent)| Reverse((agent.next_event(), which))).collect();
    let mut logins: BTreeMap<u64, u32> = BTreeMap::new();
    while let Some(Reverse((time, which))) = queue.pop() {
        if time > start + outage + LEASE {
            break;
        }
        let away = (start..start + outage).contains(&time);
        if agents[which].run_event(at(time), away, random) {
            *logins.entry(time.as_secs()).or_default() += 1;
        }
        queue.push(Reverse((agents[which].next_event(), which)));
    }
    logins.into_values().max().unwrap_or(0)
}

#[test]
fn ten_thousand_agents_make_less_than_300_logins_in_any_second() {
    let mut random = Randomness(0x1234_5678_9ABC);
    for minutes in [1, 30, 120] {
        let peak = peak(Duration::from_mins(minutes), &mut random);
        assert!(peak < 300, "{peak} logins in a second around an outage of {minutes} minutes");
    }
}
