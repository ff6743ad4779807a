//! What a keeper tells: readers of the watch, who has rung, and operators.

use std::sync::Arc;
use std::time::Duration;

use super::TokenKeeper;
use crate::agent::token_lifecycle::status_reporter::Told;
use crate::credential_watch::Availability;

impl TokenKeeper {
    /// Publishes what there is.
    pub(super) fn publish(&self) {
        let state = match &self.held {
            Some(held) => Availability::Available(Arc::clone(&held.token)),
            None => Availability::Unavailable { reason: self.reason().into(), retry_after: self.retry_after() },
        };
        self.publisher.publish(state, self.last_checked);
    }

    pub(super) fn reason(&self) -> String {
        match &self.last_error {
            Some(error) => format!("{}; {error}", self.absence),
            None => self.absence.to_owned(),
        }
    }

    pub(super) fn retry_after(&self) -> Duration {
        let wait = self.next.at().map(|at| self.clock.now().until(at)).unwrap_or_default();
        wait.max(Duration::from_secs(1))
    }

    pub(super) fn tell(&self) {
        let reason = match (&self.held, self.refusal()) {
            (None, _) => self.reason(),
            (Some(_), Some(refusal)) => refusal.to_owned(),
            (Some(_), None) => String::new(),
        };
        let told = Told {
            held: self.held.as_ref(),
            now: self.clock.now(),
            next: self.next,
            last_checked: self.last_checked,
            failures: self.pace.failures().max(self.pace.renewal_failures()),
            last_error: self.last_error.as_deref(),
            reason: &reason,
        };
        self.report.tell(&self.login, &told);
    }

    /// Answers who has rung, unless the server is being asked about the token just now. Where it could not be asked, as
    /// about no token or a wrapped one, the answer comes at once and marks nothing as checked.
    pub(super) fn answer_ring(&mut self) {
        if self.ringing && self.look.is_none() && !self.renewing && !self.awaits_replacement() {
            self.ringing = false;
            self.publish_checked();
            self.refresh_signal.complete();
        }
    }

    /// Notes that the server was asked just now. The mark always moves, though a clock may not have.
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
