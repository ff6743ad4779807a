//! Handles a token that the server refuses without a reason: it is dead, or used from an address that it is not bound to.

use std::time::Duration;

use super::TokenManager;
use crate::agent::token_lifecycle::current_token::TokenHealth;
use crate::agent::token_lifecycle::schedule::{LastOutcome, NextStep};
use crate::agent::token_lifecycle::status_reporter::Attempt;
use crate::error_code::ErrorCode;

impl TokenManager {
    /// Plans a login that replaces the token, unless a recent login of this kind changed nothing.
    pub(super) fn on_token_suspect(&mut self, message: &str) {
        let now = self.clock.now();
        let session = &self.options.name;
        let Some(current) = self.current.as_mut().filter(|current| current.health != TokenHealth::Suspect) else {
            tracing::debug!(event = "token.suspect", session, "{message}");
            return;
        };
        (self.last_error, self.last_error_code) = (Some(message.to_owned()), Some(CODE));
        if !self.replacement_limiter.allow(now) {
            if current.health != TokenHealth::Refused {
                current.health = TokenHealth::Refused;
                tracing::warn!(
                    event = "token.refused",
                    session,
                    code = CODE.as_str(),
                    "the server refuses each token of this session: the role may bind them to other addresses; {message}"
                );
                self.record_failure_of(Attempt::Check);
            }
            return;
        }
        current.health = TokenHealth::Suspect;
        tracing::warn!(
            event = "token.suspect",
            session,
            code = CODE.as_str(),
            "the server may no longer know the token: a login will replace it; {message}"
        );
        self.record_failure_of(Attempt::Check);
        if self.in_flight.is_none() {
            self.plan_next_step(LastOutcome::Succeeded);
        }
    }

    /// Returns true while a login that replaces a suspect token is in flight or about to start. Requested look-ups wait for it.
    pub(super) fn awaits_replacement(&self) -> bool {
        let about_to = match self.next {
            NextStep::LoginAt(at) => self.clock.now().until(at) <= SOON,
            NextStep::RenewAt(_) | NextStep::Idle => false,
        };
        self.current.as_ref().is_some_and(|current| current.health == TokenHealth::Suspect)
            && !self.renewing
            && (self.in_flight.is_some() || about_to)
    }

    /// Returns the reason for which the token is unusable; `None` if it is usable.
    pub(super) fn health_problem(&self) -> Option<&'static str> {
        match self.current.as_ref()?.health {
            TokenHealth::Good => None,
            // The replacing login takes a moment, which is not worth reporting.
            TokenHealth::Suspect if self.retry_budget.failures() == 0 => None,
            TokenHealth::Suspect => Some("the server may no longer know the token, and nothing could replace it yet"),
            TokenHealth::Refused => Some("the server refuses the token"),
        }
    }
}

/// Code of a token that the server does not accept any more.
const CODE: ErrorCode = ErrorCode::TokenDead;
const SOON: Duration = Duration::from_secs(5);
