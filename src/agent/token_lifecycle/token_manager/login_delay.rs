//! Reports logins that wait for a session's budget.

use std::time::Duration;

use super::TokenManager;
use keyward_telemetry::time_format::{format_rfc3339, seconds};

impl TokenManager {
    /// Reports why failures or logins of the previous process delay the first login, if they do.
    pub(super) fn report_delayed_start(&mut self) {
        let last_error = self.publisher.last_error();
        let cause = self.planner.describe_delay(last_error);
        let is_unknown = last_error.is_none();
        if self.warn_about_delayed_login(&cause) && is_unknown {
            self.publisher.record_error(None, cause);
        }
    }

    /// Reports that a session without a token has used up its logins. A failed login has already reported its own delay.
    pub(super) fn report_used_up_logins(&mut self, unavailability: &'static str) {
        if self.planner.budget.failures() == 0 && self.warn_about_delayed_login(USED_UP) {
            self.publisher.set_unavailability(format!("{unavailability}, and {USED_UP}"));
        }
    }

    /// Logs that the next login waits, until when, and why. Returns false if it does not wait.
    fn warn_about_delayed_login(&self, cause: &str) -> bool {
        let now = self.clock.now();
        let wait = self.planner.wait(now);
        let is_delayed = wait >= MIN_LOGGED_DELAY;
        if is_delayed {
            tracing::warn!(
                event = "token.login.delayed",
                session = self.options.name,
                until = format_rfc3339((now + wait).wall),
                retry_in_seconds = seconds(wait),
                error = cause,
                "the next login is delayed; a waiting caller or `keyward retry` forces one"
            );
        }
        is_delayed
    }
}

/// Reason why a session without a token waits, although its last login succeeded.
const USED_UP: &str = "the session's logins are used up for now: too many failed, or their tokens expired early";

/// Shorter waits are ordinary backoff and are not logged.
const MIN_LOGGED_DELAY: Duration = Duration::from_secs(2);
