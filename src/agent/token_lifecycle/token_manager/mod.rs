//! Keeps one session's token: one loop that waits for everything at once and asks `schedule` what comes next.

mod reconfigure;
mod hurry;
mod inherit;
mod results;
mod restore;
mod suspect;
mod publish;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::current_token::{Held, Looks, Standing};
use super::inflight::{Call, Done, Look};
use super::retry_budget::Pace;
use super::schedule::{Earliest, Last, Step, next_step};
use super::session_state::Archive;
use super::status_reporter::Report;
use super::suspicion::SuspicionLimit;
use super::{Farewell, Options, inflight};
use crate::agent::identity::{IdentityProof, IdentitySource};
use crate::agent::login::Login;
use crate::agent::token::{Token, TokenPublisher};
use crate::backoff::random_unit;
use crate::clock::{Clock, ClockChanges, ClockReading};
use crate::credential_watch::RefreshSignal;
use crate::demand::Retried;
use crate::health;
use crate::metrics::Metrics;
use crate::status::StatusRegistry;

/// What a keeper works with.
#[derive(Debug)]
pub struct Parts {
    /// The watch's write half.
    pub publisher: TokenPublisher,
    /// Who the machine is.
    pub identity: Box<dyn IdentitySource>,
    /// Where and how to log in.
    pub login: Login,
    /// What callers ring.
    pub refresh_signal: RefreshSignal,
    /// Where the time comes from.
    pub clock: Clock,
    /// Where to post what the session is doing.
    pub status_registry: StatusRegistry,
    /// Where to say whether there is a token.
    pub health: health::HealthHandle,
    /// Where attempts are counted.
    pub metrics: Metrics,
    /// Digest of what the session logs in with: a session does not inherit the refusals and the backoff of other settings.
    pub fingerprint: String,
}

/// Keeps one session's token and publishes it.
pub struct TokenKeeper {
    options: Options,
    sent: watch::Sender<Options>,
    received: watch::Receiver<Options>,
    publisher: TokenPublisher,
    identity: Arc<dyn IdentitySource>,
    login: Login,
    refresh_signal: RefreshSignal,
    clock: Clock,
    report: Report,
    fingerprint: String,
    archive: Option<Archive>,
    pace: Pace,
    held: Option<Held>,
    next: Step,
    /// Whether the login that comes next replaces a token in its time, so that the bucket is not asked.
    planned: bool,
    /// True if the next login is made because callers wait, or because someone asked for it.
    for_caller: bool,
    retries: Vec<oneshot::Sender<Retried>>,
    /// The proof of a login that the server did not judge.
    proof: Option<(Arc<IdentityProof>, ClockReading)>,
    work: Option<Call<Done>>,
    /// Whether `work` is a renewal, which is of no use once its token has ended.
    renewing: bool,
    look: Option<Call<Look>>,
    next_check: Option<ClockReading>,
    last_checked: Option<ClockReading>,
    /// Someone has rung and is not answered yet.
    ringing: bool,
    jump_looked: Option<ClockReading>,
    suspicions: SuspicionLimit,
    /// The server would not renew a fresh token: until then others like it are not tried either.
    no_renewal_until: Option<ClockReading>,
    /// Why there is no token, when there is none.
    absence: &'static str,
    last_error: Option<String>,
    saves: JoinSet<()>,
    /// Tokens that were replaced and may live, for the end.
    replaced: Vec<Arc<Token>>,
}

impl std::fmt::Debug for TokenKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenKeeper").field("session", &self.options.name).finish_non_exhaustive()
    }
}

/// What the loop woke up for.
enum Event {
    End,
    Done(Done),
    Looked(Look),
    RefreshRequest,
    Demand,
    Jump,
    Check,
    Step,
    Saved,
    Options,
}

impl TokenKeeper {
    /// A keeper that has done nothing yet.
    pub fn new(options: Options, parts: Parts) -> Self {
        let Parts { publisher, identity, login, refresh_signal, clock, status_registry, health, metrics, fingerprint } =
            parts;
        let status_handle = status_registry.register(options.name.clone());
        let report =
            Report { session: options.name.clone(), identity: identity.describe(), status_handle, health, metrics };
        let now = clock.now();
        let (sent, received) = watch::channel(options.clone());
        let mut keeper = Self {
            options,
            sent,
            received,
            publisher,
            identity: identity.into(),
            login,
            refresh_signal,
            clock,
            report,
            fingerprint,
            archive: None,
            pace: Pace::new(now),
            held: None,
            next: Step::LoginAt(now),
            planned: false,
            for_caller: false,
            retries: Vec::new(),
            proof: None,
            work: None,
            renewing: false,
            look: None,
            next_check: None,
            last_checked: None,
            ringing: false,
            jump_looked: None,
            suspicions: SuspicionLimit::default(),
            no_renewal_until: None,
            absence: "there is no token yet",
            last_error: None,
            saves: JoinSet::new(),
            replaced: Vec::new(),
        };
        keeper.archive = keeper.new_archive();
        keeper
    }

    /// Keeps the token until `stop` is cancelled. Ends at once then, whatever is under way.
    ///
    /// Publishes a token while there is one that has not ended, and within a second after its end that there is none.
    pub async fn run(mut self, stop: CancellationToken) -> Farewell {
        let mut jumps = self.clock.changes();
        let started = stop.run_until_cancelled(self.start()).await;
        if started.is_some() {
            self.tell();
            while let Some(event) = stop.run_until_cancelled(self.wait(&mut jumps)).await {
                self.handle(event);
                self.tell();
            }
        }
        self.end().await
    }

