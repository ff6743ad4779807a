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
use super::body::Asked;
use super::response::later;
use super::server_probe::own_headers;
use super::upstream_call::{Call, Refused};
use crate::clock::ClockReading;
use crate::credential_watch::{Availability, CredentialWatch};
use crate::gateway::platform_token::PlatformToken;
use crate::http::reverse_proxy::ResponseBody;
use crate::http::server::Caller;
use crate::time_format::format_rfc3339;

/// Refusals of the platform token, and the calls that wait for another.
#[derive(Debug)]
pub(super) struct TokenState {
    refusal: Mutex<Option<Refusal>>,
    /// Mirrors that `refusal` is there: most answers need no more.
    refused: AtomicBool,
    /// Rung when `refusal` comes or goes.
    changed: Notify,
    /// One permit for each call that may wait.
    waiting: Semaphore,
}

/// The token that the platform has refused last, and when it began to refuse.
#[derive(Debug, Clone)]
struct Refusal {
    token: Arc<PlatformToken>,
    since: ClockReading,
}

/// Why calls cannot be made with a token.
#[derive(Debug, Clone)]
enum Problem {
    /// The platform refuses the token that is there.
    Refused { since: ClockReading },
    /// There is no token.
    Missing { reason: Arc<str> },
}

/// How long a caller is told to wait before it asks again.
const AGAIN: Duration = Duration::from_secs(5);

/// How often the token's maker is asked to look while calls wait. The bucket of its rings bounds that further.
const RING_EVERY: Duration = Duration::from_secs(10);

/// How long the token's maker may take to answer a ring before the refusal is reported.
const MADE_WITHIN: Duration = Duration::from_secs(15);

/// A refusal that passes within this time after that is not reported: it is part of a rotation.
const PASSES_WITHIN: Duration = Duration::from_secs(1);

/// The same for a missing token: a start takes so long where the token comes from a server.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);

impl TokenState {
    /// Lets half of the connections to the platform, one at least, wait for another token.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            refusal: Mutex::default(),
            refused: AtomicBool::new(false),
            changed: Notify::new(),
            waiting: Semaphore::new((connections / 2).max(1)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Refusal>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        if self.lock().take().is_some() {
            self.refused.store(false, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }
}

impl Inner {
    /// Takes note that the platform has refused a token. Says whether that is the one that there is: a token that was replaced
    /// meanwhile is not noted.
    pub(super) fn record_refusal(&self, token: &Arc<PlatformToken>) -> bool {
        if !self.is_current(token) {
            return false;
        }
        let state = &self.token_state;
        let mut refusal = state.lock();
        let since = refusal.as_ref().map_or_else(|| self.parts.clock.now(), |refusal| refusal.since);
        *refusal = Some(Refusal { token: Arc::clone(token), since });
        state.refused.store(true, Ordering::Relaxed);
        drop(refusal);
        state.changed.notify_one();
        true
    }

    /// Takes note that the platform has answered a call with a token otherwise than by refusing it.
    pub(super) fn record_acceptance(&self, token: &PlatformToken) {
        if self.token_state.refused.load(Ordering::Relaxed) && self.is_current(token) {
            self.token_state.clear();
        }
    }

    fn is_current(&self, token: &PlatformToken) -> bool {
        self.token().is_ok_and(|current| current.same(token))
    }

    /// Makes a call whose token was refused once more with another, as soon as there is one. A refusal means that nothing was
    /// done, whatever the method.
    ///
    /// # Errors
    /// There is no other token in time, or the call cannot wait for one: what the caller is told, which is never 401.
    pub(super) async fn exchange_again(
        &self,
        call: &Call,
        mut refused: Arc<PlatformToken>,
        body: Option<Asked>,
    ) -> Result<Response<ResponseBody>, Refused> {
        let deadline = Instant::now() + self.options.token_wait;
        loop {
            if self.record_refusal(&refused) {
                // Its maker looks once, however many callers ring.
                self.parts.source.refresh_signal.request();
            }
            let Some(again) = body.as_ref().and_then(Asked::again) else {
                return Err(self.without_token("its body is too large to be sent again with another one"));
            };
            let token = self.another_token(&refused, deadline).await?;
            self.parts.metrics.gateway_replays.inc();
            let answer = self.send(call, &token, again.send()).await?;
            if answer.status() != StatusCode::UNAUTHORIZED {
                self.record_acceptance(&token);
                return Ok(answer);
            }
            refused = token;
        }
    }

    /// Waits for another token than the one that was refused.
    async fn another_token(&self, refused: &PlatformToken, deadline: Instant) -> Result<Arc<PlatformToken>, Refused> {
        let mut watch = self.parts.source.watch.clone();
        let other = |watch: &mut CredentialWatch<PlatformToken>| match watch.current().availability {
            Availability::Available(token) if !token.same(refused) => Some(token),
            _ => None,
        };
        if let Some(token) = other(&mut watch) {
            return Ok(token);
        }
        let Ok(_permit) = self.token_state.waiting.try_acquire() else {
            return Err(self.without_token("as many calls as may wait for another one wait already"));
        };
        let wait = async {
            loop {
                if let Some(token) = other(&mut watch) {
                    return Some(token);
                }
                tokio::select! {
                    changed = watch.changed() => if changed.is_err() { return None },
                    () = tokio::time::sleep(RING_EVERY) => { self.parts.source.refresh_signal.request(); }
                }
            }
        };
        match tokio::time::timeout_at(deadline, wait).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) => Err(self.without_token("the gateway is being replaced")),
            Err(_) => {
                let waited = format_duration(self.options.token_wait);
                Err(self.without_token(&format!("there was no other one within {waited}")))
            }
        }
    }

