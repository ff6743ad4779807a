//! Keeps one session's token alive: one event loop, which asks `budgeted_schedule` for the next step.

mod logins;
mod restore;
mod token_events;

use std::time::Duration;

use keyward_credentials::credential_watch::CredentialState;
use keyward_credentials::demand::RetryOutcome;
use keyward_machine::clock::{Clock, ClockChanges};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::budgeted_schedule::BudgetedSchedule;
use super::caller_requests::{CallerRequest, CallerRequests};
use super::credential_files::CredentialFiles;
use super::current_token::{CurrentToken, TokenHealth};
use super::lookup_timer::LookupTimer;
use super::replacement_limit::ReplacementLimiter;
use super::schedule::{LastOutcome, NextStep};
use super::session_calls::{CallInFlight, CompletedCall, SessionCalls};
use super::session_publisher::SessionPublisher;
use super::shutdown::{LOGIN_WAIT, REVOCATION_LIMIT, ReplacedTokens};
use super::state_saver::StateSaver;
use super::status_reporter::{SessionOutage, SessionSnapshot, StatusReporter};
use super::{SessionShutdown, TokenLifecycleOptions, TokenManagerDeps};
use crate::token::Token;

/// Logs one session in, keeps its token alive by renewals and look-ups, and publishes it.
pub struct TokenManager {
    options: TokenLifecycleOptions,
    options_sender: watch::Sender<TokenLifecycleOptions>,
    options_receiver: watch::Receiver<TokenLifecycleOptions>,
    clock: Clock,
    current: Option<CurrentToken>,
    replaced: ReplacedTokens,
    planner: BudgetedSchedule,
    lookups: LookupTimer,
    replacement_limiter: ReplacementLimiter,
    calls: SessionCalls,
    /// Notified when a login in flight enters its next phase.
    login_phases: watch::Receiver<Option<CallInFlight>>,
    files: CredentialFiles,
    requests: CallerRequests,
    publisher: SessionPublisher,
    reporter: StatusReporter,
    outage: SessionOutage,
    state: StateSaver,
}

impl std::fmt::Debug for TokenManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenManager").field("session", &self.options.name).finish_non_exhaustive()
    }
}

/// Event that woke the loop.
#[expect(clippy::large_enum_variant, reason = "one at a time, which is moved once")]
enum Event {
    Expired,
    Completed(CompletedCall),
    ClockChange,
    Request(CallerRequest),
    LookupDue,
    StepDue,
    LoginPhase,
    FilesChanged,
    Options,
}

impl TokenManager {
    /// Creates a manager, which does nothing before it runs.
    pub fn new(options: TokenLifecycleOptions, deps: TokenManagerDeps) -> Self {
        let TokenManagerDeps { publisher, identity, login, connection_files, refresh_signal, clock, .. } = deps;
        let session = options.name.clone();
        let now = clock.now();
        let status_handle = deps.session_statuses.register(session.clone());
        let identity_source = identity.describe();
        let mut state = StateSaver::new(&session, deps.fingerprint, &login, &identity_source);
        let reporter = StatusReporter {
            session: session.clone(),
            identity: identity_source,
            server: login.server().address().to_owned(),
            role: login.options().role.clone(),
            status_handle,
            health: deps.health,
            metrics: deps.metrics,
        };
        state.open(options.state.as_ref());
        let calls = SessionCalls::new(identity, login, connection_files, clock.clone());
        let login_phases = calls.login_phases();
        let files = calls.files();
        let (options_sender, options_receiver) = watch::channel(options.clone());
        Self {
            options,
            options_sender,
            options_receiver,
            current: None,
            replaced: ReplacedTokens::default(),
            planner: BudgetedSchedule::new(now),
            lookups: LookupTimer::default(),
            replacement_limiter: ReplacementLimiter::default(),
            calls,
            login_phases,
            files,
            clock,
            requests: CallerRequests::new(refresh_signal),
            publisher: SessionPublisher::new(publisher),
            reporter,
            outage: SessionOutage::new(session),
            state,
        }
    }

    /// Returns a sender that replaces the options of the running manager, without a login.
    ///
    /// Use `send_replace`. The sender may outlive the manager; later values are lost. The name and, once the first login is
    /// planned, its jitter cannot be changed.
    pub fn options_sender(&self) -> watch::Sender<TokenLifecycleOptions> {
        self.options_sender.clone()
    }

    /// Publishes the token of the previous session, so that the outputs of this one have it at once.
    pub fn publish_previous(&self, previous: CredentialState<Token>) {
        if self.publisher.publish_previous(previous) {
            self.reporter.health.set_ready();
        }
    }

