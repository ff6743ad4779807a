//! Reports that a failing session works again.

use super::status_reporter::Attempt;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::outage::Outage;

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
