//! Reads one secret with the session's token, renews its lease, and publishes it when it changes.

mod replaced;
mod restore;
mod results;

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_credentials::credential_watch::{Availability, CredentialPublisher, RefreshSignal};
use keyward_machine::clock::{Clock, ClockChanges, ClockReading};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::outage::Outage;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::circuit_breaker::{CircuitBreaker, Permit};
use super::content_end::ContentEnd;
use super::persisted_secrets::{PersistedSecrets, SecretRecord};
use super::reread::{Intervals, limit_interval, made_until, next_request};
use super::retry::{QuickRetryBudget, RetrySchedule};
use super::{SecretOptions, SecretResponse};
use crate::leases::{ActiveLease, Step, TokenFingerprint};
use crate::server_client::{CallError, SecretLease, ServerClient, TokenVerdict};
use crate::token::{Token, TokenWatch};
use results::CallResult;

/// Converts a secret to what its readers use. The error says what the secret lacks, without its content.
pub(crate) type Projection<T> = fn(&SecretOptions, &SecretResponse, ClockReading) -> Result<T, String>;

/// Collaborators of a [`SecretRenewer`].
#[derive(Debug)]
pub struct SecretRenewerDeps<T> {
    /// Publishes the secret.
    pub publisher: CredentialPublisher<T>,
    /// Converts the secret before it is published.
    pub projection: Projection<T>,
    /// Client of the session's server.
    pub upstream: ServerClient,
    /// The session's token.
    pub tokens: TokenWatch,
    /// Requests a check by the session after the server refused its token.
    pub session: RefreshSignal,
    /// Receives requests to read the secret again from readers for which it failed.
    pub refresh_signal: RefreshSignal,
    /// Source of the current time.
    pub clock: Clock,
    /// Reports whether there is a secret; `None` where no component depends on it.
    pub health: Option<health::HealthHandle>,
    /// Limits the calls of many renewers to one server.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// Quick retries after a refusal, shared by the secrets of a session.
    pub retry_budget: QuickRetryBudget,
    /// Metrics that this work updates.
    pub metrics: Metrics,
}

/// Renews one secret and publishes it.
#[derive(Debug)]
pub struct SecretRenewer<T> {
    options: SecretOptions,
    deps: SecretRenewerDeps<T>,
    retries: RetrySchedule,
    token: Option<Arc<Token>>,
    current: Option<CurrentSecret>,
    /// Records the secret for the next process.
    persisted: Option<PersistedSecrets>,
    /// The previous process's lease, until the session has a token to compare with its own.
    restored_lease: Option<(SecretRecord, Option<TokenFingerprint>)>,
    /// Time when a restored secret is published although the server has not confirmed it.
    publish_restored_at: Option<ClockReading>,
    /// Time of the next read, unless a lease has its own schedule.
    read_at: ClockReading,
    /// End of what a write has made without a lease, as its content tells it.
    made_until: Option<ClockReading>,
    /// Changes of the wall clock, by which a certificate without a lease ends; `None` for other secrets.
    clock_changes: Option<ClockChanges>,
    /// Replaced leases, and the time when each is revoked.
    replaced: Vec<(SecretLease, ClockReading)>,
    /// The task that revokes those that were due, while it runs. It ends with the renewer.
    revocation: JoinSet<()>,
    outage: Outage,
}

/// The secret that was read or restored.
#[derive(Debug)]
struct CurrentSecret {
    record: SecretRecord,
    is_published: bool,
}

enum Event {
    TokenChanged,
    ReadRequested,
    StepDue,
    LeaseEnded,
    PublishRestored,
    RevocationDue,
    RevocationEnded,
    ClockChanged,
}

impl<T> SecretRenewer<T> {
    /// Creates a renewer, which is due to read at once.
    pub fn new(options: SecretOptions, deps: SecretRenewerDeps<T>) -> Self {
        let now = deps.clock.now();
        Self {
            options,
            deps,
            retries: RetrySchedule::new(now),
            token: None,
            current: None,
            persisted: None,
            restored_lease: None,
            publish_restored_at: None,
            read_at: now,
            made_until: None,
            clock_changes: None,
            replaced: vec![],
            revocation: JoinSet::new(),
            outage: Outage::default(),
        }
    }

