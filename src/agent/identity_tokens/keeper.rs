//! Keeps the tokens of an identity: requests each once in its lifetime, and publishes it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_credentials::credential_watch::{Availability, credential_channel};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::outage::Outage;
use keyward_telemetry::time_format::{format_rfc3339, seconds};
use tokio_util::sync::CancellationToken;

use super::health::{IdentityHealth, ResourceState};
use super::metrics::{IdentityCallLabels, IdentityTokenMetrics};
use super::tokens::IdentityTokens;
use super::{IdentityTokenOptions, resource, schedule};
use crate::identity::{IdentityError, IdentityErrorKind, IdentityProof, IdentitySource, SignedToken};
use crate::token::{ClientToken, Generation, Lease, Token, TokenKind, TokenPublisher};

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
#[derive(Debug)]
pub struct IdentityTokenKeeper(Vec<ResourceKeeper>);

impl IdentityTokenKeeper {
    /// Creates the keeper, without any request, and the tokens that it will publish.
    ///
    /// # Errors
    /// The environment variables of a cloud identity are incomplete.
    pub fn build(
        options: &IdentityTokenOptions,
        deps: IdentityTokenDeps,
    ) -> Result<(Self, IdentityTokens), IdentityError> {
        let health = Arc::new(IdentityHealth::new(deps.health, &options.resources));
        let mut keepers = Vec::new();
        let mut watches = Vec::new();
        for resource in &options.resources {
            let (publisher, watch) = credential_channel("no token has been obtained yet");
            watches.push((resource.clone(), watch));
            keepers.push(ResourceKeeper {
                identity: options.name.clone(),
                resource: resource.clone(),
                source: Arc::from(options.origin.build(resource, deps.clock.clone())?),
                publisher,
                clock: deps.clock.clone(),
                metrics: deps.metrics.get(),
                health: Arc::clone(&health),
                backoff: Backoff::UPSTREAM,
                outage: Outage::default(),
                logged_error: None,
                current: None,
            });
        }
        Ok((Self(keepers), IdentityTokens::new(&options.name, deps.clock, watches)))
    }

    /// Keeps the tokens until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let all = join_all(self.0.into_iter().map(ResourceKeeper::run));
        let _ = stop.run_until_cancelled(all).await;
    }
}

/// Keeps the token for one resource.
#[derive(Debug)]
struct ResourceKeeper {
    identity: String,
    resource: String,
    source: Arc<dyn IdentitySource>,
    publisher: TokenPublisher,
    clock: Clock,
    metrics: IdentityTokenMetrics,
    health: Arc<IdentityHealth>,
    backoff: Backoff,
    outage: Outage,
    /// Error of the current outage that was logged.
    logged_error: Option<String>,
    current: Option<CurrentToken>,
}

/// Published token.
#[derive(Debug)]
struct CurrentToken {
    token: Arc<Token>,
    /// End by the wall clock, which may be set after the token was obtained.
    exp: SystemTime,
}

impl ResourceKeeper {
    async fn run(mut self) {
        loop {
            let source = Arc::clone(&self.source);
            let proof = self.while_current(async move { source.prove().await }).await;
            let mut next = match proof.and_then(|proof| self.accept(proof)) {
                Ok(token) => self.publish(token),
                Err(error) => self.record_failure(&error),
            };
            while self.is_clock_set_before(next).await {
                next = self.rebase(next);
            }
        }
    }