    /// Takes over the token of the previous session, which then revokes nothing. Call it before [`TokenManager::run`].
    pub fn adopt(&mut self, previous: SessionShutdown) {
        let SessionShutdown { current, replaced, .. } = previous;
        self.replaced = replaced;
        let Some(mut current) = current else { return };
        current.outdated = true;
        self.set_current(current);
        self.publish();
    }

    /// Runs until `stop` is cancelled, and then stops at once, dropping calls in flight. With `revoke_on_exit` it first awaits a
    /// login in flight at the server for at most 4 s.
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
        let step = self.planner.next().at().filter(|_| !self.calls.is_busy());
        let lookup = self.lookups.next().filter(|_| !self.calls.is_looking_up());
        let awaits_files = self.planner.budget.failures() > 0 && !self.calls.is_busy();
        let clock = &self.clock;
        tokio::select! {
            // In this order: a token that has ended is not served on, and a result is known before the next step
            // begins.
            biased;
            () = clock.sleep_until_some(ends) => Event::Expired,
            completed = self.calls.next() => Event::Completed(completed),
            () = jumps.next() => Event::ClockChange,
            request = self.requests.next() => Event::Request(request),
            () = clock.sleep_until_some(lookup) => Event::LookupDue,
            () = clock.sleep_until_some(step) => Event::StepDue,
            // Never an error: the manager holds both senders itself.
            Ok(()) = self.login_phases.changed() => Event::LoginPhase,
            Ok(()) = self.options_receiver.changed() => Event::Options,
            () = self.files.changed(), if awaits_files => Event::FilesChanged,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Expired => self.on_expired(),
            Event::Completed(CompletedCall::Login(result)) => {
                self.on_login(result);
                self.requests.answer_retries(RetryOutcome::Attempted);
            }
            Event::Completed(CompletedCall::Renewal(sent, result)) => {
                self.on_renewal(sent, result);
                if self.requests.awaits_replacement() {
                    self.plan_requested_login();
                } else {
                    self.requests.answer_retries(RetryOutcome::Attempted);
                }
            }
            Event::Completed(CompletedCall::Lookup(sent, outcome)) => self.on_lookup(sent, outcome),
            Event::ClockChange => self.on_clock_change(),
            Event::Request(CallerRequest::Lookup) => {
                if !self.awaits_replacement() {
                    self.start_lookup();
                }
                self.complete_lookup_request();
            }
            Event::Request(CallerRequest::Token) => {
                if self.requests.awaits_retry() {
                    self.plan_requested_login();
                }
                self.advance_login();
            }
            Event::LookupDue => {
                self.lookups.clear();
                self.start_lookup();
            }
            Event::StepDue => self.run_next_step(),
            // Only the status shows it.
            Event::LoginPhase => {}
            Event::FilesChanged => self.on_files_changed(),
            Event::Options => self.apply_options(),
        }
    }

    /// Starts the renewal or login that is due.
    fn run_next_step(&mut self) {
        match (self.planner.next(), &self.current) {
            (NextStep::RenewAt(_), Some(current)) => self.calls.start_renewal(&current.token),
            (NextStep::LoginAt(_), current) => {
                self.planner.take_login(self.clock.now());
                let budget = &self.planner.budget;
                let last_error = self.publisher.last_error();
                self.calls.start_login(self.state.save_before_login(budget, current.as_ref(), last_error));
            }
            (NextStep::RenewAt(_) | NextStep::Idle, _) => self.planner.plan_nothing(),
        }
    }

    fn start_lookup(&mut self) {
        if let Some(current) = &self.current {
            self.calls.start_lookup(current);
        }
    }

    /// Plans the next step after `last`.
    fn plan_next_step(&mut self, last: LastOutcome) {
        self.planner.plan(self.current.as_ref(), last, self.clock.now());
        self.advance_login();
    }

    /// Moves the planned login forward if there is no token, or the server refuses it, and callers wait for one.
    fn advance_login(&mut self) {
        let is_idle = self.current.as_ref().is_none_or(CurrentToken::is_suspect) && !self.calls.is_busy();
        if is_idle && self.requests.awaits_token() && self.planner.advance_login(self.clock.now()) {
            // Callers that are refused get the new Retry-After.
            self.publish();
        }
    }

    /// Plans the login that an operator requests.
    fn plan_requested_login(&mut self) {
        let is_good =
            self.current.as_ref().is_some_and(|current| current.health == TokenHealth::Good && !current.outdated);
        let is_needed = !is_good || self.planner.last_outcome() != LastOutcome::Succeeded;
        if !is_needed && !self.requests.awaits_replacement() {
            return self.requests.answer_retries(RetryOutcome::NotNeeded);
        }
        if self.calls.is_busy() {
            return;
        }
        match self.planner.plan_requested_login(self.clock.now()) {
            Ok(()) => {
                tracing::info!(event = "session.retry", session = self.options.name, "logging in on request");
            }
            Err(after) => self.requests.answer_retries(RetryOutcome::TooEarly { after }),
        }
    }

    /// Returns true while a login that replaces a suspect token is in flight or about to start. Requested look-ups wait for it.
    fn awaits_replacement(&self) -> bool {
        self.current.as_ref().is_some_and(CurrentToken::is_suspect)
            && !self.calls.is_renewing()
            && (self.calls.is_busy() || self.planner.is_login_soon(self.clock.now()))
    }

    /// Completes a requested look-up, unless a call about the token is in flight. Without a token, or for a wrapping token, it
    /// completes at once and records no check.
    fn complete_lookup_request(&mut self) {
        if self.requests.awaits_lookup() && !self.calls.has_token_call() && !self.awaits_replacement() {
            self.publisher.publish_checked();
            self.requests.complete_lookup();
        }
    }

    fn set_current(&mut self, current: CurrentToken) {
        self.lookups.plan_first(&current, self.options.check_interval, self.clock.now());
        self.current = Some(current);
    }

    /// Publishes the token, or the reason why there is none.
    fn publish(&self) {
        let now = self.clock.now();
        self.publisher.publish(self.current.as_ref(), self.planner.retry_after(now), now);
    }

    fn report_status(&self) {
        let failed_logins = self.planner.budget.failures();
        let reason = match &self.current {
            None => self.publisher.unavailable_reason(),
            Some(current) => current.problem(failed_logins).unwrap_or_default().to_owned(),
        };
        let shown = self.publisher.shown_error();
        self.reporter.update(&SessionSnapshot {
            current: self.current.as_ref(),
            now: self.clock.now(),
            next: self.planner.next(),
            in_flight: self.calls.in_flight(),
            proof_times: self.calls.proof_times(),
            last_checked: self.publisher.last_checked(),
            failures: failed_logins.max(self.planner.budget.renewal_failures()),
            last_error: shown.map(|(error, _)| error),
            last_error_code: shown.and_then(|(_, code)| code),
            reason: &reason,
        });
    }

    fn save_state(&mut self) {
        self.state.save(&self.planner.budget, self.current.as_ref(), self.publisher.last_error());
    }

    /// Applies the latest options, without a login or any other call.
    fn apply_options(&mut self) {
        let mut new = self.options_receiver.borrow_and_update().clone();
        new.name.clone_from(&self.options.name);
        let old = std::mem::replace(&mut self.options, new);
        if old == self.options {
            return;
        }
        if old.state != self.options.state {
            self.state.open(self.options.state.as_ref());
        }
        if let Some(current) = self.current.as_ref().filter(|_| old.check_interval != self.options.check_interval) {
            self.lookups.plan_next(current, self.options.check_interval, self.clock.now());
        }
        tracing::info!(event = "session.options", session = self.options.name, "applied changed options");
        self.save_state();
    }

    /// Awaits a login that is in flight at the server, if the session revokes its tokens: otherwise nobody would know of the token.
    /// Returns the time that is left for revocations.
    async fn finish_login(&mut self) -> Duration {
        if !self.options.revoke_on_exit {
            return REVOCATION_LIMIT;
        }
        let started = tokio::time::Instant::now();
        if let Some(token) = self.calls.finish_login(LOGIN_WAIT).await {
            let new = CurrentToken::new(token);
            if self.current.is_some() {
                self.replaced.add(Some(new.token), self.clock.now());
            } else {
                self.current = Some(new);
            }
        }
        REVOCATION_LIMIT.saturating_sub(started.elapsed())
    }

    async fn shut_down(mut self) -> SessionShutdown {
        self.apply_options();
        self.save_state();
        let revocation_limit = self.finish_login().await;
        self.state.finish().await;
        self.reporter.remove_session();
        self.replaced.prune(self.clock.now());
        SessionShutdown {
            session: self.options.name,
            publisher: self.publisher.into_publisher(),
            login: self.calls.into_login(),
            current: self.current,
            replaced: self.replaced,
            revoke: self.options.revoke_on_exit,
            revocation_limit,
        }
    }
}
