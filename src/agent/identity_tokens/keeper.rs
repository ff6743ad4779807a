//! Keeps what tools get of an identity, its tokens and the credentials of a role: requests each once in its lifetime, and publishes it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, join_all};
use keyward_credentials::backoff::random_unit;
use keyward_credentials::credential_watch::{Availability, CredentialPublisher, credential_channel};
use keyward_machine::clock::{Clock, ClockChanges, ClockReading};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::outage::Outage;
use keyward_telemetry::time_format::{format_rfc3339, seconds};
use tokio_util::sync::CancellationToken;

use super::fetch::{Fetch, Fetched, RoleFetch, TokenFetch};
use super::health::{IdentityHealth, ResourceState};
use super::metrics::{IdentityCallLabels, IdentityTokenMetrics};
use super::tokens::{IdentityTokens, RoleCredentials};
use super::{IdentityTokenOptions, schedule};
use crate::identity::{AwsCredentials, IdentityError};
use crate::retry_budget::{FailureCause, RetryBudget};
use crate::token::{ClientToken, Generation, Lease, Token, TokenKind};

/// Collaborators of the keeper of an identity's tokens.
#[derive(Debug)]
pub struct IdentityTokenDeps {
    /// Source of the current time.
    pub clock: Clock,
    /// Counts the requests.
    pub metrics: Metrics,
    /// Reports whether there is a token for each resource.
    pub health: HealthHandle,
}

/// Keeps the tokens of one identity.
pub struct IdentityTokenKeeper(Vec<BoxFuture<'static, ()>>);

impl std::fmt::Debug for IdentityTokenKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IdentityTokenKeeper").field(&self.0.len()).finish()
    }
}

impl IdentityTokenKeeper {
    /// Creates the keeper, without any request, and the tokens that it will publish.
    ///
    /// # Errors
    /// The environment variables of a cloud identity are incomplete.
    pub fn build(
        options: &IdentityTokenOptions,
        deps: IdentityTokenDeps,
    ) -> Result<(Self, IdentityTokens), IdentityError> {
        let role = options.aws_role.as_ref();
        let subjects: Vec<_> = options.resources.iter().chain(role.map(|role| &role.role_arn)).cloned().collect();
        let health = Arc::new(IdentityHealth::new(deps.health, &subjects));
        let keeper = |subject: &str| KeeperParts {
            identity: options.name.clone(),
            subject: subject.to_owned(),
            clock: deps.clock.clone(),
            metrics: deps.metrics.get(),
            health: Arc::clone(&health),
        };
        let mut tasks: Vec<BoxFuture<'static, ()>> = Vec::new();
        let mut watches = Vec::new();
        for resource in &options.resources {
            let fetch = TokenFetch::build(&options.origin, resource, deps.clock.clone())?;
            let (publisher, watch) = credential_channel(NONE_YET);
            watches.push((resource.clone(), watch));
            tasks.push(Box::pin(Keeper::new(keeper(resource), fetch, publisher).run()));
        }
        let role = role.map(|role| {
            let token = TokenFetch::build(&options.origin, &role.audience, deps.clock.clone())?;
            let (publisher, watch) = credential_channel(NONE_YET);
            let fetch = RoleFetch::new(token, role.clone(), deps.clock.clone());
            tasks.push(Box::pin(Keeper::new(keeper(&role.role_arn), fetch, publisher).run()));
            Ok((role.role_arn.clone(), watch))
        });
        let tokens = IdentityTokens::new(&options.name, deps.clock, watches).with_role(role.transpose()?);
        Ok((Self(tasks), tokens))
    }

    /// Keeps the tokens until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(join_all(self.0)).await;
    }
}

const NONE_YET: &str = "no token has been obtained yet";

/// Published form of what was fetched.
pub(super) trait Published<V>: Send + Sync + 'static {
    /// Creates it with its times, which change where the wall clock is set.
    fn publish(value: &V, obtained: ClockReading, expires: ClockReading) -> Self;
}

impl Published<ClientToken> for Token {
    fn publish(value: &ClientToken, obtained: ClockReading, expires: ClockReading) -> Self {
        Self {
            secret: value.clone(),
            accessor: None,
            lease: Lease { ttl: obtained.until(expires), renewable: false },
            kind: TokenKind::Service,
            policies: Vec::new(),
            obtained,
            expires: Some(expires),
            generation: Generation::new(),
        }
    }
}

impl Published<AwsCredentials> for RoleCredentials {
    fn publish(value: &AwsCredentials, obtained: ClockReading, expires: ClockReading) -> Self {
        Self { credentials: value.clone(), obtained, expires }
    }
}

/// Parts of a keeper that do not depend on what it keeps.
#[derive(Debug)]
pub(super) struct KeeperParts {
    pub(super) identity: String,
    /// Resource of a token, or role of credentials.
    pub(super) subject: String,
    pub(super) clock: Clock,
    pub(super) metrics: IdentityTokenMetrics,
    pub(super) health: Arc<IdentityHealth>,
}

/// Keeps one token, or the credentials of a role.
pub(super) struct Keeper<F: Fetch, P> {
    parts: KeeperParts,
    fetch: Arc<F>,
    publisher: CredentialPublisher<P>,
    budget: RetryBudget,
    outage: Outage,
    /// Error of the current outage that was logged.
    logged_error: Option<String>,
    current: Option<Current<F::Value>>,
}

/// The value that is published.
struct Current<V> {
    value: V,
    obtained: ClockReading,
    expires: ClockReading,
    /// End by the wall clock, which may be set after it was obtained.
    exp: SystemTime,
}