    /// Renews the secret until `stop` is cancelled or the session has ended. Publishes within a second that a lease has ended.
    pub async fn run(mut self, stop: CancellationToken) {
        self.update_token();
        while let Some(Some(event)) = stop.run_until_cancelled(self.wait()).await {
            let handled = match event {
                Event::TokenChanged => {
                    self.update_token();
                    Some(())
                }
                Event::LeaseEnded => {
                    self.record_end();
                    Some(())
                }
                Event::PublishRestored => {
                    self.publish_restored_at = None;
                    self.publish_restored();
                    Some(())
                }
                Event::RevocationDue => {
                    self.revoke_replaced();
                    Some(())
                }
                Event::RevocationEnded => Some(()),
                Event::ClockChanged => {
                    self.apply_wall_clock_change();
                    Some(())
                }
                Event::ReadRequested => {
                    let read = stop.run_until_cancelled(self.call(true)).await;
                    self.deps.refresh_signal.complete();
                    read
                }
                Event::StepDue => stop.run_until_cancelled(self.call(false)).await,
            };
            if handled.is_none() {
                break;
            }
        }
    }

    /// Waits for the next event; `None` once the session has ended.
    async fn wait(&mut self) -> Option<Event> {
        let clock = self.deps.clock.clone();
        let step = self.token.is_some().then(|| self.next().at());
        let revoke_at = self.revoke_at();
        let ends = self.ends();
        Some(tokio::select! {
            // The end of the lease comes first, so that the secret is not served any longer while other events follow
            // each other.
            biased;
            () = clock.sleep_until_some(ends) => Event::LeaseEnded,
            () = clock.sleep_until_some(self.publish_restored_at) => Event::PublishRestored,
            changed = self.deps.tokens.changed() => {
                changed.ok()?;
                Event::TokenChanged
            }
            () = self.deps.refresh_signal.requested() => Event::ReadRequested,
            () = clock.sleep_until_some(step) => Event::StepDue,
            () = clock.sleep_until_some(revoke_at) => Event::RevocationDue,
            Some(_) = self.revocation.join_next() => Event::RevocationEnded,
            () = wait_for_clock_change(self.clock_changes.as_mut()) => Event::ClockChanged,
        })
    }

    fn set_current(&mut self, record: SecretRecord, is_published: bool) {
        let ends_by_wall_clock =
            record.lease.is_none() && matches!(ContentEnd::parse(&record.data), Some(ContentEnd::At(_)));
        let previous = self.clock_changes.take();
        self.clock_changes = ends_by_wall_clock.then(|| previous.unwrap_or_else(|| self.deps.clock.changes()));
        self.current = Some(CurrentSecret { record, is_published });
    }

    /// Moves the next read of a certificate forward after the wall clock was set: if it was late, the read was planned after the end.
    /// A read that has failed is repeated soon anyway.
    fn apply_wall_clock_change(&mut self) {
        let Some(CurrentSecret { record, .. }) = &self.current else { return };
        let now = self.deps.clock.now();
        let request = &self.options.request;
        let (intervals, age) = (self.intervals(record.suggested_ttl), record.age(now));
        let next = next_request(request, &record.data, intervals, age, now).at(now, random_unit());
        let made_until = made_until(request, &record.data, age, now);
        let has_ended = made_until.is_some_and(|end| now.until(end).is_zero());
        let next = if has_ended { now } else { next };
        self.made_until = made_until;
        if !self.retries.is_failing() && next.boot < self.read_at.boot {
            self.read_at = next;
        }
    }

    /// Intervals of requests, of which the server may suggest a shorter one.
    fn intervals(&self, suggested_ttl: Option<Duration>) -> Intervals {
        Intervals { read: limit_interval(self.options.interval, suggested_ttl), write: self.options.rewrite_interval }
    }

    fn lease(&self) -> Option<&(SecretLease, ActiveLease)> {
        self.current.as_ref()?.record.lease.as_ref()
    }

    fn active_lease(&mut self) -> Option<&mut ActiveLease> {
        self.current.as_mut()?.record.lease.as_mut().map(|(_, active)| active)
    }

    fn ends(&self) -> Option<ClockReading> {
        match self.lease() {
            Some((_, active)) => Some(active.ends()),
            None => self.made_until.filter(|_| self.current.is_some()),
        }
    }

    fn next(&self) -> Step {
        self.lease().map_or(Step::ReadAt(self.read_at), |(_, active)| active.next())
    }

    /// Schedules a read, whether there is a lease or not.
    fn schedule_read(&mut self, at: ClockReading) {
        self.read_at = at;
        if let Some(active) = self.active_lease() {
            active.replace_at(at);
        }
    }

