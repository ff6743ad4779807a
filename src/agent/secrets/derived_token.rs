//! A token made of the session's, for one output: a child with fewer rights, or the token itself in a wrapping that opens
//! once. Made anew near two thirds of its life and with each new token of the session; none outlives that.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::agent::server_client::{CallError, DerivedTokenOptions, LoginResponse, ServerClient, TokenVerdict};
use crate::agent::token::{Generation, Token, TokenPublisher, TokenWatch};
use crate::agent::token_lifecycle::retry_budget::{FailureCause, RetryBudget};
use crate::backoff::random_unit;
use crate::clock::{Clock, ClockReading};
use crate::credential_watch::{Availability, RefreshSignal};
use crate::error_chain::format_chain;
use crate::health::HealthHandle;

/// What is made of a session's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DerivedTokenKind {
    /// A child of it.
    Child(DerivedTokenOptions),
    /// The token in a wrapping that lives this long.
    Wrapped(Duration),
}

/// What a keeper works with.
#[derive(Debug)]
pub struct DerivedTokenDeps {
    /// The watch's write half.
    pub publisher: TokenPublisher,
    /// The server.
    pub upstream: ServerClient,
    /// The session's namespace there.
    pub namespace: Option<String>,
    /// The session's token.
    pub tokens: TokenWatch,
    /// Rings the session: the server says that its token is dead.
    pub session: RefreshSignal,
    /// Rung where the server refuses what was made.
    pub refresh_signal: RefreshSignal,
    /// Says whether there is one, where the output does not say so itself.
    pub health: Option<HealthHandle>,
    /// Where the time comes from.
    pub clock: Clock,
}

/// Keeps one such token and publishes it.
#[derive(Debug)]
pub struct DerivedTokenManager {
    output: String,
    derive: DerivedTokenKind,
    parts: DerivedTokenDeps,
    pace: RetryBudget,
    parent: Option<Arc<Token>>,
    /// What is published, and the login that it was made from.
    held: Option<(Generation, Arc<Token>)>,
    next: Option<ClockReading>,
}

enum Event {
    Parent,
    Ended,
    Step,
    Rung,
}

impl DerivedTokenManager {
    /// A keeper for the output of that name.
    pub fn new(output: String, derive: DerivedTokenKind, parts: DerivedTokenDeps) -> Self {
        let pace = RetryBudget::new(parts.clock.now());
        Self { output, derive, parts, pace, parent: None, held: None, next: None }
    }

    /// Keeps the token until `stop` is cancelled, or the session has ended.
    pub async fn run(mut self, stop: CancellationToken) {
        self.take_parent();
        while let Some(Some(event)) = stop.run_until_cancelled(self.wait()).await {
            match event {
                Event::Parent => self.take_parent(),
                Event::Ended => self.absent("it has ended, and no other could be made"),
                Event::Step => {
                    if stop.run_until_cancelled(self.make()).await.is_none() {
                        return;
                    }
                }
                Event::Rung => {
                    if stop.run_until_cancelled(self.look()).await.is_none() {
                        return;
                    }
                    self.parts.refresh_signal.complete();
                }
            }
        }
    }

    /// `None` once the session has ended.
    async fn wait(&mut self) -> Option<Event> {
        let ends = self.held.as_ref().and_then(|(_, token)| token.expires);
        let step = self.next.filter(|_| self.parent.is_some());
        let clock = self.parts.clock.clone();
        Some(tokio::select! {
            biased;
            () = clock.sleep_until_some(ends) => Event::Ended,
            changed = self.parts.tokens.changed() => {
                changed.ok()?;
                Event::Parent
            }
            () = clock.sleep_until_some(step) => Event::Step,
            () = self.parts.refresh_signal.requested() => Event::Rung,
        })
    }

