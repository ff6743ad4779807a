//! Logins that come sooner than the backoff: callers wait for a token, or an operator requests a retry.

use super::TokenManager;
use crate::agent::token_lifecycle::current_token::TokenHealth;
use crate::agent::token_lifecycle::schedule::NextStep;
use crate::backoff::random_unit;
use crate::demand::Retried;

impl TokenManager {
    /// Handles waiting callers and requested retries.
    pub(super) fn on_demand(&mut self) {
        self.retry_requests.extend(self.refresh_signal.demand().take_retries());
        if !self.retry_requests.is_empty() {
            self.retry_on_demand();
        }
        self.advance_login();
    }

    /// Moves the planned login forward if there is no token and callers wait for one.
    pub(super) fn advance_login(&mut self) {
        let idle = self.current.is_none() && self.in_flight.is_none() && !self.for_callers;
        if !idle || !self.refresh_signal.demand().is_waited_for() {
            return;
        }
        let sooner = self.retry_budget.next_for_caller(self.clock.now(), random_unit());
        if let (NextStep::LoginAt(at), Some(sooner)) = (self.next, sooner)
            && sooner.boot < at.boot
        {
            self.next = NextStep::LoginAt(sooner);
            self.for_callers = true;
            // Callers that are refused get the new Retry-After.
            self.publish();
        }
    }

    fn retry_on_demand(&mut self) {
        let now = self.clock.now();
        let fails = self.retry_budget.failures() + self.retry_budget.renewal_failures() > 0;
        let good =
            self.current.as_ref().is_some_and(|current| current.health == TokenHealth::Good && !current.outdated);
        if good && !fails {
            return self.answer_retry_requests(Retried::NotNeeded);
        }
        if self.in_flight.is_some() {
            return;
        }
        let at = self.retry_budget.next_on_demand(now);
        let after = now.until(at);
        if !after.is_zero() {
            return self.answer_retry_requests(Retried::Later { after });
        }
        tracing::info!(event = "session.retry", session = self.options.name, "logging in on request");
        (self.next, self.for_callers) = (NextStep::LoginAt(now), true);
    }

    pub(super) fn answer_retry_requests(&mut self, answer: Retried) {
        for retry in self.retry_requests.drain(..) {
            // Send only fails if the requester has gone.
            let _ = retry.send(answer);
        }
    }
}
