//! Handles what happens to a token: the results of its renewals and look-ups, its end, and clock changes.

use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::{format_rfc3339, seconds};

use super::TokenManager;
use crate::server_client::{CallError, LookupResponse, RenewResponse, TokenVerdict};
use crate::token_lifecycle::current_token::{LookupStatus, Suspicion, TokenHealth};
use crate::token_lifecycle::metrics::ClockMetrics;
use crate::token_lifecycle::schedule::LastOutcome;
use crate::token_lifecycle::session_calls::LookupOutcome;
use crate::token_lifecycle::status_reporter::Attempt;

impl TokenManager {
    pub(super) fn on_renewal(&mut self, sent: ClockReading, result: Result<RenewResponse, CallError>) {
        let now = self.clock.now();
        self.publisher.mark_checked(now);
        if self.current.is_some() {
            match result {
                Ok(renewed) => self.record_renewal(renewed, sent, now),
                Err(error) => self.record_failed_renewal(&error, now),
            }
            self.save_state();
        }
        self.complete_lookup_request();
    }

    fn record_renewal(&mut self, renewed: RenewResponse, sent: ClockReading, now: ClockReading) {
        let Some(current) = &mut self.current else { return };
        current.renew(renewed, sent);
        self.replacement_limiter.confirm();
        let session = &self.options.name;
        let expires = current.lifetime.ends.map(|ends| format_rfc3339(ends.wall));
        let renewable = current.lifetime.renewable;
        tracing::info!(event = "token.renew.ok", session, expires, renewable, "renewed the token");
        self.reporter.count_attempt(Attempt::Renewal, None);
        self.outage.record_success(Attempt::Renewal, now);
        if current.outdated {
            // A renewal does not show whether the login that replaces the token would succeed.
            self.planner.budget.record_renewal_success(now);
        } else {
            self.planner.budget.record_success(now);
            self.publisher.clear_error();
        }
        // A look-up that was sent before the renewal would report the old lease.
        self.calls.cancel_lookup();
        self.lookups.plan_next(current, self.options.check_interval, now);
        let short = current.is_too_short(now);
        self.plan_next_step(if short { LastOutcome::RenewalRefused } else { LastOutcome::Succeeded });
        self.publish();
    }

    fn record_failed_renewal(&mut self, error: &CallError, now: ClockReading) {
        let message = format!("the renewal failed: {}", format_chain(error));
        let mut code = error.code();
        match error.verdict() {
            TokenVerdict::Dead => {
                self.reporter.count_attempt(Attempt::Renewal, Some("dead"));
                self.on_token_dead(&message);
            }
            TokenVerdict::Suspect => {
                self.reporter.count_attempt(Attempt::Renewal, Some("suspect"));
                self.on_token_suspect(&message);
                let is_refused = self.current.as_ref().is_some_and(|current| current.health == TokenHealth::Refused);
                // A look-up that found the token suspect during the renewal has planned nothing.
                self.plan_next_step(if is_refused { LastOutcome::RenewalRefused } else { LastOutcome::Succeeded });
            }
            TokenVerdict::Denied | TokenVerdict::Refused => {
                if let Some(current) = &mut self.current {
                    current.lifetime.renewable = false;
                    if !current.renewed {
                        self.planner.suspend_renewals(now);
                    }
                }
                self.reporter.count_attempt(Attempt::Renewal, Some("refused"));
                self.plan_next_step(LastOutcome::RenewalRefused);
                code = Some(ErrorCode::TokenNotRenewable);
                let session = &self.options.name;
                let retry_in_seconds = seconds(self.planner.wait(now));
                let code = code.map(ErrorCode::as_str);
                tracing::warn!(
                    event = "token.renew.refused",
                    session,
                    retry_in_seconds,
                    code,
                    error = message,
                    "cannot renew the token"
                );
                // A refusal may mean that the token is dead; only a look-up shows it.
                self.start_lookup();
            }
            TokenVerdict::Unavailable => {
                self.reporter.count_attempt(Attempt::Renewal, Some("unavailable"));
                self.outage.record_failure(Attempt::Renewal, now);
                self.planner.budget.record_renewal_failure(now, error.retry_after(), random_unit());
                self.plan_next_step(LastOutcome::Failed);
                let session = &self.options.name;
                let retry_in_seconds = seconds(self.planner.wait(now));
                let failures = self.planner.budget.renewal_failures();
                let code = code.map(ErrorCode::as_str);
                tracing::warn!(
                    event = "token.renew.failed",
                    session,
                    failures,
                    retry_in_seconds,
                    code,
                    error = message,
                    "cannot renew the token"
                );
            }
        }
        self.publisher.record_error(code, message);
    }

