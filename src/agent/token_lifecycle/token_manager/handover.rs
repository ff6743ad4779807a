//! Handover between sessions: the previous session's token is served until a login with the new settings succeeds.

use super::TokenManager;
use crate::agent::token::Token;
use crate::agent::token_lifecycle::SessionShutdown;
use crate::agent::token_lifecycle::schedule::{LastOutcome, NextStep, NotBefore, next_step};
use crate::backoff::random_unit;
use crate::credential_watch::{Availability, CredentialState};

impl TokenManager {
    /// Publishes the token of the previous session, so that the outputs of this one have it at once.
    pub(crate) fn publish_previous(&self, reading: CredentialState<Token>) {
        if matches!(reading.availability, Availability::Available(_)) {
            self.publisher.publish(reading.availability, reading.last_checked);
            self.reporter.health.ready();
        }
    }

    /// Takes over the token of the previous session, which then revokes nothing. Call it before [`TokenManager::run`].
    pub fn adopt(&mut self, before: SessionShutdown) {
        let SessionShutdown { current, replaced, .. } = before;
        self.replaced = replaced;
        let Some(mut current) = current else { return };
        current.outdated = true;
        self.set_current(current);
        self.publish();
    }

    /// Plans the login that replaces an inherited token. Until it succeeds the token is renewed on schedule: a failed login
    /// is no reason to renew.
    pub(super) fn plan_replacement(&mut self, last: LastOutcome) {
        let now = self.clock.now();
        let login = self.retry_budget.earliest_login(now);
        let renewal = self.retry_budget.renewal_not_before();
        let last = match last {
            LastOutcome::RenewalRefused => LastOutcome::RenewalRefused,
            LastOutcome::Succeeded | LastOutcome::Failed if self.retry_budget.renewal_failures() > 0 => {
                LastOutcome::Failed
            }
            LastOutcome::Succeeded | LastOutcome::Failed => LastOutcome::Succeeded,
        };
        let lifetime = self.current.as_ref().map(|current| &current.lifetime);
        self.planned = false;
        self.next = match next_step(lifetime, last, NotBefore { renewal, login }, now, random_unit()) {
            NextStep::RenewAt(at) if at.boot < login.boot => NextStep::RenewAt(at),
            NextStep::RenewAt(_) | NextStep::LoginAt(_) | NextStep::Idle => NextStep::LoginAt(login),
        };
    }
}
