//! Keeps one secret: reads it with the session's token, keeps its lease, and publishes it when it changes.

mod replaced;
mod restore;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::circuit_breaker::CircuitBreaker;
use super::lease::{LeaseState, Step, next_step, reread_interval};
use super::persisted_secrets::{PersistedSecrets, Record};
use super::retry::{ReadFailure, RetryBudget, RetrySchedule};
use super::snapshot_format::TokenFingerprint;
use super::{SecretFields, SecretOptions, SecretResponse};
use crate::agent::server_client::{CallError, SecretLease, ServerClient, TokenVerdict};
use crate::agent::token::{Generation, Token, TokenWatch};
use crate::backoff::random_unit;
use crate::clock::{Clock, ClockReading};
use crate::credential_watch::{Availability, CredentialPublisher, RefreshSignal};
use crate::health;
use crate::metrics::{Metrics, SecretCallLabels};

/// Makes of a secret what its readers want; or says what the secret lacks for it, without its content.
pub type Projection<T> = fn(&SecretOptions, &SecretResponse, ClockReading) -> Result<T, String>;

/// What a keeper works with.
#[derive(Debug)]
pub struct SecretRenewerDeps<T> {
    /// The watch's write half.
    pub publisher: CredentialPublisher<T>,
    /// What is published of the secret.
    pub view: Projection<T>,
    /// The server.
    pub upstream: ServerClient,
    /// The session's token.
    pub tokens: TokenWatch,
    /// Rings the session: the server says that its token is dead.
    pub session: RefreshSignal,
    /// What those ring who were told that the secret is no longer good.
    pub refresh_signal: RefreshSignal,
    /// Where the time comes from.
    pub clock: Clock,
    /// Where to say whether there is a secret, if somebody is told.
    pub health: Option<health::HealthHandle>,
    /// What calls go through that are made beside many others.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// Quick retries after a refusal, shared by the secrets of a session.
    pub retry_budget: RetryBudget,
    /// Where calls are counted.
    pub metrics: Metrics,
}

/// Keeps one secret and publishes it.
#[derive(Debug)]
pub struct SecretRenewer<T> {
    options: SecretOptions,
    deps: SecretRenewerDeps<T>,
    retries: RetrySchedule,
    token: Option<Arc<Token>>,
    held: Option<Held>,
    /// Where it is written down to outlive a restart.
    persisted: Option<PersistedSecrets>,
    /// A lease of the last process, until it is known whether the token lives that it was got with.
    awaited: Option<(Record, Option<TokenFingerprint>)>,
    /// When what is held is shown although nobody has said yet that it is still good.
    show_at: Option<ClockReading>,
    next: Step,
    /// Leases that were replaced, and when each is given back.
    replaced: Vec<(SecretLease, ClockReading)>,
}

/// The secret that is published.
#[derive(Debug)]
struct Held {
    data: Arc<SecretFields>,
    /// When it was read, and how old it was by then.
    read: ClockReading,
    before: Duration,
    /// Whether readers are given it.
    shown: bool,
    lease: Option<(SecretLease, LeaseState)>,
    /// How soon it is looked at again where it has no lease.
    look_after: Duration,
    /// The token that it was read with, whose end is its lease's end.
    generation: Generation,
}

/// What the loop woke up for.
enum Event {
    Token,
    RefreshRequest,
    Step,
    Ended,
    Show,
    GiveBack,
}

impl<T> SecretRenewer<T> {
    /// A keeper that has done nothing yet.
    pub fn new(options: SecretOptions, deps: SecretRenewerDeps<T>) -> Self {
        let now = deps.clock.now();
        Self {
            options,
            deps,
            retries: RetrySchedule::new(now),
            token: None,
            held: None,
            persisted: None,
            awaited: None,
            show_at: None,
            next: Step::ReadAt(now),
            replaced: vec![],
        }
    }

    /// Keeps the secret until `stop` is cancelled, or the session has ended. Publishes one while there is one whose lease has
    /// not ended, and within a second after its end that there is none.
    pub async fn run(mut self, stop: CancellationToken) {
        self.take_token();
        while let Some(Some(event)) = stop.run_until_cancelled(self.wait()).await {
            let handled = match event {
                Event::Token => {
                    self.take_token();
                    Some(())
                }
                Event::Ended => {
                    self.absent("its lease has ended");
                    Some(())
                }
                Event::Show => {
                    self.show_at = None;
                    self.show();
                    Some(())
                }
                Event::GiveBack => stop.run_until_cancelled(self.give_back()).await,
                Event::RefreshRequest => {
                    let read = stop.run_until_cancelled(self.call(true)).await;
                    self.deps.refresh_signal.complete();
                    read
                }
                Event::Step => stop.run_until_cancelled(self.call(matches!(self.next, Step::ReadAt(_)))).await,
            };
            if handled.is_none() {
                break;
            }
        }
    }