    /// Reads the session's token. A lease that another token requested ends with that one, so the secret is read again.
    fn update_token(&mut self) {
        let previous = self.token.take().map(|token| token.generation);
        self.token = self.deps.tokens.current().availability.available();
        let Some(token) = self.token.clone() else { return };
        if self.restore_lease(&token) {
            return;
        }
        // The session publishes after each check, too. Each read of an unusable secret may create something on the server.
        if self.retries.is_final() || self.retries.is_unusable() && previous == Some(token.generation) {
            return;
        }
        let stays_valid = self.current.as_ref().is_some_and(|CurrentSecret { record, .. }| {
            let belongs_to_token = record.lease.is_some() || self.options.request.belongs_to_token();
            !belongs_to_token || record.login == Some(token.generation)
        });
        let refused = self.retries.refused_token();
        // A token that was refused is tried again only on schedule.
        if refused != Some(token.generation) && (!stays_valid || refused.is_some()) {
            self.schedule_read(self.deps.clock.now());
        }
    }

    /// Reads the secret or renews its lease.
    async fn call(&mut self, read: bool) {
        let circuit_breaker = self.deps.circuit_breaker.clone();
        let mut permit = None;
        if let Some(circuit_breaker) = &circuit_breaker {
            permit = self.acquire(circuit_breaker).await;
            if permit.is_none() {
                return;
            }
            // The token may have changed during the wait.
            self.update_token();
        }
        let read = read || matches!(self.next(), Step::ReadAt(_));
        let Some(token) = self.token.clone() else { return };
        let renewed = self.lease().filter(|_| !read).map(|(lease, _)| lease.clone());
        let sent = self.deps.clock.now();
        let result = self.send(&token, renewed.as_ref()).await;
        let now = self.deps.clock.now();
        // A slow response must not make the lease longer than it is on the server.
        let sent = now.rebase(sent);
        if let Some(permit) = permit {
            permit.record(!result.as_ref().is_err_and(|error| error.verdict() == TokenVerdict::Unavailable));
        }
        self.count_call(renewed.is_some(), &result);
        match result {
            Ok(CallResult::Read(response)) => self.record_read(response, token.generation, sent, now),
            Ok(CallResult::Renewed(lease)) => self.record_renewal(lease, sent, now),
            Err(error) => self.record_failure(&error, renewed.is_some(), token.generation, now),
        }
    }

    /// Waits for the permission to call; `None` if an event that cannot wait comes first.
    async fn acquire<'a>(&self, circuit_breaker: &'a CircuitBreaker) -> Option<Permit<'a>> {
        let clock = &self.deps.clock;
        tokio::select! {
            permit = circuit_breaker.acquire(&self.options.request.path) => Some(permit),
            () = clock.sleep_until_some(self.ends()) => None,
            () = clock.sleep_until_some(self.publish_restored_at) => None,
        }
    }

    /// Sends the call. The current lease may end meanwhile.
    async fn send(&mut self, token: &Token, renewed: Option<&SecretLease>) -> Result<CallResult, CallError> {
        let upstream = self.deps.upstream.clone();
        let clock = self.deps.clock.clone();
        let request = self.options.request.clone();
        let namespace = self.options.namespace.clone();
        let call = async {
            let secret = &token.secret;
            let namespace = namespace.as_deref();
            match renewed {
                Some(lease) => upstream.renew_lease(secret, lease, namespace).await.map(CallResult::Renewed),
                None => upstream.request_secret(Some(secret), &request, namespace).await.map(CallResult::Read),
            }
        };
        let mut call = std::pin::pin!(call);
        loop {
            let ends = self.ends();
            tokio::select! {
                result = &mut call => return result,
                () = clock.sleep_until_some(ends) => self.record_end(),
                () = clock.sleep_until_some(self.publish_restored_at) => {
                    self.publish_restored_at = None;
                    self.publish_restored();
                }
            }
        }
    }

    /// Records that the secret has ended, and that no other one has taken its place.
    fn record_end(&mut self) {
        if self.lease().is_some() {
            return self.set_absent("its lease has ended");
        }
        let secret = &self.options.name;
        tracing::warn!(event = "agent.secret.ended", secret, "a secret has ended, and no other one could be requested");
        self.set_absent("it has ended, and no other one could be requested");
    }

    fn set_absent(&mut self, reason: &str) {
        self.current = None;
        self.remove_record();
        self.read_at = self.retries.not_before();
        self.publish_absence(None, reason, Duration::from_secs(1));
    }

    fn publish_absence(&self, code: Option<ErrorCode>, cause: &str, retry_after: Duration) {
        let reason = format!("the secret {} is not available: {cause}", self.options.name);
        if let Some(health) = &self.deps.health {
            health.set_failed(code, &reason);
        }
        let retry_after = retry_after.max(Duration::from_secs(1));
        self.deps.publisher.publish(Availability::Unavailable { reason: reason.into(), retry_after }, None);
    }
}

async fn wait_for_clock_change(changes: Option<&mut ClockChanges>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}
