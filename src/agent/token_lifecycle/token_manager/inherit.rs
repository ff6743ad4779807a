//! A session that takes another's place: the token of the one before is served until a login by the new settings succeeds.

use super::TokenKeeper;
use crate::agent::token::Token;
use crate::agent::token_lifecycle::Farewell;
use crate::agent::token_lifecycle::schedule::{Earliest, Last, Step, next_step};
use crate::backoff::random_unit;
use crate::credential_watch::{Availability, CredentialState};

impl TokenKeeper {
    /// Publishes what the session before this one serves, so that outputs that are joined to this one have it at once.
    pub fn serve_meanwhile(&self, reading: CredentialState<Token>) {
        if matches!(reading.availability, Availability::Available(_)) {
            self.publisher.publish(reading.availability, reading.last_checked);
            self.report.health.ready();
        }
    }

    /// Takes the token of the session before this one over, which revokes nothing then. To be called before it runs.
    pub fn inherit(&mut self, before: Farewell) {
        let Farewell { held, replaced, .. } = before;
        self.replaced = replaced;
        let Some(mut held) = held else { return };
        held.outdated = true;
        self.take(held);
        self.publish();
    }

    /// Plans the login that replaces an inherited token. Until it succeeds the token is renewed in its time: a login that
    /// fails is no reason to renew.
    pub(super) fn plan_replacement(&mut self, last: Last) {
        let now = self.clock.now();
        let login = self.pace.earliest_login(now);
        let renewal = self.pace.renewal_not_before();
        let last = match last {
            Last::NotRenewed => Last::NotRenewed,
            Last::Well | Last::Failed if self.pace.renewal_failures() > 0 => Last::Failed,
            Last::Well | Last::Failed => Last::Well,
        };
        let life = self.held.as_ref().map(|held| &held.life);
        self.planned = false;
        self.next = match next_step(life, last, Earliest { renewal, login }, now, random_unit()) {
            Step::RenewAt(at) if at.boot < login.boot => Step::RenewAt(at),
            Step::RenewAt(_) | Step::LoginAt(_) | Step::Rest => Step::LoginAt(login),
        };
    }
}
