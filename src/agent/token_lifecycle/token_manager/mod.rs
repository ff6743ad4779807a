//! Keeps one session's token alive: one event loop, which asks `schedule` for the next step.

mod reconfigure;
mod on_demand;
mod handover;
mod recovery;
mod results;
mod restore;
mod suspect;
mod publish;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::current_token::{CurrentToken, LookupStatus, TokenHealth};
use super::inflight::{Call, Completed, LookupResult};
use super::proof_cache::ProofCache;
use super::replaced_tokens::ReplacedTokens;
use super::replacement_limit::ReplacementLimiter;
use super::schedule::{LastOutcome, NextStep, NotBefore, next_step};
use super::session_state::SessionStateFile;
use super::status_reporter::StatusReporter;
use super::{SessionShutdown, TokenLifecycleOptions, inflight};
use crate::agent::identity::IdentitySource;
use crate::agent::login::Login;
use crate::agent::retry_budget::RetryBudget;
use crate::agent::token::TokenPublisher;
use crate::backoff::random_unit;
use crate::clock::{Clock, ClockChanges, ClockReading};
use crate::credential_watch::RefreshSignal;
use crate::demand::Retried;
use crate::error_code::ErrorCode;
use crate::health;
use crate::metrics::Metrics;
use crate::status::StatusRegistry;

/// Dependencies of a token manager.
#[derive(Debug)]
pub struct TokenManagerDeps {
    /// Publisher of the session's token.
    pub publisher: TokenPublisher,
    /// Source of identity proofs.
    pub identity: Box<dyn IdentitySource>,
    /// Login to the server.
    pub login: Login,
    /// Signal by which callers request a look-up.
    pub refresh_signal: RefreshSignal,
    /// Clock of all deadlines.
    pub clock: Clock,
    /// Registry of the session's status.
    pub status_registry: StatusRegistry,
    /// Readiness of the session: there is a usable token.
    pub health: health::HealthHandle,
    /// Metrics of attempts and expiry.
    pub metrics: Metrics,
    /// Digest of the login settings: a session does not inherit failures and backoff of other settings.
    pub fingerprint: String,
}

/// Logs one session in, keeps its token alive by renewals and look-ups, and publishes it.
pub struct TokenManager {
    options: TokenLifecycleOptions,
    options_sender: watch::Sender<TokenLifecycleOptions>,
    options_receiver: watch::Receiver<TokenLifecycleOptions>,
    publisher: TokenPublisher,
    identity: Arc<dyn IdentitySource>,
    login: Login,
    refresh_signal: RefreshSignal,
    clock: Clock,
    reporter: StatusReporter,
    fingerprint: String,
    state_file: Option<SessionStateFile>,
    retry_budget: RetryBudget,
    current: Option<CurrentToken>,
    next: NextStep,
    /// True if the next login replaces a token on schedule, so that it takes nothing from the bucket.
    planned: bool,
    /// True if the next login is made because callers wait, or because an operator requested it.
    for_callers: bool,
    retry_requests: Vec<oneshot::Sender<Retried>>,
    proof_cache: ProofCache,
    in_flight: Option<Call<Completed>>,
    /// True if `in_flight` is a renewal, which is dropped when its token ends.
    renewing: bool,
    lookup: Option<Call<LookupResult>>,
    next_check: Option<ClockReading>,
    last_checked: Option<ClockReading>,
    /// True while a requested look-up is not complete.
    refresh_requested: bool,
    clock_change_checked: Option<ClockReading>,
    replacement_limiter: ReplacementLimiter,
    /// Set when the server refused to renew a fresh token: no renewal is attempted before this.
    no_renewal_until: Option<ClockReading>,
    /// Reason for which there is no token.
    unavailability: &'static str,
    last_error: Option<String>,
    /// Code of `last_error`, if it has one.
    last_error_code: Option<ErrorCode>,
    outage: recovery::SessionOutage,
    pending_writes: JoinSet<()>,
    replaced: ReplacedTokens,
}

impl std::fmt::Debug for TokenManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenManager").field("session", &self.options.name).finish_non_exhaustive()
    }
}

/// Event that woke the loop.
enum Event {
    Expired,
    Completed(Completed),
    Lookup(LookupResult),
    RefreshRequest,
    Demand,
    ClockChange,
    Check,
    StepDue,
    Saved,
    Options,
}