    /// The answer to a call that cannot be made with the token that there is.
    fn without_token(&self, why: &str) -> Refused {
        let origin = &self.parts.source.origin;
        let detail = format!("the platform refuses the platform token ({origin}), and the call was not made: {why}");
        Box::new(later(StatusCode::SERVICE_UNAVAILABLE, detail, AGAIN))
    }

    /// Since when the platform refuses the token that is there, if it does.
    pub(super) fn refused_since(&self) -> Option<ClockReading> {
        let refusal = self.token_state.lock().clone()?;
        self.is_current(&refusal.token).then_some(refusal.since)
    }

    fn problem(&self) -> Option<Problem> {
        if let Some(since) = self.refused_since() {
            return Some(Problem::Refused { since });
        }
        self.parts.source.watch.with(|reading| match &reading.availability {
            Availability::Available(_) => None,
            Availability::Unavailable { reason, .. } => Some(Problem::Missing { reason: Arc::clone(reason) }),
        })
    }

    /// Reports a token that is refused or missing, once, and that there is a good one again. Never returns.
    pub(super) async fn report_token(&self) {
        let mut watch = self.parts.source.watch.clone();
        self.parts.token_health.ready();
        loop {
            while self.problem().is_none() {
                self.token_changes(&mut watch).await;
            }
            let noticed = self.parts.clock.now();
            if self.passes(&mut watch).await {
                if self.refused_since().is_none() {
                    self.token_state.clear();
                }
                continue;
            }
            let Some(problem) = self.problem() else { continue };
            let since = self.report_problem(&problem, noticed);
            self.is_solved(&mut watch, &problem).await;
            self.report_recovery(&problem, since);
        }
    }

    /// Returns when the token is another, or is refused or taken otherwise than before.
    async fn token_changes(&self, watch: &mut CredentialWatch<PlatformToken>) {
        tokio::select! {
            () = self.token_state.changed.notified() => {}
            changed = watch.changed() => if changed.is_err() { std::future::pending().await },
        }
        watch.current();
    }

    /// Gives the token's maker time. Says whether there is no problem any more.
    async fn passes(&self, watch: &mut CredentialWatch<PlatformToken>) -> bool {
        let time = if matches!(self.problem(), Some(Problem::Refused { .. })) {
            let _ = tokio::time::timeout(MADE_WITHIN, self.parts.source.refresh_signal.wait()).await;
            PASSES_WITHIN
        } else {
            ARRIVES_WITHIN
        };
        let end = Instant::now() + time;
        while self.problem().is_some() {
            if tokio::time::timeout_at(end, self.token_changes(watch)).await.is_err() {
                return self.problem().is_none();
            }
        }
        true
    }

    /// Returns when there is a token that the platform takes.
    async fn is_solved(&self, watch: &mut CredentialWatch<PlatformToken>, problem: &Problem) {
        loop {
            while self.problem().is_some() {
                self.token_changes(watch).await;
            }
            if matches!(problem, Problem::Missing { .. }) || !self.token_state.refused.load(Ordering::Relaxed) {
                return;
            }
            // Another token, with which nobody has called yet: the refusal of the one before says nothing of it.
            let Ok(token) = self.token() else { continue };
            let call = Call::new(Caller::ourselves(), Method::GET, PathAndQuery::from_static(WHO_AM_I), own_headers());
            match self.send(&call, &token, Asked::empty().send()).await {
                Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
                    self.record_refusal(&token);
                }
                // Nothing is known against it.
                Ok(_) | Err(_) => return self.token_state.clear(),
            }
        }
    }

    /// Reports a problem. Gives when it began.
    fn report_problem(&self, problem: &Problem, noticed: ClockReading) -> ClockReading {
        let (source, metrics) = (self.parts.source.origin.as_str(), &self.parts.metrics);
        match problem {
            Problem::Refused { since } => {
                let began = wall(self.parts.clock.now(), *since);
                metrics.gateway_token_refused.set(1);
                self.parts.token_health.not_ready(format!("the platform refuses the token ({source}) since {began}"));
                tracing::warn!(
                    event = "gateway.token.refused",
                    source,
                    since = began,
                    "the platform refuses the platform token; calls wait for another one"
                );
                *since
            }
            Problem::Missing { reason } => {
                metrics.gateway_token_missing.set(1);
                tracing::warn!(
                    event = "gateway.token.missing",
                    source,
                    since = wall(self.parts.clock.now(), noticed),
                    reason = &**reason,
                    "there is no platform token; callers are refused"
                );
                noticed
            }
        }
    }

    fn report_recovery(&self, problem: &Problem, since: ClockReading) {
        let was = match problem {
            Problem::Refused { .. } => "refused",
            Problem::Missing { .. } => "missing",
        };
        self.forget_reports();
        self.parts.token_health.ready();
        let lasted = Duration::from_secs(self.parts.clock.now().since(since).as_secs());
        tracing::info!(
            event = "gateway.token.recovered",
            source = self.parts.source.origin,
            was,
            lasted = %format_duration(lasted),
            "there is a platform token that the platform takes"
        );
    }

    /// Takes the reports of this gateway back from the metrics.
    pub(super) fn forget_reports(&self) {
        self.parts.metrics.gateway_token_refused.set(0);
        self.parts.metrics.gateway_token_missing.set(0);
    }
}

/// Tells whose token it is. Every kind of token may ask; one that ended is refused.
const WHO_AM_I: &str = "/api/v2/account/details";

/// A moment by the wall clock as it is now, in RFC 3339: it may have been set since.
pub(super) fn wall(now: ClockReading, moment: ClockReading) -> String {
    format_rfc3339(now.wall.checked_sub(now.since(moment)).unwrap_or(SystemTime::UNIX_EPOCH))
}
