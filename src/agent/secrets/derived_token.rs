//! Tokens derived from the session's for one output: a child with fewer rights, or the token itself, response-wrapped. Replaced
//! near two thirds of the lifetime and with each new token of the session, which none outlives.
//!
//! A manager on demand creates the token when a reader requests it: for the process of a caller, which may need none.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::backoff::{random_unit, time_to_renewal};
use keyward_credentials::credential_watch::{Availability, RefreshSignal};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::outage::Outage;
use tokio_util::sync::CancellationToken;

use super::creation_limit::{CreationLimit, CreationRefusal};
use super::current_derived_token::CurrentDerivedToken;
use crate::retry_budget::{FailureCause, RetryBudget};
use crate::server_client::{CallError, DerivedTokenKind, LoginResponse, ServerClient, TokenVerdict};
use crate::token::{Generation, Token, TokenPublisher, TokenWatch};

/// Collaborators of a [`DerivedTokenManager`].
#[derive(Debug)]
pub struct DerivedTokenDeps {
    /// Publishes the derived token.
    pub publisher: TokenPublisher,
    /// Client of the session's server.
    pub upstream: ServerClient,
    /// The session's namespace; `None` for the root.
    pub namespace: Option<String>,
    /// The session's token.
    pub tokens: TokenWatch,
    /// Requests a check by the session after the server refused its token.
    pub session: RefreshSignal,
    /// Receives requests to check the derived token after the server refused it.
    pub refresh_signal: RefreshSignal,
    /// Reports whether there is a token; `None` where the output reports it.
    pub health: Option<HealthHandle>,
    /// Limits the tokens of callers; `None` for a sink or a listener, whose own schedule is limit enough.
    pub creation_limit: Option<Arc<CreationLimit>>,
    /// Source of the current time.
    pub clock: Clock,
}

/// Creates, replaces and publishes one derived token.
#[derive(Debug)]
pub struct DerivedTokenManager {
    output: String,
    kind: DerivedTokenKind,
    deps: DerivedTokenDeps,
    retry_budget: RetryBudget,
    parent: Option<Arc<Token>>,
    current: Option<CurrentDerivedToken>,
    next: Option<ClockReading>,
    outage: Outage,
    is_on_demand: bool,
    /// Tokens of a manager on demand that may be alive, for their revocation.
    issued: Vec<Arc<Token>>,
}

enum Event {
    ParentChanged,
    TokenEnded,
    CreationDue,
    CheckRequested,
}

impl DerivedTokenManager {
    /// Creates a manager; `output` names the output in log events.
    pub fn new(output: String, kind: DerivedTokenKind, deps: DerivedTokenDeps) -> Self {
        let retry_budget = RetryBudget::new(deps.clock.now());
        Self {
            output,
            kind,
            deps,
            retry_budget,
            parent: None,
            current: None,
            next: None,
            outage: Outage::default(),
            is_on_demand: false,
            issued: Vec::new(),
        }
    }

    /// Runs on demand until `stop` is cancelled, the session has ended, or a token cannot be created and none is alive. Returns
    /// the tokens that may be alive. A creation is not interrupted: its token would stay alive unknown.
    pub(crate) async fn run_on_demand(mut self, stop: CancellationToken) -> Vec<Arc<Token>> {
        self.is_on_demand = true;
        self.update_parent();
        while let Some(Some(event)) = stop.run_until_cancelled(self.wait()).await {
            match event {
                Event::ParentChanged => self.update_parent(),
                Event::TokenEnded => self.set_absent(None, "the derived token has ended"),
                Event::CreationDue => self.create().await,
                Event::CheckRequested => {
                    if self.current.is_some() {
                        self.check().await;
                    } else {
                        self.create().await;
                    }
                    self.deps.refresh_signal.complete();
                    self.prune_issued();
                    if self.current.is_none() && self.issued.is_empty() {
                        break;
                    }
                }
            }
            if self.current.is_none() {
                self.next = None;
            }
        }
        self.prune_issued();
        self.issued
    }

    fn prune_issued(&mut self) {
        let now = self.deps.clock.now();
        self.issued.retain(|token| token.expires.is_none_or(|end| !now.until(end).is_zero()));
    }

    /// Runs until `stop` is cancelled or the session has ended.
    pub async fn run(mut self, stop: CancellationToken) {
        self.update_parent();
        while let Some(Some(event)) = stop.run_until_cancelled(self.wait()).await {
            match event {
                Event::ParentChanged => self.update_parent(),
                Event::TokenEnded => {
                    // A token that ends with its parent ends before `next`; the backoff of a failed creation stays.
                    let soon = self.deps.clock.now() + MIN_INTERVAL;
                    self.next = Some(soon.later(self.retry_budget.not_before()));
                    self.set_absent(None, "it expired and could not be replaced");
                }
                Event::CreationDue => {
                    if stop.run_until_cancelled(self.create()).await.is_none() {
                        return;
                    }
                }
                Event::CheckRequested => {
                    if stop.run_until_cancelled(self.check()).await.is_none() {
                        return;
                    }
                    self.deps.refresh_signal.complete();
                }
            }
        }
    }

