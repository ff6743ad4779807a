//! Reports a session's status, metrics and health, and logs that a failing session works again.

use std::time::SystemTime;

use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::outage::Outage;
use keyward_telemetry::status::{ActivityEntry, SessionEntry, Timestamp};

use super::current_token::CurrentToken;
use super::metrics::{AttemptLabels, AttemptMetrics, SessionLabels, SessionMetrics, SessionStepLabels};
use super::schedule::NextStep;
use super::session_calls::{CallInFlight, ProofTimes};
use crate::session_status::SessionStatusHandle;

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
    pub(super) in_flight: Option<CallInFlight>,
    pub(super) proof_times: ProofTimes,
    pub(super) last_checked: Option<ClockReading>,
    pub(super) failures: u32,
    pub(super) last_error: Option<&'a str>,
    pub(super) last_error_code: Option<ErrorCode>,
    /// Reason why there is no usable token, as a caller sees it; empty if there is one.
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
        let time = |at: ClockReading| Timestamp::from(snapshot.now.wall_time_of(at));
        let session = SessionEntry {
            identity: self.identity.clone(),
            server: self.server.clone(),
            role: self.role.clone(),
            serving: current.is_some(),
            policies: current.map(|current| current.token.policies.clone()).unwrap_or_default(),
            renewable: current.is_some_and(|current| current.lifetime.renewable),
            obtained: current.map(|current| time(current.lifetime.obtained)),
            expires: current.and_then(|current| Some(current.lifetime.ends?.wall.into())),
            next_step: snapshot.next.name().to_owned(),
            next_step_at: snapshot.next.at().map(|at| (snapshot.now + snapshot.now.until(at)).wall.into()),
            last_checked: snapshot.last_checked.map(|at| at.wall.into()),
            activity: snapshot.in_flight.map(|call| ActivityEntry {
                kind: call.kind,
                since: Some(time(call.since)),
                deadline: Some(time(call.deadline)),
            }),
            failures: snapshot.failures,
            last_error: snapshot.last_error.map(str::to_owned),
            last_error_code: snapshot.last_error.and(snapshot.last_error_code).map(|code| code.to_string()),
        };
        if snapshot.reason.is_empty() {
            self.health.set_ready();
        } else {
            self.health.set_failed(snapshot.last_error.and(snapshot.last_error_code), snapshot.reason);
        }
        // A session of the same name that replaced this one owns the gauges.
        if self.status_handle.update(session) {
            self.update_gauges(snapshot);
        }
    }

    fn update_gauges(&self, snapshot: &SessionSnapshot<'_>) {
        let metrics = self.metrics.get::<SessionMetrics>();
        let label = self.label();
        let lifetime = snapshot.current.map(|current| current.lifetime);
        let expiry = match lifetime.map(|lifetime| lifetime.ends) {
            None => 0,
            Some(None) => NO_EXPIRY,
            Some(Some(ends)) => unix(ends.wall),
        };
        let state = match (snapshot.current, snapshot.reason.is_empty(), snapshot.failures) {
            (Some(_), true, 0) => 0,
            (Some(_), true, _) => 1,
            _ => 2,
        };
        metrics.state.get_or_create(&label).set(state);
        metrics.token_expiry.get_or_create(&label).set(expiry);
        let obtained = lifetime.map_or(0, |lifetime| unix(lifetime.obtained.wall));
        metrics.token_obtained.get_or_create(&label).set(obtained);
        metrics.failures.get_or_create(&label).set(snapshot.failures.into());
        self.remove_steps(&metrics, snapshot.next.name());
        let step = SessionStepLabels { session: self.session.clone(), step: snapshot.next.name() };
        let next_at = snapshot.next.at().map_or(0, |at| unix(snapshot.now.wall_time_of(at)));
        metrics.next_step.get_or_create(&step).set(next_at);
        let ProofTimes { issued, expires } = snapshot.proof_times;
        if let Some(issued) = issued {
            metrics.identity_issued.get_or_create(&label).set(unix(issued));
        }
        if let Some(expires) = expires {
            metrics.identity_expiry.get_or_create(&label).set(unix(expires));
        }
    }

    /// Removes the gauges of steps other than `current`.
    fn remove_steps(&self, metrics: &SessionMetrics, current: &str) {
        for step in NextStep::NAMES.into_iter().filter(|step| *step != current) {
            metrics.next_step.remove(&SessionStepLabels { session: self.session.clone(), step });
        }
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
    pub(super) fn remove_session(&self) {
        if self.status_handle.remove() {
            let metrics = self.metrics.get::<SessionMetrics>();
            let label = self.label();
            let gauges = [
                &metrics.state,
                &metrics.token_expiry,
                &metrics.token_obtained,
                &metrics.identity_issued,
                &metrics.identity_expiry,
                &metrics.failures,
            ];
            for gauge in gauges {
                gauge.remove(&label);
            }
            self.remove_steps(&metrics, "");
        }
    }

    fn label(&self) -> SessionLabels {
        SessionLabels { session: self.session.clone() }
    }
}

/// An ongoing failure of a session, with the calls that fail.
#[derive(Debug)]
pub(super) struct SessionOutage {
    session: String,
    outage: Outage,
    failing: Option<Attempt>,
}

impl SessionOutage {
    pub(super) fn new(session: String) -> Self {
        Self { session, outage: Outage::default(), failing: None }
    }

    /// Records a failed call.
    pub(super) fn record_failure(&mut self, attempt: Attempt, now: ClockReading) {
        self.outage.record_failure(now);
        self.failing = self.failing.max(Some(attempt));
    }

    /// Records a successful call, which ends a failure of its kind: a look-up does not show whether a login would succeed.
    pub(super) fn record_success(&mut self, attempt: Attempt, now: ClockReading) {
        let Some(failed) = self.failing.take_if(|failing| *failing <= attempt) else { return };
        let Some(lasted_seconds) = self.outage.record_success(now) else { return };
        let was = match failed {
            Attempt::Login => "login",
            Attempt::Renewal => "renewal",
            Attempt::Check => "look-up",
        };
        let session = &self.session;
        tracing::info!(event = "session.recovered", session, was, lasted_seconds, "the session's calls succeed again");
    }
}

/// Reported expiry of a token without one: the end of the year 9999, so that alerts stay quiet.
const NO_EXPIRY: i64 = 253_402_300_799;

fn unix(wall: SystemTime) -> i64 {
    wall.duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or_default()
}
