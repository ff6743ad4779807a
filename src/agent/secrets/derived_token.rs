//! Tokens derived from the session's for one output: a child with fewer rights, or the token itself, response-wrapped. Replaced
//! near two thirds of the lifetime and with each new token of the session, which none outlives.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::agent::retry_budget::{FailureCause, RetryBudget};
use crate::agent::server_client::{CallError, DerivedTokenOptions, LoginResponse, ServerClient, TokenVerdict};
use crate::agent::token::{Generation, Token, TokenPublisher, TokenWatch};
use crate::backoff::{random_unit, time_to_renewal};
use crate::clock::{Clock, ClockReading};
use crate::credential_watch::{Availability, RefreshSignal};
use crate::error_chain::format_chain;
use crate::error_code::ErrorCode;
use crate::health::HealthHandle;
use crate::outage::Outage;

/// Kind of a token derived from the session's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DerivedTokenKind {
    /// A child token.
    Child(DerivedTokenOptions),
    /// The session's token, response-wrapped with this TTL.
    Wrapped(Duration),
}

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
    /// The published token, and the login of its parent.
    current: Option<(Generation, Arc<Token>)>,
    next: Option<ClockReading>,
    outage: Outage,
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
        Self { output, kind, deps, retry_budget, parent: None, current: None, next: None, outage: Outage::default() }
    }

    /// Runs until `stop` is cancelled or the session has ended.
    pub async fn run(mut self, stop: CancellationToken) {
        self.update_parent();
        while let Some(Some(event)) = stop.run_until_cancelled(self.wait()).await {
            match event {
                Event::ParentChanged => self.update_parent(),
                Event::TokenEnded => self.set_absent(None, "it has ended, and no other could be created"),
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
        let ends = self.current.as_ref().and_then(|(_, token)| token.expires);
        let step = self.next.filter(|_| self.parent.is_some());
        let clock = self.deps.clock.clone();
        Some(tokio::select! {
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
                let is_current = self.current.as_ref().is_some_and(|(parent, _)| *parent == token.generation);
                // The session publishes after each check, too. A parent whose call was refused is tried again on schedule.
                let is_new = self.parent.as_ref().is_none_or(|known| known.generation != token.generation);
                self.parent = Some(token);
                if is_new && !is_current {
                    // The token derived from the previous parent stays valid until that ends, so it is published on.
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
        let Some((_, token)) = &self.current else { return };
        let lookup = self.deps.upstream.lookup_self(&token.secret, self.deps.namespace.as_deref()).await;
        match lookup {
            Ok(_) => self.deps.publisher.record_check(self.deps.clock.now()),
            Err(error) if error.verdict().suspects_token() => {
                tracing::warn!(
                    event = "token.derived.dead",
                    output = self.output,
                    code = ErrorCode::TokenDead.as_str(),
                    "the derived token is dead"
                );
                // Rate-limited: where every new token is refused, as from an address that it is not bound to, this must not loop.
                let now = self.deps.clock.now();
                self.outage.begin(now);
                let earliest = self.retry_budget.earliest_login(now);
                if !now.until(earliest).is_zero() {
                    self.next = Some(earliest);
                    return self.set_absent(Some(ErrorCode::TokenDead), "the derived token is dead");
                }
                self.retry_budget.take_login(now);
                self.current = None;
                self.create().await;
            }
            // The token may still be valid; its next use shows that.
            Err(_) => {}
        }
    }

    async fn create(&mut self) {
        let Some(parent) = self.parent.clone() else { return };
        let DerivedTokenDeps { upstream, namespace, clock, .. } = &self.deps;
        let namespace = namespace.as_deref();
        let created = match &self.kind {
            DerivedTokenKind::Child(options) => upstream.create_derived_token(&parent.secret, namespace, options).await,
            DerivedTokenKind::Wrapped(ttl) => upstream.wrap(&parent.secret, namespace, *ttl).await,
        };
        let now = clock.now();
        match created {
            Ok(answer) => self.publish(answer, parent.generation, now),
            Err(error) => self.record_failure(&error, now),
        }
    }

    fn publish(&mut self, answer: LoginResponse, parent: Generation, now: ClockReading) {
        self.retry_budget.record_success(now);
        let ttl = answer.lease.ttl;
        let expires = (!ttl.is_zero()).then(|| now + ttl);
        tracing::info!(
            event = "token.derived",
            output = self.output,
            accessor = answer.accessor,
            "a derived token was created"
        );
        if let Some(lasted_seconds) = self.outage.end(now) {
            let output = &self.output;
            tracing::info!(
                event = "token.derived.recovered",
                output,
                lasted_seconds,
                "the derived token can be created again"
            );
        }
        self.next = expires.map(|_| now + time_to_renewal(ttl, random_unit()).max(MIN_INTERVAL));
        let token = Token {
            secret: answer.secret,
            accessor: answer.accessor,
            lease: answer.lease,
            kind: answer.kind,
            policies: answer.policies,
            obtained: now,
            expires,
            generation: Generation::new(),
        };
        let token = Arc::new(token);
        self.current = Some((parent, Arc::clone(&token)));
        self.deps.refresh_signal.allow_one();
        self.deps.publisher.publish(Availability::Available(token), Some(now));
        if let Some(health) = &self.deps.health {
            health.record_update();
            health.clear_warning();
            health.ready();
        }
    }

    fn record_failure(&mut self, error: &CallError, now: ClockReading) {
        self.outage.begin(now);
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
        tracing::warn!(
            event = "token.derived.failed",
            output = self.output,
            code = code.map(ErrorCode::as_str),
            error = format_chain(error),
            "the derived token could not be created"
        );
        if self.current.is_none() {
            self.set_absent(code, "the derived token could not be created");
        } else if let Some(health) = &self.deps.health {
            health.warn(code, format!("the derived token could not be replaced: {}", format_chain(error)));
        }
    }

    fn set_absent(&mut self, code: Option<ErrorCode>, reason: &str) {
        self.current = None;
        if let Some(health) = &self.deps.health {
            health.clear_warning();
            health.failed(code, reason);
            self.next.into_iter().for_each(|next| health.retry_at(next));
        }
        let now = self.deps.clock.now();
        let retry_after = self.next.map_or(MIN_INTERVAL, |next| now.until(next)).max(Duration::from_secs(1));
        self.deps.publisher.publish(Availability::Unavailable { reason: reason.into(), retry_after }, Some(now));
    }
}

/// Bounds the rate of creations, however short the lifetimes are.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
