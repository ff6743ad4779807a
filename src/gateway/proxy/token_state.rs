//! Rejection of the platform token: affected calls wait for a new one, and the rejection is reported once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode};
use humantime::format_duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::Inner;
use super::body::CallerBody;
use super::response::retry_later;
use super::server_probe::gateway_headers;
use super::upstream_call::{ErrorResponse, UpstreamCall};
use crate::clock::ClockReading;
use crate::credential_watch::{Availability, CredentialWatch};
use crate::gateway::platform_token::PlatformToken;
use crate::http::reverse_proxy::ResponseBody;
use crate::http::server::Caller;
use crate::time_format::format_rfc3339;

/// The current rejection, and the calls that wait for a new token.
#[derive(Debug)]
pub(super) struct TokenState {
    rejection: Mutex<Option<TokenRejection>>,
    /// True while `rejection` is set: saves most calls the lock.
    rejected: AtomicBool,
    /// Notified when `rejection` is set or cleared.
    changed: Notify,
    /// One permit per call that may wait.
    waiting: Semaphore,
}

/// Token that the platform rejected last, and since when.
#[derive(Debug, Clone)]
struct TokenRejection {
    token: Arc<PlatformToken>,
    since: ClockReading,
}

/// Reason why calls cannot be made.
#[derive(Debug, Clone)]
enum TokenProblem {
    /// The platform rejects the current token.
    Rejected { since: ClockReading },
    /// There is no token.
    Missing { reason: Arc<str> },
}

/// `Retry-After` of a caller.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Interval of refresh requests while calls wait; the signal's own rate limit bounds them further.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Time for the token's source to complete a refresh before the rejection is reported.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(15);

/// Additional time in which a rejection may end unreported, as part of a rotation.
const REJECTION_GRACE: Duration = Duration::from_secs(1);

/// The same for a missing token: a start takes that long if the token comes from a server.
const MISSING_GRACE: Duration = Duration::from_secs(5);