    pub(super) fn on_lookup(&mut self, sent: ClockReading, outcome: LookupOutcome) {
        let (generation, result) = outcome;
        let now = self.clock.now();
        self.publisher.mark_checked(now);
        if self.current.as_ref().is_some_and(|current| current.token.generation == generation) {
            match result {
                Ok(lookup) => self.record_lookup(&lookup, sent, now),
                Err(error) => self.record_failed_lookup(&error, now),
            }
            if let Some(current) = &self.current {
                self.lookups.plan_next(current, self.options.check_interval, now);
                if current.health == TokenHealth::Refused {
                    // Then a login may replace it.
                    self.lookups.plan_before(self.replacement_limiter.next(now));
                }
            }
        }
        self.complete_lookup_request();
    }

    fn record_lookup(&mut self, lookup: &LookupResponse, sent: ClockReading, now: ClockReading) {
        let Some(current) = &mut self.current else { return };
        self.reporter.count_attempt(Attempt::Check, None);
        let was_suspect = current.lookup_status == LookupStatus::Suspect || current.health != TokenHealth::Good;
        self.replacement_limiter.confirm();
        let expiry_changed = current.apply_lookup(lookup, sent, now);
        if was_suspect {
            self.publisher.clear_error();
        }
        if (expiry_changed || was_suspect) && !self.calls.is_busy() {
            self.plan_next_step(self.planner.last_outcome());
        }
        if expiry_changed || was_suspect {
            self.publish();
            self.save_state();
        } else {
            self.publisher.publish_checked();
        }
        self.outage.record_success(Attempt::Check, now);
    }

    fn record_failed_lookup(&mut self, error: &CallError, now: ClockReading) {
        let message = format!("the look-up failed: {}", format_chain(error));
        let reason = match error.verdict() {
            TokenVerdict::Dead => "dead",
            TokenVerdict::Suspect => "suspect",
            TokenVerdict::Denied | TokenVerdict::Refused => "refused",
            TokenVerdict::Unavailable => "unavailable",
        };
        self.reporter.count_attempt(Attempt::Check, Some(reason));
        match error.verdict() {
            TokenVerdict::Dead => self.on_token_dead(&message),
            TokenVerdict::Suspect => self.on_token_suspect(&message),
            TokenVerdict::Denied => self.on_lookup_denied(message),
            TokenVerdict::Refused | TokenVerdict::Unavailable => {
                self.outage.record_failure(Attempt::Check, now);
                let session = &self.options.name;
                let code = error.code();
                self.publisher.publish_failed_check(code, &message);
                let code = code.map(ErrorCode::as_str);
                tracing::warn!(event = "token.check.failed", session, code, error = message, "cannot check the token");
                return;
            }
        }
        if !self.awaits_replacement() {
            self.publisher.publish_checked();
        }
    }

    /// Handles a look-up that was denied without a reason.
    fn on_lookup_denied(&mut self, message: String) {
        let Some(current) = &mut self.current else { return };
        // The server checks policies of tokens that it knows only.
        let was_suspect = current.is_suspect();
        current.health = TokenHealth::Good;
        self.replacement_limiter.confirm();
        let session = &self.options.name;
        match current.lookup_status {
            LookupStatus::Untried | LookupStatus::Forbidden => {
                current.lookup_status = LookupStatus::Forbidden;
                tracing::debug!(event = "token.check.refused", session, error = message, "the policies forbid lookups");
            }
            LookupStatus::Suspect => {
                tracing::debug!(
                    event = "token.check.suspect",
                    session,
                    error = message,
                    "a login will replace the token"
                );
            }
            LookupStatus::Allowed => {
                current.lookup_status = LookupStatus::Suspect;
                self.outage.record_failure(Attempt::Check, self.clock.now());
                tracing::warn!(
                    event = "token.check.suspect",
                    session,
                    code = ErrorCode::AccessDenied.as_str(),
                    error = message,
                    "the token may be dead, or its policies have changed: a login will replace it"
                );
                self.publisher.record_error(Some(ErrorCode::AccessDenied), message);
                if !self.calls.is_busy() {
                    self.plan_next_step(LastOutcome::Succeeded);
                }
            }
        }
        if was_suspect {
            self.publish();
        }
        self.save_state();
    }

