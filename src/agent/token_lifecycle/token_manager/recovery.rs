//! Reports that a failing session works again.

use super::TokenManager;
use crate::agent::token_lifecycle::status_reporter::Attempt;
use crate::outage::Outage;

/// An ongoing failure of a session, with the calls that fail.
#[derive(Debug, Default)]
pub(super) struct SessionOutage {
    outage: Outage,
    failing: Option<Attempt>,
}

impl TokenManager {
    /// Records a failed call.
    pub(super) fn record_failure_of(&mut self, attempt: Attempt) {
        self.outage.outage.begin(self.clock.now());
        self.outage.failing = self.outage.failing.max(Some(attempt));
    }

    /// Records a successful call, which ends a failure of its kind: a look-up does not tell whether a login would succeed.
    pub(super) fn record_success_of(&mut self, attempt: Attempt) {
        let Some(failed) = self.outage.failing.take_if(|failing| *failing <= attempt) else { return };
        let Some(lasted) = self.outage.outage.end(self.clock.now()) else { return };
        let was = match failed {
            Attempt::Login => "login",
            Attempt::Renewal => "renewal",
            Attempt::Check => "look-up",
        };
        let session = &self.options.name;
        tracing::info!(event = "session.recovered", session, was, lasted, "the session's calls succeed again");
    }
}
