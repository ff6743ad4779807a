//! State of the platform token: accepted, rejected or missing. Calls whose token was rejected wait for a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use keyward_credentials::credential_watch::{Availability, CredentialWatch};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::time_format::{format_duration, format_rfc3339};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::local_response::retry_later;
use super::upstream_call::ErrorResponse;
use crate::platform_token::{PlatformToken, PlatformTokenSource};

/// The platform token, its current rejection, and the calls that wait for a new one.
#[derive(Debug)]
pub(super) struct TokenState {
    pub(super) source: PlatformTokenSource,
    clock: Clock,
    /// Longest wait of a call for a new token.
    pub(super) max_wait: Duration,
    rejection: Mutex<Option<TokenRejection>>,
    /// True while `rejection` is set: saves most calls the lock.
    rejected: AtomicBool,
    /// Notified when `rejection` is set or cleared.
    rejection_changed: Notify,
    /// One permit per call that may wait.
    waiting: Semaphore,
    /// Last check of a token after a 401; locked during a check.
    pub(super) last_check: tokio::sync::Mutex<Option<TokenCheck>>,
}

/// Check of a token by a call that every valid token may make.
#[derive(Debug)]
pub(super) struct TokenCheck {
    pub(super) token: Arc<PlatformToken>,
    pub(super) started: Instant,
    /// `None` if the response did not tell, or there was none.
    pub(super) accepted: Option<bool>,
}

/// Token that the platform rejected last, and since when.
#[derive(Debug, Clone)]
struct TokenRejection {
    token: Arc<PlatformToken>,
    /// First rejection of this token, or of those before it if none was accepted in between.
    since: ClockReading,
    /// First rejection of this token.
    first: Instant,
}

/// Reason why calls cannot be made.
#[derive(Debug, Clone)]
pub(super) enum TokenProblem {
    /// The platform rejects the current token.
    Rejected { since: ClockReading },
    /// There is no token.
    Missing { reason: Arc<str> },
}

/// `Retry-After` of a caller.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Interval of refresh requests while calls wait; the signal's own rate limit bounds them further.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

impl TokenState {
    /// Lets half of the connections, at least one, wait for a new token.
    pub(super) fn new(source: PlatformTokenSource, connections: usize, max_wait: Duration, clock: Clock) -> Self {
        Self {
            source,
            clock,
            max_wait,
            rejection: Mutex::default(),
            rejected: AtomicBool::new(false),
            rejection_changed: Notify::new(),
            waiting: Semaphore::new((connections / 2).max(1)),
            last_check: tokio::sync::Mutex::default(),
        }
    }

    /// Forgets the rejection.
    pub(super) fn clear(&self) {
        if self.rejection.lock().take().is_some() {
            self.rejected.store(false, Ordering::Relaxed);
            self.rejection_changed.notify_one();
        }
    }

    /// Returns the current platform token.
    pub(super) fn current(&self) -> Result<Arc<PlatformToken>, ErrorResponse> {
        self.source.watch.read(|reading| match &reading.availability {
            Availability::Available(token) => Ok(Arc::clone(token)),
            Availability::Unavailable { reason, retry_after } => {
                Err(Box::new(retry_later(StatusCode::SERVICE_UNAVAILABLE, reason.to_string(), *retry_after)))
            }
        })
    }

    /// Records that the platform has rejected a token. Returns false, and records nothing, if the token was replaced
    /// meanwhile.
    pub(super) fn record_rejection(&self, token: &Arc<PlatformToken>) -> bool {
        if !self.is_current(token) {
            return false;
        }
        let mut rejection = self.rejection.lock();
        let since = rejection.as_ref().map_or_else(|| self.clock.now(), |rejection| rejection.since);
        let known = rejection.as_ref().filter(|rejection| rejection.token.is_same(token));
        let first = known.map_or_else(Instant::now, |rejection| rejection.first);
        *rejection = Some(TokenRejection { token: Arc::clone(token), since, first });
        self.rejected.store(true, Ordering::Relaxed);
        drop(rejection);
        self.rejection_changed.notify_one();
        true
    }

    /// Records that the platform has accepted a token.
    pub(super) fn record_acceptance(&self, token: &PlatformToken) {
        if self.rejected.load(Ordering::Relaxed) && self.is_current(token) {
            self.clear();
        }
    }

