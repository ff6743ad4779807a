//! Restores the state of the previous process at start.

use std::sync::Arc;
use std::time::Duration;

use super::TokenManager;
use crate::agent::retry_budget::RetryBudget;
use crate::agent::token_lifecycle::current_token::CurrentToken;
use crate::agent::token_lifecycle::inflight;
use crate::agent::token_lifecycle::schedule::NextStep;
use crate::agent::token_lifecycle::session_state::LoadedState;
use crate::agent::token_lifecycle::status_reporter::format_wait;
use crate::backoff::random_unit;
use crate::error_chain::format_chain;
use crate::error_code::ErrorCode;
use crate::time_format::format_rfc3339;

impl TokenManager {
    /// Loads the state file; plans the first login if it holds no usable token.
    pub(super) async fn restore(&mut self) {
        let LoadedState { retry_budget, current, last_error, changed, refused } = self.load_state().await;
        let now = self.clock.now();
        if let Some(record) = retry_budget {
            self.retry_budget = RetryBudget::restore(&record, now);
        }
        if changed {
            self.retry_budget.reset_failures(now);
        } else if self.retry_budget.failures() > 0 {
            self.last_error = last_error;
        }
        if let Some(refused) = refused {
            let (session, error) = (&self.options.name, format_chain(&refused));
            let code = ErrorCode::SavedStateRejected.as_str();
            tracing::warn!(
                event = "state.refused",
                session,
                code,
                error,
                "ignoring saved state of the previous process"
            );
        }
        // A token that the previous session handed over is newer than the file.
        if let Some(current) = current.filter(|_| self.current.is_none()) {
            self.restore_token(current).await;
        }
        self.plan_next_step(self.last_outcome());
        if self.current.is_none() {
            self.warn_about_delayed_login();
            let splayed = now + self.options.login_jitter.mul_f64(random_unit());
            if let NextStep::LoginAt(at) = self.next
                && splayed.boot > at.boot
            {
                self.next = NextStep::LoginAt(splayed);
            }
            self.publish();
        }
    }

    /// Logs that failures or logins of the previous process delay the first login, until when, and why.
    fn warn_about_delayed_login(&mut self) {
        let now = self.clock.now();
        let wait = self.next.at().map(|at| now.until(at)).unwrap_or_default();
        if wait < MIN_LOGGED_DELAY {
            return;
        }
        let failures = self.retry_budget.failures();
        let cause = match &self.last_error {
            Some(error) => format!("{failures} logins have failed before this start, the last one: {error}"),
            None if failures > 0 => format!("{failures} logins have failed before this start"),
            None => "all logins of the request budget are used up by processes before this one".to_owned(),
        };
        let (session, until) = (&self.options.name, format_rfc3339((now + wait).wall));
        tracing::warn!(
            event = "token.login.delayed",
            session,
            until,
            wait = format_wait(wait),
            "no login before then: {cause}"
        );
        self.last_error.get_or_insert(cause);
    }

    async fn load_state(&mut self) -> LoadedState {
        let Some(state_file) = self.state_file.take() else { return LoadedState::default() };
        let now = self.clock.now();
        let read = tokio::task::spawn_blocking(move || {
            let loaded = state_file.load(now);
            (state_file, loaded)
        });
        match tokio::time::timeout(LOAD_LIMIT, read).await {
            Ok(Ok((state_file, loaded))) => {
                self.state_file = Some(state_file);
                loaded
            }
            // A disk that hangs now will hang later: the session runs without its state file.
            _ => LoadedState::default(),
        }
    }

    /// Looks up a token of the previous process. If the server is slow or unreachable, the token is used to its end.
    async fn restore_token(&mut self, current: CurrentToken) {
        let may_look = current.supports_lookup() && self.retry_budget.try_take_optional(self.clock.now());
        let session = self.options.name.clone();
        tracing::info!(event = "state.resumed", session, "restored a token of the previous process");
        let mut lookup = may_look.then(|| inflight::lookup(self.login.clone(), Arc::clone(&current.token)));
        self.set_current(current);
        self.save_state();
        if let Ok((generation, result)) =
            tokio::time::timeout(RESTORE_LOOKUP_LIMIT, inflight::wait_for(&mut lookup)).await
        {
            lookup = None;
            self.on_lookup(generation, result);
        }
        self.lookup = lookup;
        if self.current.is_some() {
            self.publish();
        }
    }
}

/// Shorter waits are ordinary backoff and are not logged.
const MIN_LOGGED_DELAY: Duration = Duration::from_secs(2);
const LOAD_LIMIT: Duration = Duration::from_secs(5);
const RESTORE_LOOKUP_LIMIT: Duration = Duration::from_secs(1);
