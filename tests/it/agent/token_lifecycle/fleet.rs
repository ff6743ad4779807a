//! Simulation of ten thousand agents around an outage: time to recovery, and logins per second at the server.
//!
//! The agents' decisions are the real ones; the server, the time and the randomness are the test's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, SystemTime};

use keyward::agent::token_lifecycle::retry_budget::{FailureCause, RetryBudget};
use keyward::agent::token_lifecycle::schedule::{LastOutcome, NextStep, NotBefore, TokenLifetime, next_step};
use keyward::clock::ClockReading;

const AGENTS: usize = 10_000;

fn at(time: Duration) -> ClockReading {
    ClockReading { boot: time, wall: SystemTime::UNIX_EPOCH + time }
}

/// Random numbers by xorshift64, the same in each run.
struct Chance(u64);

impl Chance {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Returns the time of the next login: by the session's backoff, or sooner if a caller waits.
fn next_login(pace: &mut RetryBudget, now: ClockReading, waits: bool, chance: &mut Chance) -> ClockReading {
    let own = pace.earliest_login(now);
    if let Some(sooner) = pace.next_for_caller(now, chance.unit()).filter(|sooner| waits && sooner.boot < own.boot) {
        pace.take_for_caller(now);
        sooner
    } else {
        pace.take_login(now);
        own
    }
}

/// Returns the 99th percentile of the time between the outage's end and a token, for agents with a waiting caller.
fn recovery(outage: Duration, chance: &mut Chance) -> Duration {
    let mut took: Vec<_> = (0..AGENTS)
        .map(|_| {
            let ends = at(outage + Duration::from_secs(30).mul_f64(chance.unit()));
            let (mut pace, mut now) = (RetryBudget::new(at(Duration::ZERO)), at(Duration::ZERO));
            while !now.until(ends).is_zero() {
                pace.record_failure(now, FailureCause::Transient, None, chance.unit());
                now = next_login(&mut pace, now, true, chance);
            }
            now.since(ends)
        })
        .collect();
    took.sort_unstable();
    took[AGENTS * 99 / 100]
}

#[test]
fn after_an_outage_99_of_100_agents_with_waiting_callers_recover_in_time() {
    let mut chance = Chance(0x9E37_79B9);
    for (outage, within) in [(60, 10), (1800, 30)] {
        let took = recovery(Duration::from_secs(outage), &mut chance);
        assert!(took <= Duration::from_secs(within), "{took:?} after an outage of {outage} s");
    }
}

struct Agent {
    life: Option<TokenLifetime>,
    pace: RetryBudget,
    step: NextStep,
    /// True if a caller waits while there is no token.
    waits: bool,
}

const LEASE: Duration = Duration::from_hours(1);

fn life(now: ClockReading) -> TokenLifetime {
    TokenLifetime { obtained: now, ends: Some(now + LEASE), ttl: LEASE, renewable: true }
}

impl Agent {
    fn plan(&mut self, last: LastOutcome, now: ClockReading, chance: &mut Chance) {
        let earliest = NotBefore { renewal: self.pace.renewal_not_before(), login: self.pace.not_before() };
        self.step = next_step(self.life.as_ref(), last, earliest, now, chance.unit());
        if let (NextStep::LoginAt(_), LastOutcome::Failed) = (self.step, last) {
            let waits = self.waits && self.life.is_none();
            self.step = NextStep::LoginAt(next_login(&mut self.pace, now, waits, chance));
        }
    }

    /// Returns the time of the next event: its step, or the expiry of its token.
    fn wakes(&self) -> Duration {
        let step = self.step.at().unwrap().boot;
        self.life.as_ref().and_then(|life| life.ends).map_or(step, |ends| ends.boot.min(step))
    }

    /// Runs the due event; returns true if that was a login.
    fn wake(&mut self, now: ClockReading, away: bool, chance: &mut Chance) -> bool {
        if self.life.as_ref().and_then(|life| life.ends).is_some_and(|ends| now.until(ends).is_zero()) {
            self.life = None;
            self.plan(LastOutcome::Failed, now, chance);
            return false;
        }
        let login = matches!(self.step, NextStep::LoginAt(_));
        let last = if !away {
            self.pace.record_success(now);
            self.life = Some(life(now));
            LastOutcome::Succeeded
        } else if login {
            self.pace.record_failure(now, FailureCause::Transient, None, chance.unit());
            LastOutcome::Failed
        } else {
            self.pace.record_renewal_failure(now, None, chance.unit());
            LastOutcome::Failed
        };
        self.plan(last, now, chance);
        login
    }
}

/// Returns the highest number of logins in one second, from the start of an outage to an hour after it.
///
/// Logins that do not reach the server are included. A caller waits at every third agent without a token.
fn peak(outage: Duration, chance: &mut Chance) -> u32 {
    let start = LEASE * 2;
    let mut agents: Vec<_> = (0..AGENTS)
        .map(|number| {
            let now = at(LEASE.mul_f64(chance.unit()));
            let mut agent = Agent {
                life: Some(life(now)),
                pace: RetryBudget::new(now),
                step: NextStep::Idle,
                waits: number % 3 == 0,
            };
            agent.plan(LastOutcome::Succeeded, now, chance);
            agent
        })
        .collect();
    let mut queue: BinaryHeap<_> =
        agents.iter().enumerate().map(|(which, agent)| Reverse((agent.wakes(), which))).collect();
    let mut logins: BTreeMap<u64, u32> = BTreeMap::new();
    while let Some(Reverse((time, which))) = queue.pop() {
        if time > start + outage + LEASE {
            break;
        }
        let away = (start..start + outage).contains(&time);
        if agents[which].wake(at(time), away, chance) {
            *logins.entry(time.as_secs()).or_default() += 1;
        }
        queue.push(Reverse((agents[which].wakes(), which)));
    }
    logins.into_values().max().unwrap_or(0)
}

#[test]
fn ten_thousand_agents_make_less_than_300_logins_in_any_second() {
    let mut chance = Chance(0x1234_5678_9ABC);
    for minutes in [1, 30, 120] {
        let peak = peak(Duration::from_mins(minutes), &mut chance);
        assert!(peak < 300, "{peak} logins in a second around an outage of {minutes} minutes");
    }
}
