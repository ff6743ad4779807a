//! Restores the state of the previous process.

use std::time::Duration;

use keyward_credentials::backoff::random_unit;

use super::TokenManager;
use crate::token_lifecycle::current_token::CurrentToken;
use crate::token_lifecycle::session_calls::CompletedCall;
use crate::token_lifecycle::state_file::LoadedState;

impl TokenManager {
    /// Restores the state of the previous process; plans the first login if that had no usable token.
    pub(super) async fn restore(&mut self) {
        let LoadedState { retry_budget, current, last_error, changed, .. } = self.state.load(self.clock.now()).await;
        let now = self.clock.now();
        self.planner.restore(retry_budget.as_ref(), changed, now);
        if self.planner.budget.failures() > 0 {
            self.files.record().await;
        }
        if let Some(error) = last_error.filter(|_| self.planner.budget.failures() > 0) {
            self.publisher.record_error(None, error);
        }
        // A token that the previous session handed over is newer than the file.
        if let Some(current) = current.filter(|_| self.current.is_none()) {
            self.restore_token(current).await;
        }
        self.plan_next_step(self.planner.last_outcome());
        if self.current.is_none() {
            self.report_delayed_start();
            self.planner.delay_login(now + self.options.login_jitter.mul_f64(random_unit()));
            self.publish();
        }
    }

    /// Uses a token of the previous process, and looks it up. If the server is slow or unreachable, it is used to its end.
    async fn restore_token(&mut self, current: CurrentToken) {
        let session = &self.options.name;
        tracing::info!(event = "state.resumed", session, "restored a token of the previous process");
        if current.supports_lookup() && self.planner.budget.try_take_optional(self.clock.now()) {
            self.calls.start_lookup(&current);
        }
        self.set_current(current);
        self.save_state();
        if self.calls.is_looking_up()
            && let Ok(CompletedCall::Lookup(sent, outcome)) =
                tokio::time::timeout(RESTORE_LOOKUP_LIMIT, self.calls.next()).await
        {
            self.on_lookup(sent, outcome);
        }
        if self.current.is_some() {
            self.publish();
        }
    }
}

const RESTORE_LOOKUP_LIMIT: Duration = Duration::from_secs(1);
