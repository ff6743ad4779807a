//! State of the platform token: where the platform refuses it, callers wait for another one, and the refusal is reported once.

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

/// Refusals of the platform token, and the calls that wait for another.
#[derive(Debug)]
pub(super) struct TokenState {
    rejection: Mutex<Option<TokenRejection>>,
    /// Mirrors that `rejection` is there: most answers need no more.
    rejected: AtomicBool,
    /// Rung when `rejection` comes or goes.
    changed: Notify,
    /// One permit for each call that may wait.
    waiting: Semaphore,
}

/// The token that the platform has refused last, and when it began to refuse.
#[derive(Debug, Clone)]
struct TokenRejection {
    token: Arc<PlatformToken>,
    since: ClockReading,
}

/// Why calls cannot be made with a token.
#[derive(Debug, Clone)]
enum TokenProblem {
    /// The platform refuses the token that is there.
    Rejected { since: ClockReading },
    /// There is no token.
    Missing { reason: Arc<str> },
}

/// How long a caller is told to wait before it asks again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How often the token's maker is asked to look while calls wait. The bucket of its rings bounds that further.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// How long the token's maker may take to answer a ring before the refusal is reported.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(15);

/// A refusal that passes within this time after that is not reported: it is part of a rotation.
const REJECTION_GRACE: Duration = Duration::from_secs(1);

/// The same for a missing token: a start takes so long where the token comes from a server.
const MISSING_GRACE: Duration = Duration::from_secs(5);

impl TokenState {
    /// Lets half of the connections to the platform, one at least, wait for another token.
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
    /// Takes note that the platform has refused a token. Says whether that is the one that there is: a token that was replaced
    /// meanwhile is not noted.
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

    /// Takes note that the platform has answered a call with a token otherwise than by refusing it.
    pub(super) fn record_acceptance(&self, token: &PlatformToken) {
        if self.token_state.rejected.load(Ordering::Relaxed) && self.is_current(token) {
            self.token_state.clear();
        }
    }

    fn is_current(&self, token: &PlatformToken) -> bool {
        self.token().is_ok_and(|current| current.is_same(token))
    }

    /// Makes a call whose token was refused once more with another, as soon as there is one. A refusal means that nothing was
    /// done, whatever the method.
    ///
    /// # Errors
    /// There is no other token in time, or the call cannot wait for one: what the caller is told, which is never 401.
    pub(super) async fn call_with_new_token(
        &self,
        call: &UpstreamCall,
        mut rejected: Arc<PlatformToken>,
        body: Option<CallerBody>,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let deadline = Instant::now() + self.options.token_wait;
        loop {
            if self.record_rejection(&rejected) {
                // Its maker looks once, however many callers ring.
                self.dependencies.source.refresh_signal.request();
            }
            let Some(body) = body.as_ref().and_then(CallerBody::replay) else {
                return Err(self.token_unavailable("its body is too large to be sent again with another one"));
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

    /// Waits for another token than the one that was refused.
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
            return Err(self.token_unavailable("as many calls as may wait for another one wait already"));
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
                Err(self.token_unavailable(&format!("there was no other one within {waited}")))
            }
        }
    }

    /// The answer to a call that cannot be made with the token that there is.
    fn token_unavailable(&self, why: &str) -> ErrorResponse {
        let origin = &self.dependencies.source.origin;
        let detail = format!("the platform refuses the platform token ({origin}), and the call was not made: {why}");
        Box::new(retry_later(StatusCode::SERVICE_UNAVAILABLE, detail, RETRY_AFTER))
    }

    /// Since when the platform refuses the token that is there, if it does.
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

    /// Reports a token that is refused or missing, once, and that there is a good one again. Never returns.
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

    /// Returns when the token is another, or is refused or taken otherwise than before.
    async fn token_changed(&self, watch: &mut CredentialWatch<PlatformToken>) {
        tokio::select! {
            () = self.token_state.changed.notified() => {}
            changed = watch.changed() => if changed.is_err() { std::future::pending().await },
        }
        watch.current();
    }

    /// Gives the token's maker time. Says whether there is no problem any more.
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

    /// Returns when there is a token that the platform takes.
    async fn wait_until_resolved(&self, watch: &mut CredentialWatch<PlatformToken>, problem: &TokenProblem) {
        loop {
            while self.problem().is_some() {
                self.token_changed(watch).await;
            }
            if matches!(problem, TokenProblem::Missing { .. }) || !self.token_state.rejected.load(Ordering::Relaxed) {
                return;
            }
            // Another token, with which nobody has called yet: the refusal of the one before says nothing of it.
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
                // Nothing is known against it.
                Ok(_) | Err(_) => return self.token_state.clear(),
            }
        }
    }

    /// Reports a problem. Gives when it began.
    fn report_problem(&self, problem: &TokenProblem, detected: ClockReading) -> ClockReading {
        let (source, metrics) = (self.dependencies.source.origin.as_str(), &self.dependencies.metrics);
        match problem {
            TokenProblem::Rejected { since } => {
                let since_text = wall_time(self.dependencies.clock.now(), *since);
                metrics.gateway_token_refused.set(1);
                self.dependencies
                    .token_health
                    .not_ready(format!("the platform refuses the token ({source}) since {since_text}"));
                tracing::warn!(
                    event = "gateway.token.refused",
                    source,
                    since = since_text,
                    "the platform refuses the platform token; calls wait for another one"
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
                    "there is no platform token; callers are refused"
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
            "there is a platform token that the platform takes"
        );
    }

    /// Takes the reports of this gateway back from the metrics.
    pub(super) fn clear_metrics(&self) {
        self.dependencies.metrics.gateway_token_refused.set(0);
        self.dependencies.metrics.gateway_token_missing.set(0);
    }
}

/// Tells whose token it is. Every kind of token may ask; one that ended is refused.
const ACCOUNT_DETAILS: &str = "/api/v2/account/details";

/// A moment by the wall clock as it is now, in RFC 3339: it may have been set since.
pub(super) fn wall_time(now: ClockReading, moment: ClockReading) -> String {
    format_rfc3339(now.wall.checked_sub(now.since(moment)).unwrap_or(SystemTime::UNIX_EPOCH))
}