    /// Waits for the next event; `None` once the session has ended.
    async fn wait(&mut self) -> Option<Event> {
        let ends = self.current.as_ref().and_then(CurrentDerivedToken::ends);
        let step = self.next.filter(|_| self.parent.is_some());
        let clock = self.deps.clock.clone();
        Some(tokio::select! {
            // The end of the token comes first, so that it is not served any longer while other events follow each
            // other.
            biased;
            () = clock.sleep_until_some(ends) => Event::TokenEnded,
            changed = self.deps.tokens.changed() => {
                changed.ok()?;
                Event::ParentChanged
            }
            () = clock.sleep_until_some(step) => Event::CreationDue,
            () = self.deps.refresh_signal.requested() => Event::CheckRequested,
        })
    }

    fn update_parent(&mut self) {
        match self.deps.tokens.current().availability {
            Availability::Available(token) => {
                let is_current = self.current.as_mut().is_some_and(|current| current.follow_parent(&token));
                // The session publishes after each check, too. A parent whose call was refused is tried again on schedule.
                let is_new = self.parent.as_ref().is_none_or(|parent| parent.generation != token.generation);
                self.parent = Some(token);
                if self.is_on_demand {
                    if is_new && self.current.is_some() && !is_current {
                        // Do not renew ahead of time for every process: most never need the token again.
                        self.next = None;
                        self.set_absent(None, "the session has a new token; the derived token is not created yet");
                    }
                } else if is_new && !is_current {
                    // Keep publishing the token of the previous parent: it is valid until that parent ends.
                    self.next = Some(self.deps.clock.now());
                }
            }
            Availability::Unavailable { .. } => {
                self.parent = None;
                self.set_absent(None, "the session has no token");
            }
        }
    }

    /// Checks the published token, and creates another if it is dead.
    async fn check(&mut self) {
        let Some(CurrentDerivedToken { token, .. }) = &self.current else { return };
        let lookup = self.deps.upstream.lookup_self(&token.secret, self.deps.namespace.as_deref()).await;
        match lookup {
            Ok(_) => self.deps.publisher.record_check(self.deps.clock.now()),
            Err(error) if error.verdict().suspects_token() => {
                if error.is_token_dead() {
                    self.issued.retain(|issued| !Arc::ptr_eq(issued, token));
                }
                self.replace_dead().await;
            }
            // The token may still be valid; its next use shows that.
            Err(_) => {}
        }
    }

    /// Creates another token in place of a dead one.
    async fn replace_dead(&mut self) {
        let now = self.deps.clock.now();
        // A token with `num_uses` ends by design, so only the creation limit bounds its replacement.
        if !self.kind.ends_by_use() {
            tracing::warn!(
                event = "token.derived.dead",
                output = self.output,
                code = ErrorCode::TokenDead.as_str(),
                "the derived token is no longer valid"
            );
            // Rate-limited: if every new token is refused, as from an address outside `bound_cidrs`, this would loop.
            self.outage.record_failure(now);
            let earliest = self.retry_budget.earliest_login(now);
            if !now.until(earliest).is_zero() {
                self.next = Some(earliest);
                return self.set_absent(Some(ErrorCode::TokenDead), "the derived token is no longer valid");
            }
            self.retry_budget.take_login(now);
        }
        self.current = None;
        self.create().await;
    }

    /// Takes a permit for a creation. Without one, the next attempt waits for it.
    fn take_permit(&mut self) -> bool {
        let now = self.deps.clock.now();
        let Some(Err(refusal)) = self.deps.creation_limit.as_ref().map(|limit| limit.take(now)) else { return true };
        let (retry_after, reason) = match &refusal {
            CreationRefusal::RateLimited { retry_after } => (*retry_after, "too many tokens were created".to_owned()),
            CreationRefusal::Failing { error, retry_after, .. } => (*retry_after, describe_failure(error)),
        };
        self.next = Some(now + retry_after);
        if self.current.is_none() {
            self.set_absent(None, &reason);
        }
        false
    }