impl TokenManager {
    /// Creates a manager, which does nothing before it runs.
    pub fn new(options: TokenLifecycleOptions, parts: TokenManagerDeps) -> Self {
        let TokenManagerDeps {
            publisher,
            identity,
            login,
            refresh_signal,
            clock,
            status_registry,
            health,
            metrics,
            fingerprint,
        } = parts;
        let status_handle = status_registry.register(options.name.clone());
        let reporter = StatusReporter {
            session: options.name.clone(),
            identity: identity.describe(),
            status_handle,
            health,
            metrics,
        };
        let now = clock.now();
        let (options_sender, options_receiver) = watch::channel(options.clone());
        let mut manager = Self {
            options,
            options_sender,
            options_receiver,
            publisher,
            identity: identity.into(),
            login,
            refresh_signal,
            clock,
            reporter,
            fingerprint,
            state_file: None,
            retry_budget: RetryBudget::new(now),
            current: None,
            next: NextStep::LoginAt(now),
            planned: false,
            for_callers: false,
            retry_requests: Vec::new(),
            proof_cache: ProofCache::default(),
            in_flight: None,
            renewing: false,
            lookup: None,
            next_check: None,
            last_checked: None,
            refresh_requested: false,
            clock_change_checked: None,
            replacement_limiter: ReplacementLimiter::default(),
            no_renewal_until: None,
            unavailability: "there is no token yet",
            last_error: None,
            last_error_code: None,
            outage: recovery::SessionOutage::default(),
            pending_writes: JoinSet::new(),
            replaced: ReplacedTokens::default(),
        };
        manager.state_file = manager.open_state_file();
        manager
    }

    /// Runs until `stop` is cancelled, and then stops at once, dropping calls in flight.
    ///
    /// Publishes the token while it is alive, and within a second after its end that there is none.
    pub async fn run(mut self, stop: CancellationToken) -> SessionShutdown {
        let mut jumps = self.clock.changes();
        let started = stop.run_until_cancelled(self.restore()).await;
        if started.is_some() {
            self.report_status();
            while let Some(event) = stop.run_until_cancelled(self.wait(&mut jumps)).await {
                self.handle(event);
                self.report_status();
            }
        }
        self.shut_down().await
    }

    async fn wait(&mut self, jumps: &mut ClockChanges) -> Event {
        let ends = self.current.as_ref().and_then(|current| current.lifetime.ends);
        let step = self.next.at().filter(|_| self.in_flight.is_none());
        let check = self.next_check.filter(|_| self.lookup.is_none());
        let clock = &self.clock;
        tokio::select! {
            biased;
            () = clock.sleep_until_some(ends) => Event::Expired,
            completed = inflight::wait_for(&mut self.in_flight) => Event::Completed(completed),
            result = inflight::wait_for(&mut self.lookup) => Event::Lookup(result),
            () = jumps.next() => Event::ClockChange,
            () = self.refresh_signal.requested() => Event::RefreshRequest,
            () = self.refresh_signal.demand().changed() => Event::Demand,
            () = clock.sleep_until_some(check) => Event::Check,
            () = clock.sleep_until_some(step) => Event::StepDue,
            // Never an error: the manager holds a sender itself.
            Ok(()) = self.options_receiver.changed() => Event::Options,
            Some(_) = self.pending_writes.join_next() => Event::Saved,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Expired => self.on_expired(),
            Event::Completed(Completed::Login(result, proof)) => {
                self.in_flight = None;
                self.proof_cache.update(&result, proof, self.clock.now());
                self.on_login(result);
                self.answer_retry_requests(Retried::Tried);
            }
            Event::Completed(Completed::Renewal(result)) => {
                self.in_flight = None;
                self.renewing = false;
                self.on_renewal(result);
                self.answer_retry_requests(Retried::Tried);
            }
            Event::Lookup((generation, result)) => {
                self.lookup = None;
                self.on_lookup(generation, result);
            }
            Event::RefreshRequest => {
                self.refresh_requested = true;
                if !self.awaits_replacement() {
                    self.start_lookup();
                }
                self.complete_refresh();
            }
            Event::Demand => self.on_demand(),
            Event::ClockChange => self.on_clock_change(),
            Event::Check => {
                self.next_check = None;
                self.start_lookup();
            }
            Event::StepDue => self.run_next_step(),
            Event::Options => self.apply_options(),
            Event::Saved => {}
        }
    }

