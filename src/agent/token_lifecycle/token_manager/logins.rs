//! Handles the results of logins, and reports logins that wait for the session's budget.

use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::{format_rfc3339, seconds};

use super::TokenManager;
use crate::identity::IdentityErrorKind;
use crate::login::{LoginError, Remedy};
use crate::retry_budget::FailureCause;
use crate::token::Token;
use crate::token_lifecycle::current_token::{CurrentToken, TokenHealth};
use crate::token_lifecycle::schedule::LastOutcome;
use crate::token_lifecycle::status_reporter::Attempt;

impl TokenManager {
    pub(super) fn on_login(&mut self, result: Result<Token, LoginError>) {
        let now = self.clock.now();
        match result {
            Ok(token) => self.accept_login(CurrentToken::new(token), now),
            Err(error) => self.record_failed_login(&error, now),
        }
        self.save_state();
        self.complete_lookup_request();
    }

    fn record_failed_login(&mut self, error: &LoginError, now: ClockReading) {
        let message = format_chain(error);
        self.reporter.count_attempt(Attempt::Login, Some(error.reason()));
        self.outage.record_failure(Attempt::Login, now);
        self.planner.budget.record_failure(now, failure_cause(error, now), error.retry_after(), random_unit());
        self.plan_next_step(LastOutcome::Failed);
        let session = &self.options.name;
        let retry_in_seconds = seconds(self.planner.wait(now));
        let reason = error.reason();
        let failures = self.planner.budget.failures();
        let code = error.code().map(ErrorCode::as_str);
        tracing::warn!(
            event = "token.login.failed",
            session,
            reason,
            failures,
            retry_in_seconds,
            code,
            error = message,
            "cannot log in"
        );
        self.publisher.record_error(error.code(), message);
        if self.current.is_none() {
            self.publish();
        }
        self.publisher.publish_checked();
    }

    fn accept_login(&mut self, mut new: CurrentToken, now: ClockReading) {
        self.reporter.count_attempt(Attempt::Login, None);
        let session = &self.options.name;
        let short = new.is_too_short(now);
        if short {
            self.planner.budget.record_failure(now, FailureCause::Transient, None, random_unit());
            let code = ErrorCode::TokenTooShort;
            let lease_seconds = new.lifetime.ttl.as_secs();
            let message = format!("the server issued a token with a lease of {lease_seconds} s");
            tracing::warn!(event = "token.login.short", session, code = code.as_str(), lease_seconds, "{message}");
            self.publisher.record_error(Some(code), message);
            self.outage.record_failure(Attempt::Login, now);
        } else {
            self.outage.record_success(Attempt::Login, now);
            self.files.release();
            self.planner.budget.record_success(now);
            self.publisher.clear_error();
        }
        // Renewals of a lease that is too short would follow each other without a pause.
        new.lifetime.renewable &= !short && self.planner.may_renew(now);
        // A token that is too short must not replace one that lives at least as long.
        let outlived = short && self.current.as_ref().is_some_and(|old| old.remaining(now) >= new.remaining(now));
        if !outlived {
            let expires = new.lifetime.ends.map(|ends| format_rfc3339(ends.wall));
            let accessor = new.token.accessor.as_deref();
            let renewable = new.lifetime.renewable;
            let policies = new.token.policies.join(",");
            tracing::info!(event = "token.login.ok", session, accessor, expires, renewable, policies, "logged in");
            self.replace_current(new, now);
        }
        self.plan_next_step(if short { LastOutcome::Failed } else { LastOutcome::Succeeded });
        self.publish();
    }

    /// Ends the wait after a failed login: a file that it read has changed.
    pub(super) fn on_files_changed(&mut self) {
        let now = self.clock.now();
        self.planner.budget.end_wait_for_change(now);
        self.plan_next_step(self.planner.last_outcome());
        let retry_in_seconds = seconds(self.planner.wait(now));
        let session = &self.options.name;
        tracing::info!(event = "session.files.changed", session, retry_in_seconds, "a file of the login has changed");
        self.publish();
        self.save_state();
    }

    fn replace_current(&mut self, new: CurrentToken, now: ClockReading) {
        self.publisher.mark_checked(now);
        self.calls.cancel_lookup();
        let old = self.current.take();
        let was_suspect = old.as_ref().is_some_and(|old| old.health != TokenHealth::Good);
        self.replaced.add(old.map(|old| old.token), now);
        self.set_current(new);
        self.requests.allow_lookup();
        if was_suspect {
            // Looked up at once: if the server refuses this token too, the previous one was not the cause.
            self.lookups.plan_now(now);
        }
    }

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

fn failure_cause(error: &LoginError, now: ClockReading) -> FailureCause {
    match error {
        LoginError::Unavailable { .. } => FailureCause::Transient,
        LoginError::Refused { .. } | LoginError::Bug { .. } => FailureCause::Refused,
        LoginError::Clock { remedy: Remedy::Refetch, .. } => FailureCause::Clock(Duration::ZERO),
        LoginError::Clock { remedy: Remedy::Wait(until), .. } => until.map_or(FailureCause::Refused, |until| {
            FailureCause::Clock(until.duration_since(now.wall).unwrap_or_default())
        }),
        LoginError::NoProof(error) => match error.kind {
            IdentityErrorKind::Config | IdentityErrorKind::Denied => FailureCause::Refused,
            IdentityErrorKind::NotReady | IdentityErrorKind::Throttled | IdentityErrorKind::Transient => {
                FailureCause::Identity
            }
        },
    }
}

/// Reason why a session without a token waits, although its last login succeeded.
const USED_UP: &str = "the session's logins are used up for now: too many failed, or their tokens expired early";

/// Shorter waits are ordinary backoff and are not logged.
const MIN_LOGGED_DELAY: Duration = Duration::from_secs(2);