    async fn wait(&mut self, jumps: &mut ClockChanges) -> Event {
        let ends = self.held.as_ref().and_then(|held| held.life.ends);
        let step = self.next.at().filter(|_| self.work.is_none());
        let check = self.next_check.filter(|_| self.look.is_none());
        let clock = &self.clock;
        tokio::select! {
            biased;
            () = clock.sleep_until_some(ends) => Event::End,
            done = inflight::of(&mut self.work) => Event::Done(done),
            look = inflight::of(&mut self.look) => Event::Looked(look),
            () = jumps.next() => Event::Jump,
            () = self.refresh_signal.requested() => Event::RefreshRequest,
            () = self.refresh_signal.demand().changed() => Event::Demand,
            () = clock.sleep_until_some(check) => Event::Check,
            () = clock.sleep_until_some(step) => Event::Step,
            // Never an error: the keeper holds a sender itself.
            Ok(()) = self.received.changed() => Event::Options,
            Some(_) = self.saves.join_next() => Event::Saved,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::End => self.expire(),
            Event::Done(Done::Login(result, proof)) => {
                self.work = None;
                self.keep_proof(&result, proof);
                self.login_done(result);
                self.answer_retries(Retried::Tried);
            }
            Event::Done(Done::Renewal(result)) => {
                self.work = None;
                self.renewing = false;
                self.renewal_done(result);
                self.answer_retries(Retried::Tried);
            }
            Event::Looked((generation, result)) => {
                self.look = None;
                self.look_done(generation, result);
            }
            Event::RefreshRequest => {
                self.ringing = true;
                if !self.awaits_replacement() {
                    self.start_look();
                }
                self.answer_ring();
            }
            Event::Demand => self.demanded(),
            Event::Jump => self.clock_jumped(),
            Event::Check => {
                self.next_check = None;
                self.start_look();
            }
            Event::Step => self.take_step(),
            Event::Options => self.follow(),
            Event::Saved => {}
        }
    }

    /// Does what is due.
    fn take_step(&mut self) {
        let now = self.clock.now();
        match (self.next, &self.held) {
            (Step::RenewAt(_), Some(held)) => {
                self.renewing = true;
                self.work = Some(inflight::renew(self.login.clone(), Arc::clone(&held.token)));
            }
            (Step::LoginAt(_), _) => {
                if self.for_caller {
                    self.pace.take_for_caller(now);
                } else if !self.planned {
                    self.pace.take(now);
                }
                self.for_caller = false;
                let save = self.saving();
                // A crash during the login must not refill the bucket. A disk that hangs must not hold the login up.
                let first = async {
                    if let Some(save) = save {
                        let _ = tokio::time::timeout(SAVE_LIMIT, save).await;
                    }
                };
                let (identity, login) = (Arc::clone(&self.identity), self.login.clone());
                self.work = Some(inflight::login(identity, login, self.clock.clone(), first, self.usable_proof(now)));
            }
            (Step::RenewAt(_) | Step::Rest, _) => self.next = Step::Rest,
        }
    }

    /// Asks the server about the token, unless it is being asked, or cannot be.
    fn start_look(&mut self) {
        let held = self.held.as_ref().filter(|held| held.can_be_looked_up());
        if let Some(held) = held.filter(|_| self.look.is_none() && !self.renewing) {
            self.look = Some(inflight::look(self.login.clone(), Arc::clone(&held.token)));
        }
    }

    /// Decides what comes next.
    fn plan(&mut self, last: Last) {
        self.for_caller = false;
        let now = self.clock.now();
        let life = self.held.as_ref().map(|held| &held.life);
        if self.held.as_ref().is_some_and(|held| held.outdated) {
            return self.plan_replacement(last);
        }
        let held = self.held.as_ref();
        // After a failed login a doubted token is renewed, if it can be, or waits for the next login like any other. A suspect one
        // is not renewed: that would be refused, too.
        let doubted = held.is_some_and(|held| {
            held.standing == Standing::Suspect || (last != Last::Failed && held.looks == Looks::Doubted)
        });
        self.next =
            if doubted { Step::LoginAt(now) } else { next_step(life, last, self.earliest(), now, random_unit()) };
        self.planned = life.is_some() && last != Last::Failed && !doubted;
        if let (Step::LoginAt(at), false) = (self.next, self.planned) {
            let earliest = self.pace.earliest_login(now);
            if earliest.boot > at.boot {
                self.next = Step::LoginAt(earliest);
            }
        }
        self.hurry();
    }

    /// When tries may follow failures. A renewal waits for the backoff of logins, too, but no login for that of renewals.
    fn earliest(&self) -> Earliest {
        let (renewal, login) = (self.pace.renewal_not_before(), self.pace.not_before());
        Earliest { renewal: if renewal.boot > login.boot { renewal } else { login }, login }
    }

    /// How the last thing went, as far as the pace knows.
    pub(super) const fn last(&self) -> Last {
        if self.pace.failures() + self.pace.renewal_failures() > 0 { Last::Failed } else { Last::Well }
    }

    /// Writing what outlives a restart, if that has changed.
    fn saving(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let last_error = self.last_error.as_deref().filter(|_| self.pace.failures() > 0);
        self.archive.as_mut()?.save(&self.pace.record(), self.held.as_ref(), last_error)
    }

    fn save(&mut self) {
        if let Some(save) = self.saving() {
            self.saves.spawn(save);
        }
    }

    async fn end(mut self) -> Farewell {
        self.follow();
        self.save();
        let saved = async { while self.saves.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SAVE_LIMIT, saved).await;
        self.report.ended();
        self.forget_ended();
        Farewell {
            session: self.options.name,
            publisher: self.publisher,
            login: self.login,
            held: self.held,
            replaced: self.replaced,
            revoke: self.options.revoke_on_exit,
        }
    }
}

const SAVE_LIMIT: Duration = Duration::from_secs(2);
