//! Simulates agents around one server. Their decisions are the real ones; the server, the time and the randomness are simulated.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, SystemTime};

use keyward_agent::retry_budget::{FailureCause, RetryBudget};
use keyward_agent::token_lifecycle::schedule::{LastOutcome, NextStep, NotBefore, TokenLifetime, next_step};
use keyward_machine::clock::ClockReading;

pub(super) const AGENTS: usize = 10_000;

pub(super) fn at(time: Duration) -> ClockReading {
    ClockReading { boot: time, wall: SystemTime::UNIX_EPOCH + time }
}

/// Random numbers by xorshift64, the same in each run.
#[derive(Debug, Clone)]
pub(super) struct Randomness(pub(super) u64);

impl Randomness {
    pub(super) fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        f64::from(u32::try_from(self.0 >> 32).unwrap()) / (f64::from(u32::MAX) + 1.0)
    }
}

/// The simulated server, and the logins that it saw in each second.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    pub(super) away: bool,
    /// Logins accepted in a second; all of them without a limit.
    pub(super) limit: Option<u32>,
    /// `Retry-After` of a login over the limit, which gets 429; without it, the login gets 503.
    pub(super) retry_after: Option<Duration>,
    pub(super) logins: BTreeMap<u64, LoginCount>,
}

/// Logins of one second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoginCount {
    pub(super) attempted: u32,
    pub(super) accepted: u32,
}

impl Server {
    fn accepts(&mut self, now: Duration) -> bool {
        let count = self.logins.entry(now.as_secs()).or_default();
        count.attempted += 1;
        let accepts = !self.away && self.limit.is_none_or(|limit| count.accepted < limit);
        count.accepted += u32::from(accepts);
        accepts
    }

    /// Returns the highest numbers of attempted and of accepted logins in a second.
    pub(super) fn peak(&self) -> LoginCount {
        let highest = |count: fn(&LoginCount) -> u32| self.logins.values().map(count).max().unwrap_or(0);
        LoginCount { attempted: highest(|count| count.attempted), accepted: highest(|count| count.accepted) }
    }
}

/// One agent, with the steps of a session's planner.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    lease: Duration,
    life: Option<TokenLifetime>,
    budget: RetryBudget,
    step: NextStep,
    is_scheduled: bool,
    for_callers: bool,
    /// True if a caller waits while there is no token.
    pub(super) has_caller: bool,
    /// Time at which it learns that its token was revoked.
    learns: Option<Duration>,
    /// Time since which it has had no valid token, or since which a caller waits for one.
    lost: Option<Duration>,
    /// Time in which it got a token again, from the loss or, if that was earlier, from the server's return.
    pub(super) took: Option<Duration>,
}

impl Agent {
    fn plan(&mut self, last: LastOutcome, now: ClockReading, random: &mut Randomness) {
        self.for_callers = false;
        let (renewal, login) = (self.budget.renewal_not_before(), self.budget.not_before());
        let renewal = if renewal.boot > login.boot { renewal } else { login };
        self.step = next_step(self.life.as_ref(), last, NotBefore { renewal, login }, now, random.unit());
        self.is_scheduled = self.life.is_some() && last != LastOutcome::Failed;
        let NextStep::LoginAt(planned) = self.step else { return };
        if !self.is_scheduled {
            let earliest = self.budget.earliest_login(now);
            self.step = NextStep::LoginAt(if earliest.boot > planned.boot { earliest } else { planned });
        }
        if self.has_caller && self.life.is_none() {
            self.advance_login(now, random);
        }
    }

    fn advance_login(&mut self, now: ClockReading, random: &mut Randomness) {
        let sooner = self.budget.next_for_caller(now, random.unit());
        if let (NextStep::LoginAt(planned), Some(sooner)) = (self.step, sooner)
            && sooner.boot < planned.boot
        {
            (self.step, self.for_callers) = (NextStep::LoginAt(sooner), true);
        }
    }

    /// Returns the time of the next event: its step, the end of its token, or the news of its revocation.
    fn next_event(&self) -> Duration {
        let step = self.step.at().unwrap().boot;
        let ends = self.life.as_ref().and_then(|life| life.ends).map_or(step, |ends| ends.boot);
        step.min(ends).min(self.learns.unwrap_or(step))
    }

    fn lose_token(&mut self, now: ClockReading, random: &mut Randomness) {
        (self.life, self.learns) = (None, None);
        self.lost.get_or_insert(now.boot);
        self.plan(LastOutcome::Failed, now, random);
    }