    /// Waits until a time. Returns true if the wall clock was set, or the machine suspended, before it.
    async fn is_clock_set_before(&mut self, next: ClockReading) -> bool {
        let clock = self.clock.clone();
        self.while_current(async move {
            let mut changes = clock.changes();
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
            let end = self.current.as_ref().and_then(|current| current.token.expires);
            tokio::select! {
                biased;
                () = self.clock.sleep_until_some(end) => self.withdraw(),
                done = &mut work => return done,
            }
        }
    }

    /// Follows a wall clock that was set: the end of a token is a time by it. Returns the time at which to replace the token, which was
    /// `next`.
    fn rebase(&mut self, next: ClockReading) -> ClockReading {
        let Some(CurrentToken { token, exp }) = &self.current else { return next };
        let now = self.clock.now();
        let rest = exp.duration_since(now.wall).unwrap_or(Duration::ZERO);
        let token = Arc::new(Token {
            secret: token.secret.clone(),
            accessor: None,
            lease: token.lease,
            kind: token.kind.clone(),
            policies: Vec::new(),
            obtained: now.rebase(token.obtained),
            expires: Some(now + rest),
            generation: token.generation,
        });
        self.current = Some(CurrentToken { token: Arc::clone(&token), exp: *exp });
        self.publisher.publish(Availability::Available(token), Some(now));
        let renewal = schedule::renewal(now, now + rest, None);
        std::cmp::min_by_key(next, renewal, |at| at.boot)
    }

    /// Checks a token that was obtained.
    fn accept(&self, proof: IdentityProof) -> Result<CurrentToken, IdentityError> {
        let IdentityProof::Signed(signed) = proof else { return Err(invalid("gives no signed token".to_owned())) };
        let SignedToken { jwt, claims, audience, .. } = *signed;
        let claims = claims.ok_or_else(|| invalid("gives a token that cannot be decoded".to_owned()))?;
        let exp = claims.exp.ok_or_else(|| invalid("gives a token without an end (exp)".to_owned()))?;
        // A token from a file is for whom it was made.
        if audience.is_none() && !claims.aud.iter().any(|aud| resource::is_same(aud, &self.resource)) {
            let found = claims.aud.join(", ").escape_debug().take(200).collect::<String>();
            return Err(invalid(format!("gives a token for another audience: {found}")));
        }
        let secret =
            ClientToken::parse(jwt).ok_or_else(|| invalid("gives a token of more than 4096 bytes".to_owned()))?;
        let now = self.clock.now();
        let ttl = exp.duration_since(now.wall).unwrap_or(Duration::ZERO);
        if ttl.is_zero() {
            return Err(IdentityError {
                kind: IdentityErrorKind::NotReady,
                hint: Some("the source gave an old token again, or this machine's clock is ahead"),
                ..invalid("gives a token that has expired".to_owned())
            });
        }
        let token = Token {
            secret,
            accessor: None,
            lease: Lease { ttl, renewable: false },
            kind: TokenKind::Service,
            policies: Vec::new(),
            obtained: now,
            expires: Some(now + ttl),
            generation: Generation::new(),
        };
        Ok(CurrentToken { token: Arc::new(token), exp })
    }

    /// Publishes a token; returns the time at which to replace it.
    fn publish(&mut self, new: CurrentToken) -> ClockReading {
        let now = self.clock.now();
        self.count("ok");
        self.backoff.reset();
        self.logged_error = None;
        let (identity, resource) = (&self.identity, &self.resource);
        if let Some(lasted_seconds) = self.outage.record_success(now) {
            tracing::info!(
                event = "identity.tool_token.recovered",
                identity,
                resource,
                lasted_seconds,
                "tokens for tools can be obtained again"
            );
        }
        let before =
            self.current.as_ref().filter(|before| before.exp == new.exp).and_then(|before| before.token.expires);
        let next = schedule::renewal(now, new.token.expires.unwrap_or(now), before);
        if before.is_none() {
            tracing::info!(
                event = "identity.tool_token.obtained",
                identity,
                resource,
                expires_at = format_rfc3339(new.exp),
                "a token for tools was obtained"
            );
            self.publisher.publish(Availability::Available(Arc::clone(&new.token)), Some(now));
            self.current = Some(new);
            self.health.record_update();
        }
        self.health.set(&self.resource, ResourceState { has_token: true, error: None });
        next
    }

    /// Records a failure; returns the time of the next attempt.
    fn record_failure(&mut self, error: &IdentityError) -> ClockReading {
        let now = self.clock.now();
        self.count("failed");
        self.outage.record_failure(now);
        let wait = self.backoff.next_half_jitter(random_unit()).max(error.retry_after.unwrap_or_default());
        let code = error.kind.code();
        let text = format_chain(error);
        // A retry that fails in the same way says nothing new.
        if self.logged_error.as_ref() != Some(&text) {
            tracing::warn!(
                event = "identity.tool_token.failed",
                identity = self.identity,
                resource = self.resource,
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
        self.health.set(&self.resource, ResourceState { has_token: self.current.is_some(), error });
        now + wait
    }

    /// Withdraws the token at its end.
    fn withdraw(&mut self) {
        self.current = None;
        let now = self.clock.now();
        self.outage.record_failure(now);
        let reason = self.logged_error.clone().unwrap_or_else(|| "it could not be replaced yet".to_owned());
        let reason = format!("the token has expired: {reason}");
        tracing::warn!(
            event = "identity.tool_token.expired",
            identity = self.identity,
            resource = self.resource,
            "a token for tools has expired before it could be replaced"
        );
        self.publisher.publish_unavailable(reason.as_str(), Duration::from_secs(1), now, Some(now));
        self.health.set(&self.resource, ResourceState { has_token: false, error: Some((None, reason)) });
    }

    fn count(&self, outcome: &'static str) {
        self.metrics.calls.get_or_create(&IdentityCallLabels { identity: self.identity.clone(), outcome }).inc();
    }
}

fn invalid(message: String) -> IdentityError {
    IdentityError {
        kind: IdentityErrorKind::Config,
        source_name: "identity token",
        message,
        hint: None,
        retry_after: None,
    }
}

#[cfg(test)]
mod tests;