    /// Handles a token that the server refuses without a reason: a login replaces it, unless a recent one changed nothing.
    fn on_token_suspect(&mut self, message: &str) {
        let now = self.clock.now();
        let session = &self.options.name;
        let code = ErrorCode::TokenDead;
        let Some(current) = &mut self.current else { return };
        if current.health == TokenHealth::Suspect {
            return tracing::debug!(
                event = "token.suspect",
                session,
                error = message,
                "a login will replace the token"
            );
        }
        self.publisher.record_error(Some(code), message.to_owned());
        let code = code.as_str();
        match current.record_refusal(&mut self.replacement_limiter, now) {
            Suspicion::AlreadyHandled => {}
            Suspicion::Refused => {
                tracing::warn!(
                    event = "token.refused",
                    session,
                    code,
                    error = message,
                    "the server refuses every token of this session; check `token_bound_cidrs` of the role"
                );
                self.outage.record_failure(Attempt::Check, now);
            }
            Suspicion::Replace => {
                tracing::warn!(
                    event = "token.suspect",
                    session,
                    code,
                    error = message,
                    "the server may no longer know the token: a login will replace it"
                );
                self.outage.record_failure(Attempt::Check, now);
                if !self.calls.is_busy() {
                    self.plan_next_step(LastOutcome::Succeeded);
                }
                self.publish();
            }
        }
    }

    /// Handles a token that the server no longer knows.
    fn on_token_dead(&mut self, message: &str) {
        let session = &self.options.name;
        let code = ErrorCode::TokenDead;
        tracing::warn!(event = "token.dead", session, code = code.as_str(), error = message, "the token is unknown");
        self.publisher.record_error(Some(code), message.to_owned());
        self.publisher.mark_checked(self.clock.now());
        self.drop_token("the token was revoked or lost by the server");
    }

    pub(super) fn on_expired(&mut self) {
        let session = &self.options.name;
        let code = ErrorCode::TokenExpired.as_str();
        tracing::warn!(event = "token.expired", session, code, "the token has expired before a login replaced it");
        self.drop_token("the token has expired");
    }

    fn drop_token(&mut self, unavailability: &'static str) {
        self.outage.record_failure(Attempt::Login, self.clock.now());
        self.publisher.set_unavailability(unavailability);
        self.current = None;
        self.lookups.clear();
        self.calls.cancel_token_calls();
        self.plan_next_step(LastOutcome::Failed);
        self.report_used_up_logins(unavailability);
        self.publish();
        self.save_state();
        self.complete_lookup_request();
    }

    pub(super) fn on_clock_change(&mut self) {
        let now = self.clock.now();
        self.reporter.metrics.get::<ClockMetrics>().jumps.inc();
        tracing::info!(event = "clock.jump", session = self.options.name, "the clock was set or the machine resumed");
        if let Some(current) = &mut self.current {
            current.apply_wall_clock_change(&self.clock);
            self.publish();
            self.save_state();
        }
        let failed_for_clock = self.planner.budget.failed_for_clock();
        if (self.current.is_some() || failed_for_clock) && self.lookups.allow_after_clock_change(now) {
            self.start_lookup();
            if failed_for_clock {
                self.retry_login(now);
            }
        }
    }

    /// Plans the login that waits because its proof did not fit the clock: the clock may be right now.
    fn retry_login(&mut self, now: ClockReading) {
        self.planner.budget.end_wait(now);
        // A call in flight plans the next step at its end.
        if !self.calls.is_busy() {
            self.plan_next_step(self.planner.last_outcome());
            self.publish();
        }
    }
}