    /// `None` once the session has ended.
    async fn wait(&mut self) -> Option<Event> {
        let clock = self.deps.clock.clone();
        let step = self.token.is_some().then(|| self.next.at());
        let back = self.replaced.iter().map(|(_, at)| *at).min_by_key(|at| at.boot).filter(|_| self.token.is_some());
        let ends = self.ends();
        Some(tokio::select! {
            biased;
            () = clock.sleep_until_some(ends) => Event::Ended,
            () = clock.sleep_until_some(self.show_at) => Event::Show,
            changed = self.deps.tokens.changed() => {
                changed.ok()?;
                Event::Token
            }
            () = self.deps.refresh_signal.requested() => Event::RefreshRequest,
            () = clock.sleep_until_some(step) => Event::Step,
            () = clock.sleep_until_some(back) => Event::GiveBack,
        })
    }

    fn ends(&self) -> Option<ClockReading> {
        self.held.as_ref()?.lease.as_ref().map(|(_, lease_state)| lease_state.ends())
    }

    /// A new token: what was leased with the one before ends with that one.
    fn take_token(&mut self) {
        self.token = match self.deps.tokens.current().availability {
            Availability::Available(token) => Some(token),
            Availability::Unavailable { .. } => None,
        };
        let Some(token) = self.token.clone() else { return };
        if self.take_up_awaited(&token) {
            return;
        }
        let outlives =
            self.held.as_ref().is_some_and(|held| held.lease.is_none() || held.generation == token.generation);
        let refused = self.retries.refused_token();
        // The session publishes after each check, too: the token that was refused is tried again by the schedule alone.
        if refused != Some(token.generation) && (!outlives || refused.is_some()) {
            self.next = Step::ReadAt(self.deps.clock.now());
        }
    }

    /// Reads the secret or renews its lease. Meanwhile the lease that is held may end.
    async fn call(&mut self, read: bool) {
        let (upstream, clock) = (self.deps.upstream.clone(), self.deps.clock.clone());
        let circuit_breaker = self.deps.circuit_breaker.clone();
        let pass = match &circuit_breaker {
            None => None,
            Some(circuit_breaker) => {
                let ends = self.ends();
                tokio::select! {
                    pass = circuit_breaker.enter() => Some(pass),
                    // The loop sees to these first.
                    () = clock.sleep_until_some(ends) => return,
                    () = clock.sleep_until_some(self.show_at) => return,
                }
            }
        };
        if pass.is_some() {
            // There may have been another one meanwhile.
            self.take_token();
        }
        let read = read || matches!(self.next, Step::ReadAt(_));
        let Some(token) = self.token.clone() else { return };
        let (request, namespace) = (self.options.request.clone(), self.options.namespace.clone());
        let renewed = self.held.as_ref().and_then(|held| held.lease.clone()).filter(|_| !read);
        let call = async {
            match &renewed {
                Some((lease, _)) => {
                    let lease = upstream.renew_lease(&token.secret, lease, namespace.as_deref()).await?;
                    Ok(Done::Renewed(lease))
                }
                None => {
                    upstream.request_secret(Some(&token.secret), &request, namespace.as_deref()).await.map(Done::Read)
                }
            }
        };
        let mut call = std::pin::pin!(call);
        let done: Result<Done, CallError> = loop {
            let ends = self.ends();
            tokio::select! {
                done = &mut call => break done,
                () = clock.sleep_until_some(ends) => self.absent("its lease has ended"),
                () = clock.sleep_until_some(self.show_at) => {
                    self.show_at = None;
                    self.show();
                }
            }
        };
        let now = clock.now();
        if let Some(pass) = pass {
            pass.leave(!done.as_ref().is_err_and(|error| error.verdict() == TokenVerdict::Unavailable));
        }
        self.count(renewed.is_some(), &done);
        match done {
            Ok(Done::Read(answer)) => self.was_read(answer, token.generation, now),
            Ok(Done::Renewed(lease)) => {
                self.retries.succeeded(now);
                if let Some(Held { lease: Some((_, lease_state)), .. }) = &mut self.held {
                    lease_state.renewed(now, lease);
                }
                self.deps.publisher.record_check(now);
                self.plan(now);
                self.show();
            }
            Err(error) => self.failed(&error, renewed.is_some(), token.generation, now),
        }
    }

