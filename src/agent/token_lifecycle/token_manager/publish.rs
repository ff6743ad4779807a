//! Publishes the token, completes requested look-ups, and reports the status.

use std::sync::Arc;
use std::time::Duration;

use super::TokenManager;
use crate::agent::token_lifecycle::status_reporter::SessionSnapshot;
use crate::credential_watch::Availability;
use crate::error_code::ErrorCode;

impl TokenManager {
    /// Publishes the token, or the reason for which there is none.
    pub(super) fn publish(&self) {
        let state = match &self.current {
            Some(current) => Availability::Available(Arc::clone(&current.token)),
            None => {
                Availability::Unavailable { reason: self.unavailable_reason().into(), retry_after: self.retry_after() }
            }
        };
        self.publisher.publish(state, self.last_checked);
    }

    /// Records an error for the status.
    pub(super) fn record_error(&mut self, code: Option<ErrorCode>, message: String) {
        self.last_error = Some(message);
        self.last_error_code = code;
    }

    pub(super) fn unavailable_reason(&self) -> String {
        match &self.last_error {
            Some(error) => format!("{}; {error}", self.unavailability),
            None => self.unavailability.to_owned(),
        }
    }

    pub(super) fn retry_after(&self) -> Duration {
        let wait = self.next.at().map(|at| self.clock.now().until(at)).unwrap_or_default();
        wait.max(Duration::from_secs(1))
    }

    pub(super) fn report_status(&self) {
        let reason = match (&self.current, self.health_problem()) {
            (None, _) => self.unavailable_reason(),
            (Some(_), Some(refusal)) => refusal.to_owned(),
            (Some(_), None) => String::new(),
        };
        let snapshot = SessionSnapshot {
            current: self.current.as_ref(),
            now: self.clock.now(),
            next: self.next,
            last_checked: self.last_checked,
            failures: self.retry_budget.failures().max(self.retry_budget.renewal_failures()),
            last_error: self.last_error.as_deref(),
            last_error_code: self.last_error_code,
            reason: &reason,
        };
        self.reporter.update(&self.login, &snapshot);
    }

    /// Completes a requested look-up, unless a call about the token is in flight. Without a token, or for a wrapping token, it
    /// completes at once and records no check.
    pub(super) fn complete_refresh(&mut self) {
        if self.refresh_requested && self.lookup.is_none() && !self.renewing && !self.awaits_replacement() {
            self.refresh_requested = false;
            self.publish_checked();
            self.refresh_signal.complete();
        }
    }

    /// Records that the server was just asked. The time always advances, even if the clock has not.
    pub(super) fn mark_checked(&mut self) {
        let now = self.clock.now();
        self.last_checked = match self.last_checked {
            Some(last) if last.boot >= now.boot => Some(last + Duration::from_nanos(1)),
            _ => Some(now),
        };
    }

    pub(super) fn publish_checked(&self) {
        if let Some(at) = self.last_checked {
            self.publisher.record_check(at);
        }
    }
}
