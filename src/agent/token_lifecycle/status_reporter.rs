//! Reports a session's status, metrics and health.

use std::time::SystemTime;

use super::current_token::CurrentToken;
use super::metrics::{AttemptLabels, AttemptMetrics, SessionLabels, SessionMetrics};
use super::schedule::NextStep;
use crate::agent::session_status::{SessionStatus, SessionStatusHandle};
use crate::clock::ClockReading;
use crate::error_code::ErrorCode;
use crate::health;
use crate::metrics::Metrics;
use crate::time_format::format_rfc3339;

/// Reports one session's status, metrics and health.
#[derive(Debug)]
pub(super) struct StatusReporter {
    pub(super) session: String,
    pub(super) identity: String,
    pub(super) server: String,
    pub(super) role: String,
    pub(super) status_handle: SessionStatusHandle,
    pub(super) health: health::HealthHandle,
    pub(super) metrics: Metrics,
}

/// State of a session that is reported.
#[derive(Debug)]
pub(super) struct SessionSnapshot<'a> {
    pub(super) current: Option<&'a CurrentToken>,
    pub(super) now: ClockReading,
    pub(super) next: NextStep,
    pub(super) last_checked: Option<ClockReading>,
    pub(super) failures: u32,
    pub(super) last_error: Option<&'a str>,
    pub(super) last_error_code: Option<ErrorCode>,
    /// Reason for which there is no usable token, as a caller sees it; empty if there is one.
    pub(super) reason: &'a str,
}

/// Kinds of upstream calls that are counted. The success of one ends a failure of those before it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Attempt {
    Check,
    Renewal,
    Login,
}

impl StatusReporter {
    /// Updates status, health and gauges.
    pub(super) fn update(&self, snapshot: &SessionSnapshot<'_>) {
        let current = snapshot.current;
        let step = match snapshot.next {
            NextStep::RenewAt(_) => "renew",
            NextStep::LoginAt(_) => "login",
            NextStep::Idle => "wait",
        };
        let session = SessionStatus {
            identity: self.identity.clone(),
            server: self.server.clone(),
            role: self.role.clone(),
            serving: current.is_some(),
            policies: current.map(|current| current.token.policies.clone()).unwrap_or_default(),
            renewable: current.is_some_and(|current| current.lifetime.renewable),
            expires: current.and_then(|current| Some(format_rfc3339(current.lifetime.ends?.wall))),
            next_step: step.to_owned(),
            next_step_at: snapshot.next.at().map(|at| format_rfc3339((snapshot.now + snapshot.now.until(at)).wall)),
            last_checked: snapshot.last_checked.map(|at| format_rfc3339(at.wall)),
            failures: snapshot.failures,
            last_error: snapshot.last_error.map(str::to_owned),
            last_error_code: snapshot.last_error.and(snapshot.last_error_code),
        };
        if snapshot.reason.is_empty() {
            self.health.ready();
        } else {
            self.health.failed(snapshot.last_error.and(snapshot.last_error_code), snapshot.reason);
        }
        // A session of the same name that replaced this one owns the gauges.
        if !self.status_handle.update(session) {
            return;
        }
        let expiry = match current.map(|current| current.lifetime.ends) {
            None => 0,
            Some(None) => NO_EXPIRY,
            Some(Some(ends)) => unix(ends.wall),
        };
        self.metrics.get::<SessionMetrics>().token_expiry.get_or_create(&self.label()).set(expiry);
        self.metrics.get::<SessionMetrics>().failures.get_or_create(&self.label()).set(snapshot.failures.into());
    }

    /// Counts an attempt; `None` is a success.
    pub(super) fn count_attempt(&self, attempt: Attempt, failure: Option<&'static str>) {
        let outcome = if failure.is_none() { "ok" } else { "failed" };
        let label = AttemptLabels { session: self.session.clone(), outcome, reason: failure.unwrap_or_default() };
        let metrics = self.metrics.get::<AttemptMetrics>();
        let family = match attempt {
            Attempt::Login => &metrics.logins,
            Attempt::Renewal => &metrics.renewals,
            Attempt::Check => &metrics.checks,
        };
        family.get_or_create(&label).inc();
    }

    /// Removes the session's status and gauges, unless another session of its name has replaced it.
    pub(super) fn ended(&self) {
        if self.status_handle.remove() {
            self.metrics.get::<SessionMetrics>().token_expiry.remove(&self.label());
            self.metrics.get::<SessionMetrics>().failures.remove(&self.label());
        }
    }

    fn label(&self) -> SessionLabels {
        SessionLabels { session: self.session.clone() }
    }
}

/// Reported expiry of a token without one: the end of the year 9999, so that alerts stay quiet.
const NO_EXPIRY: i64 = 253_402_300_799;

fn unix(wall: SystemTime) -> i64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).ok().and_then(|it| i64::try_from(it.as_secs()).ok()).unwrap_or_default()
}