    fn was_read(&mut self, answer: SecretResponse, generation: Generation, now: ClockReading) {
        let changed = self.held.as_ref().is_none_or(|before| !before.shown || before.data != answer.data);
        let view = if changed { (self.deps.view)(&self.options, &answer, now).map(Some) } else { Ok(None) };
        let look_after = reread_interval(&self.options.request, &answer.data, self.options.interval, now);
        let SecretResponse { data, lease } = answer;
        let view = match view {
            Ok(view) => view,
            Err(lacks) => {
                self.replaced.extend(lease.map(|lease| (lease, now)));
                return self.useless(&lacks, now);
            }
        };
        self.retries.succeeded(now);
        let before = self.held.take();
        if let Some((old, _)) = before.and_then(|before| before.lease)
            && lease.as_ref().is_none_or(|lease| lease.id != old.id)
        {
            self.replaced.push((old, now + self.options.grace));
        }
        let lease = lease.map(|lease| {
            let lease_state = LeaseState { since: now, lease: lease.lease, first: lease.lease.ttl, refused: false };
            (lease, lease_state)
        });
        match view {
            Some(view) => {
                let leased = lease.as_ref().map(|(lease, _)| lease.lease.ttl.as_secs());
                tracing::info!(event = "agent.secret.read", secret = self.options.name, leased, "a secret was read");
                self.deps.publisher.publish(Availability::Available(Arc::new(view)), Some(now));
            }
            None => self.deps.publisher.record_check(now),
        }
        if let Some(health) = &self.deps.health {
            health.ready();
        }
        self.show_at = None;
        self.held = Some(Held { data, read: now, before: Duration::ZERO, shown: true, lease, look_after, generation });
        self.plan(now);
    }

    /// What was read cannot be used: it is looked at again when somebody may have mended it.
    fn useless(&mut self, lacks: &str, now: ClockReading) {
        tracing::warn!(
            event = "agent.secret.failed",
            secret = self.options.name,
            error = lacks,
            "a secret is of no use"
        );
        self.retry_after(now, ReadFailure::Unusable, None);
        self.next = Step::ReadAt(self.retries.not_before());
        if self.held.is_none() {
            self.publish_absence(lacks, now.until(self.next.at()));
        }
    }

    fn plan(&mut self, now: ClockReading) {
        let lease_state = self.held.as_ref().and_then(|held| held.lease.as_ref()).map(|(_, lease_state)| *lease_state);
        let look_after = self.held.as_ref().map_or(self.options.interval, |held| held.look_after);
        self.next = next_step(now, lease_state, look_after, random_unit());
        self.write_down();
    }

    fn failed(&mut self, error: &CallError, renewal: bool, generation: Generation, now: ClockReading) {
        let verdict = error.verdict();
        let name = &self.options.name;
        tracing::warn!(event = "agent.secret.failed", secret = name, renewal, %error, "a secret could not be had");
        let suspect = verdict == TokenVerdict::Denied && self.deps.retry_budget.may_suspect_token(now);
        if verdict.suspects_token() || suspect {
            // The session checks its token; a new one brings this secret back at once.
            self.deps.session.request();
        }
        let passing = verdict == TokenVerdict::Unavailable;
        let failure = match error {
            _ if passing => ReadFailure::Outage,
            CallError::NoSecret { .. } => ReadFailure::Unusable,
            _ => ReadFailure::Refused(generation),
        };
        if renewal && !passing {
            // The lease will not grow; a new secret may be had.
            if let Some(Held { lease: Some((_, lease_state)), .. }) = &mut self.held {
                lease_state.refused = true;
            }
            self.drop_unshown();
            self.next = Step::ReadAt(now);
            return;
        }
        if passing {
            self.show();
        } else if !verdict.suspects_token() {
            self.drop_unshown();
        }
        self.retry_after(now, failure, error.retry_after());
        let at = self.retries.not_before();
        self.next = if renewal { Step::RenewAt(at) } else { Step::ReadAt(at) };
        if self.held.is_none() {
            self.publish_absence(&error.to_string(), now.until(at));
        }
    }

    fn retry_after(&mut self, now: ClockReading, failure: ReadFailure, asked: Option<Duration>) {
        let interval = self.options.interval;
        self.retries.failed(now, failure, asked, interval, &self.deps.retry_budget, random_unit());
    }

    fn absent(&mut self, why: &str) {
        self.held = None;
        self.forget();
        self.next = Step::ReadAt(self.retries.not_before());
        self.publish_absence(why, Duration::from_secs(1));
    }

    fn publish_absence(&self, why: &str, retry_after: Duration) {
        let reason = format!("the secret {} is not there: {why}", self.options.name);
        if let Some(health) = &self.deps.health {
            health.not_ready(&reason);
        }
        let retry_after = retry_after.max(Duration::from_secs(1));
        self.deps.publisher.publish(Availability::Unavailable { reason: reason.into(), retry_after }, None);
    }

    fn count(&self, renewal: bool, done: &Result<Done, CallError>) {
        let call = if renewal { "renew" } else { "read" };
        let outcome = if done.is_ok() { "ok" } else { "failed" };
        let labels = SecretCallLabels { secret: self.options.label.clone(), call, outcome };
        self.deps.metrics.secret_calls.get_or_create(&labels).inc();
    }
}

enum Done {
    Read(SecretResponse),
    Renewed(crate::agent::token::Lease),
}
