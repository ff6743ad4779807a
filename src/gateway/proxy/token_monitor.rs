//! Reports a rejected or missing platform token, and its recovery, once each: log, readiness and metrics.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use keyward_credentials::credential_watch::{Availability, CredentialWatch};
use keyward_http::reverse_proxy::RequestBody;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::time_format::seconds;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::token_state::{TokenProblem, TokenState, wall_time};
use super::upstream::Upstream;
use super::upstream_call::{ACCOUNT_DETAILS, UpstreamCall};
use crate::GatewayMetrics;
use crate::platform_token::PlatformToken;

/// Watches the state of the platform token.
#[derive(Debug)]
pub(super) struct TokenMonitor {
    tokens: Arc<TokenState>,
    upstream: Arc<Upstream>,
    health: Arc<HealthHandle>,
    /// 1 while the platform rejects the token.
    rejected: Gauge,
    /// 1 while there is no token.
    missing: Gauge,
    /// Time at which the token in use was loaded.
    loaded: Gauge,
    clock: Clock,
}

/// Time for the token's source to complete a refresh before the rejection is reported.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(15);

/// Additional time in which a rejection may end unreported, as part of a rotation.
const REJECTION_GRACE: Duration = Duration::from_secs(1);

/// The same for a missing token: a start takes that long if the token comes from a server.
const MISSING_GRACE: Duration = Duration::from_secs(5);

impl TokenMonitor {
    pub(super) fn new(
        tokens: Arc<TokenState>,
        upstream: Arc<Upstream>,
        health: Arc<HealthHandle>,
        metrics: &GatewayMetrics,
        clock: Clock,
    ) -> Self {
        let rejected = metrics.token_refused.clone();
        let missing = metrics.token_missing.clone();
        let loaded = metrics.token_loaded.clone();
        Self { tokens, upstream, health, rejected, missing, loaded, clock }
    }

    /// Reports a rejected or missing token once, and its recovery. Never returns.
    pub(super) async fn run(&self) {
        let mut watch = self.tokens.source.watch.clone();
        self.health.set_ready();
        loop {
            while self.tokens.problem().is_none() {
                self.record_age();
                self.tokens.changed(&mut watch).await;
            }
            self.record_age();
            let detected = self.clock.now();
            if self.resolves_in_grace(&mut watch).await {
                if self.tokens.rejected_since().is_none() {
                    self.tokens.clear();
                }
                continue;
            }
            let Some(problem) = self.tokens.problem() else { continue };
            let since = self.report_problem(&problem, detected);
            self.wait_until_resolved(&mut watch, &problem).await;
            self.report_recovery(&problem, since);
        }
    }

    /// Sets the time at which the token in use was loaded.
    fn record_age(&self) {
        let loaded = match &self.tokens.source.watch.peek().availability {
            Availability::Available(token) => self.clock.now().wall_time_of(token.loaded),
            Availability::Unavailable { .. } => SystemTime::UNIX_EPOCH,
        };
        let seconds = loaded.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.loaded.set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    /// Gives the token's source time. Returns true if the problem went away.
    async fn resolves_in_grace(&self, watch: &mut CredentialWatch<PlatformToken>) -> bool {
        let time = if matches!(self.tokens.problem(), Some(TokenProblem::Rejected { .. })) {
            let _ = tokio::time::timeout(REFRESH_TIMEOUT, self.tokens.source.refresh_signal.wait()).await;
            REJECTION_GRACE
        } else {
            MISSING_GRACE
        };
        let end = Instant::now() + time;
        while self.tokens.problem().is_some() {
            if tokio::time::timeout_at(end, self.tokens.changed(watch)).await.is_err() {
                return self.tokens.problem().is_none();
            }
        }
        true
    }

    /// Returns when there is a token that the platform accepts.
    async fn wait_until_resolved(&self, watch: &mut CredentialWatch<PlatformToken>, problem: &TokenProblem) {
        loop {
            while self.tokens.problem().is_some() {
                self.tokens.changed(watch).await;
            }
            if matches!(problem, TokenProblem::Missing { .. }) || self.tokens.is_unrejected() {
                return;
            }
            // A new token that no call has used yet: the rejection of the previous one says nothing about it.
            let Ok(token) = self.tokens.current() else { continue };
            match self.upstream.send(&UpstreamCall::own(ACCOUNT_DETAILS), &token, RequestBody::empty()).await {
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED => {
                    self.tokens.record_rejection(&token);
                }
                // Nothing speaks against the token.
                Ok(_) | Err(_) => return self.tokens.clear(),
            }
        }
    }

    /// Reports a problem. Returns when it began.
    fn report_problem(&self, problem: &TokenProblem, detected: ClockReading) -> ClockReading {
        let source = self.tokens.source.origin.as_str();
        match problem {
            TokenProblem::Rejected { since } => {
                let since_text = wall_time(self.clock.now(), *since);
                self.rejected.set(1);
                let reason = format!("the platform rejects the token ({source}) since {since_text}");
                self.health.set_failed(ErrorCode::PlatformTokenRejected, reason);
                tracing::warn!(
                    event = "gateway.token.refused",
                    code = ErrorCode::PlatformTokenRejected.as_str(),
                    source,
                    since = since_text,
                    "the platform rejects the platform token; calls wait for a new one"
                );
                *since
            }
            TokenProblem::Missing { reason } => {
                self.missing.set(1);
                tracing::warn!(
                    event = "gateway.token.missing",
                    code = ErrorCode::PlatformTokenMissing.as_str(),
                    source,
                    since = wall_time(self.clock.now(), detected),
                    error = &**reason,
                    "there is no platform token; calls get 503"
                );
                detected
            }
        }
    }

    fn report_recovery(&self, problem: &TokenProblem, since: ClockReading) {
        let was = match problem {
            TokenProblem::Rejected { .. } => "refused",
            TokenProblem::Missing { .. } => "missing",
        };
        self.clear_metrics();
        self.health.set_ready();
        let lasted_seconds = seconds(self.clock.now().since(since));
        tracing::info!(
            event = "gateway.token.recovered",
            source = self.tokens.source.origin,
            was,
            lasted_seconds,
            "the platform accepts the platform token again"
        );
    }

    /// Resets this gateway's gauges.
    pub(super) fn clear_metrics(&self) {
        self.rejected.set(0);
        self.missing.set(0);
        self.loaded.set(0);
    }
}