impl TokenState {
    /// Lets half of the connections, at least one, wait for a new token.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            rejection: Mutex::default(),
            rejected: AtomicBool::new(false),
            changed: Notify::new(),
            waiting: Semaphore::new((connections / 2).max(1)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<TokenRejection>> {
        self.rejection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        if self.lock().take().is_some() {
            self.rejected.store(false, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }
}

impl Inner {
    /// Records that the platform has rejected a token. Returns false, and records nothing, if the token was replaced
    /// meanwhile.
    pub(super) fn record_rejection(&self, token: &Arc<PlatformToken>) -> bool {
        if !self.is_current(token) {
            return false;
        }
        let state = &self.token_state;
        let mut rejection = state.lock();
        let since = rejection.as_ref().map_or_else(|| self.dependencies.clock.now(), |rejection| rejection.since);
        *rejection = Some(TokenRejection { token: Arc::clone(token), since });
        state.rejected.store(true, Ordering::Relaxed);
        drop(rejection);
        state.changed.notify_one();
        true
    }

    /// Records that the platform has accepted a token.
    pub(super) fn record_acceptance(&self, token: &PlatformToken) {
        if self.token_state.rejected.load(Ordering::Relaxed) && self.is_current(token) {
            self.token_state.clear();
        }
    }

    fn is_current(&self, token: &PlatformToken) -> bool {
        self.token().is_ok_and(|current| current.is_same(token))
    }

    /// Repeats a call with a new token, as soon as there is one. Safe for every method: a rejected call did nothing.
    ///
    /// # Errors
    /// The response for the caller (never 401) if there is no new token in time, or the call cannot wait.
    pub(super) async fn call_with_new_token(
        &self,
        call: &UpstreamCall,
        mut rejected: Arc<PlatformToken>,
        body: Option<CallerBody>,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let deadline = Instant::now() + self.options.token_wait;
        loop {
            if self.record_rejection(&rejected) {
                // Coalesced: the source refreshes once, however many callers request it.
                self.dependencies.source.refresh_signal.request();
            }
            let Some(body) = body.as_ref().and_then(CallerBody::replay) else {
                return Err(self.token_unavailable("its body is too large to be sent again"));
            };
            let token = self.refresh_token(&rejected, deadline).await?;
            self.dependencies.metrics.gateway_replays.inc();
            let response = self.send(call, &token, body.into_request_body()).await?;
            if response.status() != StatusCode::UNAUTHORIZED {
                self.record_acceptance(&token);
                return Ok(response);
            }
            rejected = token;
        }
    }

    /// Waits for a token other than the rejected one.
    async fn refresh_token(
        &self,
        rejected: &PlatformToken,
        deadline: Instant,
    ) -> Result<Arc<PlatformToken>, ErrorResponse> {
        let mut watch = self.dependencies.source.watch.clone();
        let newer = |watch: &mut CredentialWatch<PlatformToken>| match watch.current().availability {
            Availability::Available(token) if !token.is_same(rejected) => Some(token),
            _ => None,
        };
        if let Some(token) = newer(&mut watch) {
            return Ok(token);
        }
        let Ok(_permit) = self.token_state.waiting.try_acquire() else {
            return Err(self.token_unavailable("too many calls wait for a new one"));
        };
        let wait = async {
            loop {
                if let Some(token) = newer(&mut watch) {
                    return Some(token);
                }
                tokio::select! {
                    changed = watch.changed() => if changed.is_err() { return None },
                    () = tokio::time::sleep(REFRESH_INTERVAL) => { self.dependencies.source.refresh_signal.request(); }
                }
            }
        };
        match tokio::time::timeout_at(deadline, wait).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) => Err(self.token_unavailable("the gateway is being replaced")),
            Err(_) => {
                let waited = format_duration(self.options.token_wait);
                Err(self.token_unavailable(&format!("no new one came within {waited}")))
            }
        }
    }

    /// Builds the response to a call that has no usable token.
    fn token_unavailable(&self, why: &str) -> ErrorResponse {
        let origin = &self.dependencies.source.origin;
        let detail = format!("the platform rejects the platform token ({origin}), so the call was not made: {why}");
        Box::new(retry_later(StatusCode::SERVICE_UNAVAILABLE, detail, RETRY_AFTER))
    }

    /// Returns since when the platform rejects the current token, if it does.
    pub(super) fn rejected_since(&self) -> Option<ClockReading> {
        let rejection = self.token_state.lock().clone()?;
        self.is_current(&rejection.token).then_some(rejection.since)
    }

    fn problem(&self) -> Option<TokenProblem> {
        if let Some(since) = self.rejected_since() {
            return Some(TokenProblem::Rejected { since });
        }
        self.dependencies.source.watch.with(|reading| match &reading.availability {
            Availability::Available(_) => None,
            Availability::Unavailable { reason, .. } => Some(TokenProblem::Missing { reason: Arc::clone(reason) }),
        })
    }

    /// Reports a rejected or missing token once, and its recovery. Never returns.
    pub(super) async fn report_token(&self) {
        let mut watch = self.dependencies.source.watch.clone();
        self.dependencies.token_health.ready();
        loop {
            while self.problem().is_none() {
                self.token_changed(&mut watch).await;
            }
            let detected = self.dependencies.clock.now();
            if self.resolves_in_grace(&mut watch).await {
                if self.rejected_since().is_none() {
                    self.token_state.clear();
                }
                continue;
            }
            let Some(problem) = self.problem() else { continue };
            let since = self.report_problem(&problem, detected);
            self.wait_until_resolved(&mut watch, &problem).await;
            self.report_recovery(&problem, since);
        }
    }

    /// Returns when the token changes, or its state does.
    async fn token_changed(&self, watch: &mut CredentialWatch<PlatformToken>) {
        tokio::select! {
            () = self.token_state.changed.notified() => {}
            changed = watch.changed() => if changed.is_err() { std::future::pending().await },
        }
        watch.current();
    }

    /// Gives the token's source time. Returns true if the problem went away.
    async fn resolves_in_grace(&self, watch: &mut CredentialWatch<PlatformToken>) -> bool {
        let time = if matches!(self.problem(), Some(TokenProblem::Rejected { .. })) {
            let _ = tokio::time::timeout(REFRESH_TIMEOUT, self.dependencies.source.refresh_signal.wait()).await;
            REJECTION_GRACE
        } else {
            MISSING_GRACE
        };
        let end = Instant::now() + time;
        while self.problem().is_some() {
            if tokio::time::timeout_at(end, self.token_changed(watch)).await.is_err() {
                return self.problem().is_none();
            }
        }
        true
    }

    /// Returns when there is a token that the platform accepts.
    async fn wait_until_resolved(&self, watch: &mut CredentialWatch<PlatformToken>, problem: &TokenProblem) {
        loop {
            while self.problem().is_some() {
                self.token_changed(watch).await;
            }
            if matches!(problem, TokenProblem::Missing { .. }) || !self.token_state.rejected.load(Ordering::Relaxed) {
                return;
            }
            // A new token that no call has used yet: the rejection of the previous one says nothing about it.
            let Ok(token) = self.token() else { continue };
            let call = UpstreamCall::new(
                Caller::ourselves(),
                Method::GET,
                PathAndQuery::from_static(ACCOUNT_DETAILS),
                gateway_headers(),
            );
            match self.send(&call, &token, CallerBody::empty().into_request_body()).await {
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED => {
                    self.record_rejection(&token);
                }
                // Nothing speaks against the token.
                Ok(_) | Err(_) => return self.token_state.clear(),
            }
        }
    }

    /// Reports a problem. Returns when it began.
    fn report_problem(&self, problem: &TokenProblem, detected: ClockReading) -> ClockReading {
        let (source, metrics) = (self.dependencies.source.origin.as_str(), &self.dependencies.metrics);
        match problem {
            TokenProblem::Rejected { since } => {
                let since_text = wall_time(self.dependencies.clock.now(), *since);
                metrics.gateway_token_refused.set(1);
                self.dependencies
                    .token_health
                    .not_ready(format!("the platform rejects the token ({source}) since {since_text}"));
                tracing::warn!(
                    event = "gateway.token.refused",
                    source,
                    since = since_text,
                    "the platform rejects the platform token; calls wait for a new one"
                );
                *since
            }
            TokenProblem::Missing { reason } => {
                metrics.gateway_token_missing.set(1);
                tracing::warn!(
                    event = "gateway.token.missing",
                    source,
                    since = wall_time(self.dependencies.clock.now(), detected),
                    reason = &**reason,
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
        self.dependencies.token_health.ready();
        let lasted = Duration::from_secs(self.dependencies.clock.now().since(since).as_secs());
        tracing::info!(
            event = "gateway.token.recovered",
            source = self.dependencies.source.origin,
            was,
            lasted = %format_duration(lasted),
            "the platform accepts the platform token again"
        );
    }

    /// Resets this gateway's gauges.
    pub(super) fn clear_metrics(&self) {
        self.dependencies.metrics.gateway_token_refused.set(0);
        self.dependencies.metrics.gateway_token_missing.set(0);
    }
}

/// Every kind of token may call it; an expired one is rejected.
const ACCOUNT_DETAILS: &str = "/api/v2/account/details";

/// Formats a reading by the wall clock as it is now (RFC 3339): the clock may have been set since.
pub(super) fn wall_time(now: ClockReading, moment: ClockReading) -> String {
    format_rfc3339(now.wall.checked_sub(now.since(moment)).unwrap_or(SystemTime::UNIX_EPOCH))
}