impl<F: Fetch, P: Published<F::Value>> Keeper<F, P> {
    pub(super) fn new(parts: KeeperParts, fetch: F, publisher: CredentialPublisher<P>) -> Self {
        Self {
            budget: RetryBudget::new(parts.clock.now()),
            parts,
            fetch: Arc::new(fetch),
            publisher,
            outage: Outage::default(),
            logged_error: None,
            current: None,
        }
    }

    pub(super) async fn run(mut self) {
        // Subscribed once: a wall clock that is set during a request is followed after it.
        let mut changes = self.parts.clock.changes();
        loop {
            let fetch = Arc::clone(&self.fetch);
            let mut next = match self.while_current(async move { fetch.fetch().await }).await {
                Ok(fetched) => self.publish(fetched),
                Err(error) => self.record_failure(&error),
            };
            while self.is_clock_set_before(next, &mut changes).await {
                next = self.rebase(next);
            }
        }
    }

    /// Waits until a time. Returns true if the wall clock was set, or the machine suspended, before it.
    async fn is_clock_set_before(&mut self, next: ClockReading, changes: &mut ClockChanges) -> bool {
        let clock = self.parts.clock.clone();
        self.while_current(async move {
            tokio::select! {
                () = clock.sleep_until(next) => false,
                () = changes.next() => true,
            }
        })
        .await
    }

    /// Waits for `work`, and withdraws the token if it ends meanwhile.
    async fn while_current<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            let end = self.current.as_ref().map(|current| current.expires);
            let clock = self.parts.clock.clone();
            tokio::select! {
                biased;
                () = clock.sleep_until_some(end) => self.withdraw(),
                done = &mut work => return done,
            }
        }
    }

    /// Follows a wall clock that was set: the end of a token is a time by it. Returns the time at which to replace the token, which was
    /// `next`.
    fn rebase(&mut self, next: ClockReading) -> ClockReading {
        let now = self.parts.clock.now();
        let Some(current) = &mut self.current else { return next };
        let rest = current.exp.duration_since(now.wall).unwrap_or(Duration::ZERO);
        current.obtained = now.rebase(current.obtained);
        current.expires = now + rest;
        let published = P::publish(&current.value, current.obtained, current.expires);
        let renewal = schedule::renewal(now, current.expires, false);
        self.publisher.publish(Availability::Available(Arc::new(published)), Some(now));
        std::cmp::min_by_key(next, renewal, |at| at.boot)
    }

    /// Publishes what was fetched; returns the time at which to replace it.
    fn publish(&mut self, Fetched { value, exp }: Fetched<F::Value>) -> ClockReading {
        let now = self.parts.clock.now();
        self.count("ok");
        self.budget.record_success(now);
        self.logged_error = None;
        let KeeperParts { identity, subject, .. } = &self.parts;
        if let Some(lasted_seconds) = self.outage.record_success(now) {
            tracing::info!(
                event = "identity.tool_token.recovered",
                identity,
                resource = subject,
                lasted_seconds,
                "tokens for tools can be obtained again"
            );
        }
        let is_same = self.current.as_ref().is_some_and(|before| before.exp == exp);
        let expires = now + exp.duration_since(now.wall).unwrap_or(Duration::ZERO);
        let next = schedule::renewal(now, expires, is_same);
        if !is_same {
            tracing::info!(
                event = "identity.tool_token.obtained",
                identity,
                resource = subject,
                expires_at = format_rfc3339(exp),
                "a token for tools was obtained"
            );
            let published = P::publish(&value, now, expires);
            self.publisher.publish(Availability::Available(Arc::new(published)), Some(now));
            self.current = Some(Current { value, obtained: now, expires, exp });
            self.parts.health.record_update();
        }
        self.parts.health.set(&self.parts.subject, ResourceState { has_token: true, error: None });
        next
    }

    /// Records a failure; returns the time of the next attempt.
    fn record_failure(&mut self, error: &IdentityError) -> ClockReading {
        let now = self.parts.clock.now();
        self.count("failed");
        self.outage.record_failure(now);
        self.budget.record_failure(now, FailureCause::Identity, error.retry_after, random_unit());
        let next = self.budget.not_before();
        let wait = now.until(next);
        let code = error.kind.code();
        let text = format_chain(error);
        // A retry that fails in the same way says nothing new.
        if self.logged_error.as_ref() != Some(&text) {
            tracing::warn!(
                event = "identity.tool_token.failed",
                identity = self.parts.identity,
                resource = self.parts.subject,
                retry_in_seconds = seconds(wait),
                code = code.as_str(),
                error = text,
                "cannot obtain a token for tools"
            );
            self.logged_error = Some(text.clone());
        }
        if self.current.is_none() {
            self.publisher.publish_unavailable(text.as_str(), wait, now, Some(now));
        }
        let error = Some((Some(code), text));
        let state = ResourceState { has_token: self.current.is_some(), error };
        self.parts.health.set(&self.parts.subject, state);
        next
    }

    /// Withdraws what is published at its end.
    fn withdraw(&mut self) {
        self.current = None;
        let now = self.parts.clock.now();
        self.outage.record_failure(now);
        let reason = self.logged_error.clone().unwrap_or_else(|| "it could not be replaced yet".to_owned());
        let reason = format!("the token has expired: {reason}");
        tracing::warn!(
            event = "identity.tool_token.expired",
            identity = self.parts.identity,
            resource = self.parts.subject,
            "a token for tools has expired before it could be replaced"
        );
        let wait = now.until(self.budget.not_before()).max(Duration::from_secs(1));
        self.publisher.publish_unavailable(reason.as_str(), wait, now, Some(now));
        self.parts.health.set(&self.parts.subject, ResourceState { has_token: false, error: Some((None, reason)) });
    }

    fn count(&self, outcome: &'static str) {
        let labels = IdentityCallLabels { identity: self.parts.identity.clone(), outcome };
        self.parts.metrics.calls.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests;