    /// Starts the renewal or login that is due.
    fn run_next_step(&mut self) {
        let now = self.clock.now();
        match (self.next, &self.current) {
            (NextStep::RenewAt(_), Some(current)) => {
                self.renewing = true;
                self.in_flight = Some(inflight::renew(self.login.clone(), Arc::clone(&current.token)));
            }
            (NextStep::LoginAt(_), _) => {
                if self.for_callers {
                    self.retry_budget.take_for_caller(now);
                } else if !self.planned {
                    self.retry_budget.take_login(now);
                }
                self.for_callers = false;
                let save = self.state_write();
                // A crash during the login must not refill the bucket; a disk that hangs must not delay the login.
                let before_login = async {
                    if let Some(save) = save {
                        let _ = tokio::time::timeout(SAVE_LIMIT, save).await;
                    }
                };
                let (identity, login) = (Arc::clone(&self.identity), self.login.clone());
                self.in_flight =
                    Some(inflight::login(identity, login, self.clock.clone(), before_login, self.proof_cache.get(now)));
            }
            (NextStep::RenewAt(_) | NextStep::Idle, _) => self.next = NextStep::Idle,
        }
    }

    /// Starts a look-up of the token, unless one or a renewal is in flight, or the token supports none.
    fn start_lookup(&mut self) {
        let current = self.current.as_ref().filter(|current| current.supports_lookup());
        if let Some(current) = current.filter(|_| self.lookup.is_none() && !self.renewing) {
            self.lookup = Some(inflight::lookup(self.login.clone(), Arc::clone(&current.token)));
        }
    }

    /// Plans the next step after `last`.
    fn plan_next_step(&mut self, last: LastOutcome) {
        self.for_callers = false;
        let now = self.clock.now();
        let lifetime = self.current.as_ref().map(|current| &current.lifetime);
        if self.current.as_ref().is_some_and(|current| current.outdated) {
            return self.plan_replacement(last);
        }
        let current = self.current.as_ref();
        // After a failed login a token with a denied look-up is renewed, or waits for the next login like any other. A token of
        // suspect health is not renewed: the server would refuse that too.
        let suspect = current.is_some_and(|current| {
            current.health == TokenHealth::Suspect
                || (last != LastOutcome::Failed && current.lookup_status == LookupStatus::Suspect)
        });
        self.next = if suspect {
            NextStep::LoginAt(now)
        } else {
            next_step(lifetime, last, self.not_before(), now, random_unit())
        };
        self.planned = lifetime.is_some() && last != LastOutcome::Failed && !suspect;
        if let (NextStep::LoginAt(at), false) = (self.next, self.planned) {
            let earliest = self.retry_budget.earliest_login(now);
            if earliest.boot > at.boot {
                self.next = NextStep::LoginAt(earliest);
            }
        }
        self.advance_login();
    }

    /// Returns the earliest next attempts. Renewals also wait for the backoff of logins, but not the reverse.
    fn not_before(&self) -> NotBefore {
        let (renewal, login) = (self.retry_budget.renewal_not_before(), self.retry_budget.not_before());
        NotBefore { renewal: if renewal.boot > login.boot { renewal } else { login }, login }
    }

    /// Returns the last outcome as the retry budget has it.
    pub(super) const fn last_outcome(&self) -> LastOutcome {
        if self.retry_budget.failures() + self.retry_budget.renewal_failures() > 0 {
            LastOutcome::Failed
        } else {
            LastOutcome::Succeeded
        }
    }

    /// Returns the write of the state file, if its content has changed.
    fn state_write(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let last_error = self.last_error.as_deref().filter(|_| self.retry_budget.failures() > 0);
        self.state_file.as_mut()?.save(&self.retry_budget.to_record(), self.current.as_ref(), last_error)
    }

    fn save_state(&mut self) {
        if let Some(save) = self.state_write() {
            self.pending_writes.spawn(save);
        }
    }

    async fn shut_down(mut self) -> SessionShutdown {
        self.apply_options();
        self.save_state();
        let saved = async { while self.pending_writes.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SAVE_LIMIT, saved).await;
        self.reporter.ended();
        self.replaced.prune(self.clock.now());
        SessionShutdown {
            session: self.options.name,
            publisher: self.publisher,
            login: self.login,
            current: self.current,
            replaced: self.replaced,
            revoke: self.options.revoke_on_exit,
        }
    }
}

const SAVE_LIMIT: Duration = Duration::from_secs(2);