    fn run_event(&mut self, now: ClockReading, returned: Duration, server: &mut Server, random: &mut Randomness) {
        let ended = self.life.as_ref().and_then(|life| life.ends).is_some_and(|ends| now.until(ends).is_zero());
        if ended || self.learns.is_some_and(|learns| learns <= now.boot) {
            return self.lose_token(now, random);
        }
        let last = match self.step {
            NextStep::LoginAt(_) => self.log_in(now, returned, server, random),
            _ if self.learns.is_some() => return self.lose_token(now, random),
            _ if server.away => {
                self.budget.record_renewal_failure(now, None, random.unit());
                LastOutcome::Failed
            }
            _ => self.succeed(now),
        };
        self.plan(last, now, random);
    }

    fn log_in(
        &mut self,
        now: ClockReading,
        returned: Duration,
        server: &mut Server,
        random: &mut Randomness,
    ) -> LastOutcome {
        if self.for_callers {
            self.budget.take_for_caller(now);
        } else if !self.is_scheduled {
            self.budget.take_login(now);
        }
        if server.accepts(now.boot) {
            if let Some(lost) = self.lost.take() {
                self.took = Some(now.boot.saturating_sub(lost.max(returned)));
            }
            return self.succeed(now);
        }
        let retry_after = server.retry_after.filter(|_| !server.away);
        self.budget.record_failure(now, FailureCause::Transient, retry_after, random.unit());
        LastOutcome::Failed
    }

    fn succeed(&mut self, now: ClockReading) -> LastOutcome {
        self.budget.record_success(now);
        let (ends, ttl) = (Some(now + self.lease), self.lease);
        self.life = Some(TokenLifetime { obtained: now, ends, ttl, renewable: true });
        LastOutcome::Succeeded
    }
}

/// All agents and their server, at a time.
#[derive(Debug, Clone)]
pub(super) struct Fleet {
    pub(super) agents: Vec<Agent>,
    pub(super) server: Server,
    queue: BinaryHeap<Reverse<(Duration, usize)>>,
    random: Randomness,
    /// Time at which the server's trouble ended.
    returned: Duration,
}

impl Fleet {
    /// Creates agents without a token at time zero, whose first login waits a random share of `jitter`. A caller waits at one of
    /// `callers` agents.
    pub(super) fn starting(callers: usize, jitter: Duration, seed: u64) -> Self {
        let (start, mut random) = (at(Duration::ZERO), Randomness(seed));
        let agent = |number: usize| Agent {
            lease: Duration::from_hours(1),
            life: None,
            budget: RetryBudget::new(start),
            step: NextStep::LoginAt(start + jitter.mul_f64(random.unit())),
            is_scheduled: false,
            for_callers: false,
            has_caller: number.is_multiple_of(callers),
            learns: None,
            lost: Some(Duration::ZERO),
            took: None,
        };
        let agents: Vec<_> = (0..AGENTS).map(agent).collect();
        let mut fleet =
            Self { agents, server: Server::default(), queue: BinaryHeap::new(), random, returned: Duration::ZERO };
        fleet.fill_queue();
        fleet
    }

    /// Creates agents that have run for long with tokens of this lease, at the time of one lease.
    pub(super) fn running(callers: usize, lease: Duration, seed: u64) -> Self {
        let mut fleet = Self::starting(callers, Duration::ZERO, seed);
        for agent in &mut fleet.agents {
            let obtained = at(lease.mul_f64(1.0 - 0.63 * fleet.random.unit()));
            (agent.lease, agent.lost) = (lease, None);
            let last = agent.succeed(obtained);
            agent.plan(last, obtained, &mut fleet.random);
        }
        fleet.fill_queue();
        fleet
    }

    fn fill_queue(&mut self) {
        self.queue =
            self.agents.iter().enumerate().map(|(which, agent)| Reverse((agent.next_event(), which))).collect();
    }

    /// Revokes every token. Agents with a caller learn it from its next call, within `asks`, the others within `checks`.
    pub(super) fn revoke_all(&mut self, now: Duration, asks: Duration, checks: Duration) {
        for agent in &mut self.agents {
            let within = if agent.has_caller { asks } else { checks };
            agent.learns = Some(now + within.mul_f64(self.random.unit()));
            agent.lost = (!agent.has_caller).then_some(now);
        }
        self.fill_queue();
    }

    /// Ends the server's outage.
    pub(super) fn come_back(&mut self, now: Duration) {
        (self.returned, self.server.away) = (now, false);
    }

    /// Runs all events before `end`.
    pub(super) fn run_until(&mut self, end: Duration) {
        while let Some(Reverse((time, which))) = self.queue.pop() {
            if time >= end {
                self.queue.push(Reverse((time, which)));
                return;
            }
            let agent = &mut self.agents[which];
            agent.run_event(at(time), self.returned, &mut self.server, &mut self.random);
            self.queue.push(Reverse((agent.next_event(), which)));
        }
    }
}