    /// Returns true unless the current token is known to be rejected.
    pub(super) fn is_unrejected(&self) -> bool {
        !self.rejected.load(Ordering::Relaxed)
    }

    /// Returns until when calls wait for a successor of a rejected token. It counts from the token's first rejection: a
    /// client that makes one call after another would otherwise wait that long for each.
    pub(super) fn wait_end(&self, rejected: &PlatformToken) -> Instant {
        let rejection = self.rejection.lock();
        let known = rejection.as_ref().filter(|rejection| rejection.token.is_same(rejected));
        known.map_or_else(Instant::now, |rejection| rejection.first) + self.max_wait
    }

    /// Builds the response to a call with 401, where nothing shows if that is about the call or about the token.
    pub(super) fn unchecked(&self) -> ErrorResponse {
        let origin = &self.source.origin;
        let detail = format!(
            "the platform answered 401, and a check of the platform token ({origin}) got no usable response; make the call again"
        );
        Box::new(retry_later(StatusCode::SERVICE_UNAVAILABLE, detail, RETRY_AFTER))
    }

    pub(super) fn is_current(&self, token: &PlatformToken) -> bool {
        self.current().is_ok_and(|current| current.is_same(token))
    }

    /// Waits for a token other than the rejected one, until `deadline`.
    pub(super) async fn refresh(
        &self,
        rejected: &PlatformToken,
        deadline: Instant,
    ) -> Result<Arc<PlatformToken>, ErrorResponse> {
        let mut watch = self.source.watch.clone();
        let newer = |watch: &mut CredentialWatch<PlatformToken>| match watch.current().availability {
            Availability::Available(token) if !token.is_same(rejected) => Some(token),
            _ => None,
        };
        if let Some(token) = newer(&mut watch) {
            return Ok(token);
        }
        // Each call that waits keeps its body in memory.
        let Ok(_permit) = self.waiting.try_acquire() else {
            return Err(self.unavailable("too many calls wait for a new one"));
        };
        let wait = async {
            loop {
                if let Some(token) = newer(&mut watch) {
                    return Some(token);
                }
                tokio::select! {
                    changed = watch.changed() => if changed.is_err() { return None },
                    () = tokio::time::sleep(REFRESH_INTERVAL) => { self.source.refresh_signal.request(); }
                }
            }
        };
        match tokio::time::timeout_at(deadline, wait).await {
            Ok(Some(token)) => Ok(token),
            Ok(None) => Err(self.unavailable("the gateway is being replaced")),
            Err(_) => {
                let waited = format_duration(self.max_wait);
                Err(self.unavailable(&format!("no new one came within {waited} of its refusal")))
            }
        }
    }

    /// Builds the response to a call that has no usable token.
    pub(super) fn unavailable(&self, why: &str) -> ErrorResponse {
        let origin = &self.source.origin;
        let detail = format!("the platform rejects the platform token ({origin}), so the call was not made: {why}");
        Box::new(retry_later(StatusCode::SERVICE_UNAVAILABLE, detail, RETRY_AFTER))
    }

    /// Returns since when the platform rejects the current token, if it does.
    pub(super) fn rejected_since(&self) -> Option<ClockReading> {
        let rejection = self.rejection.lock().clone()?;
        self.is_current(&rejection.token).then_some(rejection.since)
    }

    /// Returns the reason why calls cannot be made now.
    pub(super) fn problem(&self) -> Option<TokenProblem> {
        if let Some(since) = self.rejected_since() {
            return Some(TokenProblem::Rejected { since });
        }
        self.source.watch.read(|reading| match &reading.availability {
            Availability::Available(_) => None,
            Availability::Unavailable { reason, .. } => Some(TokenProblem::Missing { reason: Arc::clone(reason) }),
        })
    }

    /// Returns when the token changes, or its state does.
    pub(super) async fn changed(&self, watch: &mut CredentialWatch<PlatformToken>) {
        tokio::select! {
            () = self.rejection_changed.notified() => {}
            changed = watch.changed() => if changed.is_err() { std::future::pending().await },
        }
        watch.current();
    }
}

/// Formats a reading by the wall clock as it is now (RFC 3339): the clock may have been set since.
pub(super) fn wall_time(now: ClockReading, moment: ClockReading) -> String {
    format_rfc3339(now.wall_time_of(moment))
}
