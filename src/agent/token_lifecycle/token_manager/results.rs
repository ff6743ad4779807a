//! Handles the results of logins, renewals and look-ups, and the end of a token.

use std::time::Duration;

use super::TokenManager;
use crate::identity::IdentityErrorKind;
use crate::login::{LoginError, Remedy};
use crate::retry_budget::FailureCause;
use crate::server_client::{CallError, LookupResponse, RenewResponse, TokenVerdict};
use crate::token::Token;
use crate::token_lifecycle::current_token::{CurrentToken, LookupStatus, Suspicion, TokenHealth};
use crate::token_lifecycle::schedule::LastOutcome;
use crate::token_lifecycle::session_calls::LookupOutcome;
use crate::token_lifecycle::status_reporter::Attempt;
use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::{format_rfc3339, seconds};

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
            self.planner.budget.record_success(now);
            self.publisher.clear_error();
        }
        new.lifetime.renewable &= !short && self.planner.may_renew(now);
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

    pub(super) fn on_lookup(&mut self, sent: ClockReading, (generation, result): LookupOutcome) {
        let now = self.clock.now();
        self.publisher.mark_checked(now);
        if self.current.as_ref().is_some_and(|current| current.token.generation == generation) {
            match result {
                Ok(lookup) => self.record_lookup(&lookup, sent, now),
                Err(error) => self.record_failed_lookup(&error, now),
            }
            if let Some(current) = &self.current {
                self.lookups.plan_next(current, self.options.check_interval, now);
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
        if expiry_changed {
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
                let code = error.code().map(ErrorCode::as_str);
                tracing::warn!(event = "token.check.failed", session, code, error = message, "cannot check the token");
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