    async fn create(&mut self) {
        let Some(parent) = self.parent.clone() else { return };
        if !self.take_permit() {
            return;
        }
        let DerivedTokenDeps { upstream, namespace, clock, .. } = &self.deps;
        let namespace = namespace.as_deref();
        let sent = clock.now();
        let created = match &self.kind {
            DerivedTokenKind::Child(options) => upstream.create_derived_token(&parent.secret, namespace, options).await,
            DerivedTokenKind::Wrapped(ttl) => upstream.wrap(&parent.secret, namespace, *ttl).await,
        };
        let now = clock.now();
        let created = created.and_then(|response| self.accept(response));
        match created {
            Ok(response) => self.publish(response, &parent, now.rebase(sent), now),
            Err(error) => self.record_failure(&error, now),
        }
    }

    /// Rejects a token that cannot be revoked at the end of its process.
    fn accept(&self, response: LoginResponse) -> Result<LoginResponse, CallError> {
        if self.is_on_demand && response.accessor.is_none() {
            let problem =
                "the token has no accessor, so it cannot be revoked: set token_type = service in its role".to_owned();
            return Err(CallError::InvalidResponse { what: problem });
        }
        Ok(response)
    }

    /// Publishes the token in the response at `now` to a request that was sent at `sent`, from which its lease counts.
    fn publish(&mut self, response: LoginResponse, parent: &Token, sent: ClockReading, now: ClockReading) {
        self.retry_budget.record_success(now);
        self.deps.creation_limit.iter().for_each(|limit| limit.record_success(now));
        let ttl = response.lease.ttl;
        let expires = (!ttl.is_zero()).then(|| sent + ttl);
        tracing::info!(
            event = "token.derived",
            output = self.output,
            accessor = response.accessor,
            "a derived token was created"
        );
        if let Some(lasted_seconds) = self.outage.record_success(now) {
            let output = &self.output;
            tracing::info!(
                event = "token.derived.recovered",
                output,
                lasted_seconds,
                "the derived token can be created again"
            );
        }
        self.next = expires.map(|_| (sent + time_to_renewal(ttl, random_unit())).later(now + MIN_INTERVAL));
        let token = Token {
            secret: response.secret,
            accessor: response.accessor,
            lease: response.lease,
            kind: response.kind,
            policies: response.policies,
            obtained: sent,
            expires,
            generation: Generation::new(),
        };
        let token = Arc::new(token);
        if self.is_on_demand {
            self.prune_issued();
            self.issued.push(Arc::clone(&token));
        }
        self.current = Some(CurrentDerivedToken::new(Arc::clone(&token), parent, response.is_orphan));
        // The server may refuse the new token too: a check of it is accepted at once.
        self.deps.refresh_signal.allow_one();
        self.deps.publisher.publish(Availability::Available(token), Some(now));
        if let Some(health) = &self.deps.health {
            health.record_update();
            health.clear_warning();
            health.set_ready();
        }
    }

    fn record_failure(&mut self, error: &CallError, now: ClockReading) {
        self.outage.record_failure(now);
        let verdict = error.verdict();
        let failure = if verdict == TokenVerdict::Unavailable || verdict.suspects_token() {
            FailureCause::Transient
        } else {
            FailureCause::Refused
        };
        self.retry_budget.record_failure(now, failure, error.retry_after(), random_unit());
        self.next = Some(self.retry_budget.not_before());
        if verdict.suspects_token() {
            // A new token of the session triggers the next attempt.
            self.deps.session.request();
        }
        let code = error.code();
        let text = format!("{}{}", format_chain(error), self.kind.advice(error));
        if let Some(limit) = &self.deps.creation_limit {
            limit.record_failure(now, failure, code, &text, error.retry_after(), random_unit());
        }
        tracing::warn!(
            event = "token.derived.failed",
            output = self.output,
            code = code.map(ErrorCode::as_str),
            error = text,
            "the derived token could not be created"
        );
        if self.current.is_none() {
            self.set_absent(code, "the derived token could not be created");
        } else if let Some(health) = &self.deps.health {
            health.warn(code, format!("the derived token could not be replaced: {text}"));
        }
    }

    fn set_absent(&mut self, code: Option<ErrorCode>, reason: &str) {
        self.current = None;
        if let Some(health) = &self.deps.health {
            health.clear_warning();
            health.set_failed(code, reason);
            self.next.into_iter().for_each(|next| health.set_retry_at(next));
        }
        let now = self.deps.clock.now();
        let retry_after = self.next.map_or(MIN_INTERVAL, |next| now.until(next)).max(Duration::from_secs(1));
        self.deps.publisher.publish_unavailable(reason, retry_after, now, Some(now));
    }
}

/// Describes the error of a creation for a caller.
pub(crate) fn describe_failure(error: &str) -> String {
    format!("the derived token could not be created: {error}")
}

/// Bounds the rate of creations, however short the lifetimes are.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