    fn take_parent(&mut self) {
        match self.parts.tokens.current().availability {
            Availability::Available(token) => {
                let same = self.held.as_ref().is_some_and(|(parent, _)| *parent == token.generation);
                self.parent = Some(token);
                if !same {
                    // What was made of the token before is good until that ends: it is replaced, not taken away.
                    self.next = Some(self.parts.clock.now());
                }
            }
            Availability::Unavailable { .. } => {
                self.parent = None;
                self.absent("the session has no token to make it of");
            }
        }
    }

    /// Looks whether what is published still lives, and makes another if not.
    async fn look(&mut self) {
        let Some((_, token)) = &self.held else { return };
        let looked = self.parts.upstream.lookup_self(&token.secret, self.parts.namespace.as_deref()).await;
        match looked {
            Ok(_) => self.parts.publisher.record_check(self.parts.clock.now()),
            Err(error) if error.verdict().suspects_token() => {
                tracing::warn!(
                    event = "token.derived.dead",
                    output = self.output,
                    "the token that was made for it is dead"
                );
                // From a bucket: where all that is made is refused, as from an address that it is not bound to, no loop follows.
                let now = self.parts.clock.now();
                let earliest = self.pace.earliest_login(now);
                if !now.until(earliest).is_zero() {
                    self.next = Some(earliest);
                    return self.absent("the token that was made for it is dead");
                }
                self.pace.take_login(now);
                self.held = None;
                self.make().await;
            }
            // Whether it lives is not known; the server says it to whoever uses it.
            Err(_) => {}
        }
    }

    async fn make(&mut self) {
        let Some(parent) = self.parent.clone() else { return };
        let DerivedTokenDeps { upstream, namespace, clock, .. } = &self.parts;
        let namespace = namespace.as_deref();
        let made = match &self.derive {
            DerivedTokenKind::Child(options) => upstream.create_derived_token(&parent.secret, namespace, options).await,
            DerivedTokenKind::Wrapped(ttl) => upstream.wrap(&parent.secret, namespace, *ttl).await,
        };
        let now = clock.now();
        match made {
            Ok(answer) => self.made(answer, parent.generation, now),
            Err(error) => self.failed(&error, now),
        }
    }

    fn made(&mut self, answer: LoginResponse, parent: Generation, now: ClockReading) {
        self.pace.record_success(now);
        let ttl = answer.lease.ttl;
        let expires = (!ttl.is_zero()).then(|| now + ttl);
        tracing::info!(
            event = "token.derived",
            output = self.output,
            accessor = answer.accessor,
            "a token was made for it"
        );
        self.next = expires.map(|_| now + ttl.mul_f64(0.07f64.mul_add(random_unit(), 0.63)).max(SHORTEST));
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
        self.held = Some((parent, Arc::clone(&token)));
        self.parts.refresh_signal.allow_one();
        self.parts.publisher.publish(Availability::Available(token), Some(now));
        if let Some(health) = &self.parts.health {
            health.ready();
        }
    }

    fn failed(&mut self, error: &CallError, now: ClockReading) {
        let verdict = error.verdict();
        let failure = if verdict == TokenVerdict::Unavailable || verdict.suspects_token() {
            FailureCause::Transient
        } else {
            FailureCause::Refused
        };
        self.pace.record_failure(now, failure, error.retry_after(), random_unit());
        self.next = Some(self.pace.not_before());
        if verdict.suspects_token() {
            // The session looks for itself; its next token brings us back.
            self.parts.session.request();
        }
        let error = format_chain(error);
        tracing::warn!(event = "token.derived.failed", output = self.output, error, "no token could be made for it");
        if self.held.is_none() {
            self.absent("no token could be made for it");
        }
    }

    fn absent(&mut self, reason: &str) {
        self.held = None;
        if let Some(health) = &self.parts.health {
            health.not_ready(reason);
        }
        let now = self.parts.clock.now();
        let retry_after = self.next.map_or(SHORTEST, |next| now.until(next)).max(Duration::from_secs(1));
        self.parts.publisher.publish(Availability::Unavailable { reason: reason.into(), retry_after }, Some(now));
    }
}

/// The least time from one to the next, however short their lives are.
const SHORTEST: Duration = Duration::from_secs(5);
