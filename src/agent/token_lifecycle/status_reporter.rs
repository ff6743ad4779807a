//! What a session tells the world: status, metrics, health.

use std::time::{Duration, SystemTime};

use super::current_token::Held;
use super::schedule::Step;
use crate::agent::login::Login;
use crate::clock::ClockReading;
use crate::health;
use crate::metrics;
use crate::metrics::Metrics;
use crate::status;
use crate::status::StatusHandle;
use crate::time_format::format_rfc3339;

/// Tells how one session is.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) session: String,
    pub(super) identity: String,
    pub(super) status_handle: StatusHandle,
    pub(super) health: health::HealthHandle,
    pub(super) metrics: Metrics,
}

/// What is told.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) held: Option<&'a Held>,
    pub(super) now: ClockReading,
    pub(super) next: Step,
    pub(super) last_checked: Option<ClockReading>,
    pub(super) failures: u32,
    pub(super) last_error: Option<&'a str>,
    /// Why there is no token, or none that the server takes, in words for a caller; empty where all is well.
    pub(super) reason: &'a str,
}

/// The kinds of upstream attempts that are counted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attempt {
    Login,
    Renewal,
    Check,
}

impl Report {
    /// Tells how the session is now.
    pub(super) fn tell(&self, login: &Login, told: &Told<'_>) {
        let held = told.held;
        let step = match told.next {
            Step::RenewAt(_) => "renew",
            Step::LoginAt(_) => "login",
            Step::Rest => "wait",
        };
        let session = status::SessionStatus {
            identity: self.identity.clone(),
            server: login.upstream().address().to_owned(),
            role: login.options().role.clone(),
            serving: held.is_some(),
            policies: held.map(|held| held.token.policies.clone()).unwrap_or_default(),
            renewable: held.is_some_and(|held| held.life.renewable),
            expires: held.and_then(|held| Some(format_rfc3339(held.life.ends?.wall))),
            next_step: step.to_owned(),
            next_step_at: told.next.at().map(|at| format_rfc3339((told.now + told.now.until(at)).wall)),
            last_checked: told.last_checked.map(|at| format_rfc3339(at.wall)),
            failures: told.failures,
            last_error: told.last_error.map(str::to_owned),
        };
        if told.reason.is_empty() {
            self.health.ready();
        } else {
            self.health.not_ready(told.reason);
        }
        // The gauges are the new session's where one has taken this one's place.
        if !self.status_handle.update(session) {
            return;
        }
        let expiry = match held.map(|held| held.life.ends) {
            None => 0,
            Some(None) => NEVER,
            Some(Some(ends)) => unix(ends.wall),
        };
        self.metrics.token_expiry.get_or_create(&self.label()).set(expiry);
        self.metrics.session_failures.get_or_create(&self.label()).set(told.failures.into());
    }

    /// Counts an attempt; no reason means that it went well.
    pub(super) fn count(&self, attempt: Attempt, failure: Option<&'static str>) {
        let outcome = if failure.is_none() { "ok" } else { "failed" };
        let label =
            metrics::AttemptLabels { session: self.session.clone(), outcome, reason: failure.unwrap_or_default() };
        let family = match attempt {
            Attempt::Login => &self.metrics.logins,
            Attempt::Renewal => &self.metrics.renewals,
            Attempt::Check => &self.metrics.checks,
        };
        family.get_or_create(&label).inc();
    }

    /// The session has ended. What another of its name tells stays.
    pub(super) fn ended(&self) {
        if self.status_handle.remove() {
            self.metrics.token_expiry.remove(&self.label());
            self.metrics.session_failures.remove(&self.label());
        }
    }

    fn label(&self) -> metrics::SessionLabels {
        metrics::SessionLabels { session: self.session.clone() }
    }
}

/// The expiry that is told for a token that never ends: the end of the year 9999, so that alerts stay quiet.
const NEVER: i64 = 253_402_300_799;

/// A span in words for logs: whole seconds.
pub(super) fn words(span: Duration) -> String {
    humantime::format_duration(Duration::from_secs(span.as_secs())).to_string()
}

fn unix(wall: SystemTime) -> i64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).ok().and_then(|it| i64::try_from(it.as_secs()).ok()).unwrap_or_default()
}
