//! Handles the results of logins, renewals and look-ups, expiry, and clock changes.

use std::time::Duration;

use super::TokenManager;
use crate::agent::identity::IdentityErrorKind;
use crate::agent::login::{LoginError, Remedy};
use crate::agent::retry_budget::FailureCause;
use crate::agent::server_client::{CallError, LookupResponse, RenewResponse, TokenVerdict};
use crate::agent::token::{Generation, Token};
use crate::agent::token_lifecycle::current_token::{CurrentToken, LookupStatus, TokenHealth};
use crate::agent::token_lifecycle::metrics::ClockMetrics;
use crate::agent::token_lifecycle::schedule::{LastOutcome, next_check};
use crate::agent::token_lifecycle::status_reporter::{Attempt, format_wait};
use crate::backoff::random_unit;
use crate::clock::ClockReading;
use crate::error_chain::format_chain;
use crate::error_code::ErrorCode;
use crate::time_format::format_rfc3339;

impl TokenManager {
    pub(super) fn on_login(&mut self, result: Result<Token, LoginError>) {
        let now = self.clock.now();
        match result {
            Ok(token) => self.accept_login(CurrentToken::new(token), now),
            Err(error) => {
                let message = format_chain(&error);
                self.reporter.count_attempt(Attempt::Login, Some(error.reason()));
                self.record_failure_of(Attempt::Login);
                self.retry_budget.record_failure(now, failure(&error, now), error.retry_after(), random_unit());
                self.plan_next_step(LastOutcome::Failed);
                let (session, wait) = (&self.options.name, format_wait(self.retry_after()));
                let (reason, failures) = (error.reason(), self.retry_budget.failures());
                let code = error.code().map(ErrorCode::as_str);
                tracing::warn!(event = "token.login.failed", session, reason, failures, wait, code, "{message}");
                self.record_error(error.code(), message);
                if self.current.is_none() {
                    self.publish();
                }
                self.publish_checked();
            }
        }
        self.save_state();
        self.complete_refresh();
    }

    fn accept_login(&mut self, mut new: CurrentToken, now: ClockReading) {
        self.reporter.count_attempt(Attempt::Login, None);
        let session = self.options.name.clone();
        let short = new.is_too_short(now);
        if short {
            self.retry_budget.record_failure(now, FailureCause::Transient, None, random_unit());
            let message = format!("the server issued a token with a lease of {} s", new.lifetime.ttl.as_secs());
            let code = ErrorCode::TokenTooShort;
            tracing::warn!(event = "token.login.short", session, code = code.as_str(), "{message}");
            self.record_error(Some(code), message);
            self.record_failure_of(Attempt::Login);
        } else {
            self.record_success_of(Attempt::Login);
            self.retry_budget.record_success(now);
            self.last_error = None;
        }
        new.lifetime.renewable &= !short && self.no_renewal_until.is_none_or(|until| now.until(until).is_zero());
        let outlived = short && self.current.as_ref().is_some_and(|old| old.left(now) >= new.left(now));
        if !outlived {
            let expires = new.lifetime.ends.map(|ends| format_rfc3339(ends.wall));
            let accessor = new.token.accessor.clone();
            let (renewable, policies) = (new.lifetime.renewable, new.token.policies.join(","));
            tracing::info!(event = "token.login.ok", session, accessor, expires, renewable, policies, "logged in");
            self.mark_checked();
            self.lookup = None;
            let old = self.current.take();
            let suspected = old.as_ref().is_some_and(|old| old.health != TokenHealth::Good);
            self.replaced.add(old.map(|old| old.token), now);
            self.set_current(new);
            self.refresh_signal.allow_one();
            if suspected {
                // Looked up at once: if the server refuses this token too, the previous one was not the cause.
                self.next_check = Some(now);
            }
        }
        self.plan_next_step(if short { LastOutcome::Failed } else { LastOutcome::Succeeded });
        self.publish();
    }

    /// Sets the current token. Its first look-up is soon and shows whether the policies allow look-ups at all; without that a
    /// later denial would mean nothing.
    pub(super) fn set_current(&mut self, current: CurrentToken) {
        let first = Duration::from_secs(5).mul_f64(1.0 + 2.0 * random_unit());
        let interval = self.options.check_interval.filter(|_| current.supports_lookup());
        self.next_check = interval.map(|interval| self.clock.now() + first.min(interval));
        self.current = Some(current);
    }

    pub(super) fn on_renewal(&mut self, result: Result<RenewResponse, CallError>) {
        self.mark_checked();
        match result {
            _ if self.current.is_none() => return self.complete_refresh(),
            Ok(renewed) => self.record_renewal(renewed),
            Err(error) => self.record_failed_renewal(&error),
        }
        self.save_state();
        self.complete_refresh();
    }

    fn record_renewal(&mut self, renewed: RenewResponse) {
        let (now, session) = (self.clock.now(), self.options.name.clone());
        let Some(current) = &mut self.current else { return };
        current.renew(renewed, now);
        self.replacement_limiter.confirm();
        let expires = current.lifetime.ends.map(|ends| format_rfc3339(ends.wall));
        let again = current.lifetime.renewable;
        let short = current.is_too_short(now);
        tracing::info!(event = "token.renew.ok", session, expires, again, "renewed");
        self.reporter.count_attempt(Attempt::Renewal, None);
        let outdated = current.outdated;
        self.record_success_of(Attempt::Renewal);
        if outdated {
            // A renewal does not tell whether the login that replaces the token would succeed.
            self.retry_budget.record_renewal_success(now);
        } else {
            self.retry_budget.record_success(now);
            self.last_error = None;
        }
        // A look-up that was sent before the renewal would report the old lease.
        self.lookup = None;
        self.schedule_check(now);
        self.plan_next_step(if short { LastOutcome::RenewalRefused } else { LastOutcome::Succeeded });
        self.publish();
    }

    fn record_failed_renewal(&mut self, error: &CallError) {
        let (now, session) = (self.clock.now(), self.options.name.clone());
        let message = format!("the renewal failed: {}", format_chain(error));
        match error.verdict() {
            TokenVerdict::Dead => {
                self.reporter.count_attempt(Attempt::Renewal, Some("dead"));
                self.on_token_dead(&message);
            }
            TokenVerdict::Suspect => {
                self.reporter.count_attempt(Attempt::Renewal, Some("suspect"));
                self.on_token_suspect(&message);
                if self.current.as_ref().is_some_and(|current| current.health == TokenHealth::Refused) {
                    self.plan_next_step(LastOutcome::RenewalRefused);
                }
            }
            TokenVerdict::Denied | TokenVerdict::Refused => {
                if let Some(current) = &mut self.current {
                    current.lifetime.renewable = false;
                    if !current.renewed {
                        self.no_renewal_until = Some(now + RENEWAL_REFUSAL_HOLD);
                    }
                }
                self.reporter.count_attempt(Attempt::Renewal, Some("refused"));
                self.plan_next_step(LastOutcome::RenewalRefused);
                let wait = format_wait(self.retry_after());
                let code = ErrorCode::TokenNotRenewable.as_str();
                tracing::warn!(event = "token.renew.refused", session, wait, code, "{message}");
                // A refusal may mean that the token is dead; only a look-up tells.
                self.start_lookup();
            }
            TokenVerdict::Unavailable => {
                self.reporter.count_attempt(Attempt::Renewal, Some("unavailable"));
                self.record_failure_of(Attempt::Renewal);
                self.retry_budget.record_renewal_failure(now, error.retry_after(), random_unit());
                self.plan_next_step(LastOutcome::Failed);
                let (failures, wait) = (self.retry_budget.renewal_failures(), format_wait(self.retry_after()));
                let code = error.code().map(ErrorCode::as_str);
                tracing::warn!(event = "token.renew.failed", session, failures, wait, code, "{message}");
            }
        }
        let refused = matches!(error.verdict(), TokenVerdict::Denied | TokenVerdict::Refused);
        let code = if refused { Some(ErrorCode::TokenNotRenewable) } else { error.code() };
        self.record_error(code, message);
    }

    pub(super) fn on_lookup(&mut self, generation: Generation, result: Result<LookupResponse, CallError>) {
        let now = self.clock.now();
        let session = self.options.name.clone();
        self.mark_checked();
        let Some(current) = self.current.as_mut().filter(|current| current.token.generation == generation) else {
            return self.complete_refresh();
        };
        match result {
            Ok(found) => {
                self.reporter.count_attempt(Attempt::Check, None);
                let suspect = current.lookup_status == LookupStatus::Suspect || current.health != TokenHealth::Good;
                self.replacement_limiter.confirm();
                let moved = current.apply_lookup(&found, now);
                if suspect {
                    self.last_error = None;
                }
                if (moved || suspect) && self.in_flight.is_none() {
                    self.plan_next_step(self.last_outcome());
                }
                if moved {
                    self.publish();
                    self.save_state();
                } else {
                    self.publish_checked();
                }
                self.record_success_of(Attempt::Check);
            }
            Err(error) => {
                let message = format!("the look-up failed: {}", format_chain(&error));
                let code = error.code().map(ErrorCode::as_str);
                match error.verdict() {
                    TokenVerdict::Dead => {
                        self.reporter.count_attempt(Attempt::Check, Some("dead"));
                        self.on_token_dead(&message);
                    }
                    TokenVerdict::Suspect => {
                        self.reporter.count_attempt(Attempt::Check, Some("suspect"));
                        self.on_token_suspect(&message);
                    }
                    TokenVerdict::Denied => {
                        self.reporter.count_attempt(Attempt::Check, Some("refused"));
                        self.on_lookup_denied(&message);
                    }
                    TokenVerdict::Refused => {
                        self.reporter.count_attempt(Attempt::Check, Some("refused"));
                        self.record_failure_of(Attempt::Check);
                        tracing::warn!(event = "token.check.failed", session, code, "{message}");
                    }
                    TokenVerdict::Unavailable => {
                        self.reporter.count_attempt(Attempt::Check, Some("unavailable"));
                        self.record_failure_of(Attempt::Check);
                        tracing::warn!(event = "token.check.failed", session, code, "{message}");
                    }
                }
                if !self.awaits_replacement() {
                    self.publish_checked();
                }
            }
        }
        if self.current.is_some() {
            self.schedule_check(now);
        }
        self.complete_refresh();
    }

    /// Handles a look-up that was denied without a reason.
    fn on_lookup_denied(&mut self, message: &str) {
        let Some(current) = &mut self.current else { return };
        // The server checks policies of tokens that it knows only.
        current.health = TokenHealth::Good;
        self.replacement_limiter.confirm();
        let session = &self.options.name;
        match current.lookup_status {
            LookupStatus::Untried | LookupStatus::Forbidden => {
                current.lookup_status = LookupStatus::Forbidden;
                tracing::debug!(event = "token.check.refused", session, "{message}");
            }
            LookupStatus::Suspect => tracing::debug!(event = "token.check.suspect", session, "{message}"),
            LookupStatus::Allowed => {
                current.lookup_status = LookupStatus::Suspect;
                self.record_failure_of(Attempt::Check);
                let session = &self.options.name;
                tracing::warn!(
                    event = "token.check.suspect",
                    session,
                    code = ErrorCode::AccessDenied.as_str(),
                    "the token may be dead, or its policies have changed: a login will replace it; {message}"
                );
                self.record_error(Some(ErrorCode::AccessDenied), message.to_owned());
                if self.in_flight.is_none() {
                    self.plan_next_step(LastOutcome::Succeeded);
                }
            }
        }
        self.save_state();
    }

    pub(super) fn schedule_check(&mut self, now: ClockReading) {
        let lookable = self.current.as_ref().is_some_and(CurrentToken::supports_lookup);
        let interval = self.options.check_interval.filter(|_| lookable);
        self.next_check = interval.map(|interval| next_check(now, interval, random_unit()));
    }

    /// Handles a token that the server no longer knows.
    fn on_token_dead(&mut self, message: &str) {
        let session = &self.options.name;
        let code = ErrorCode::TokenDead.as_str();
        tracing::warn!(event = "token.dead", session, code, "the server no longer knows the token: {message}");
        self.record_error(Some(ErrorCode::TokenDead), message.to_owned());
        self.mark_checked();
        self.drop_token("the token was revoked or lost by the server");
    }

    pub(super) fn on_expired(&mut self) {
        let session = &self.options.name;
        let code = ErrorCode::TokenExpired.as_str();
        tracing::warn!(
            event = "token.expired",
            session,
            code,
            "the token has expired and no login could replace it in time"
        );
        self.drop_token("the token has expired");
    }

    fn drop_token(&mut self, unavailability: &'static str) {
        self.record_failure_of(Attempt::Login);
        self.unavailability = unavailability;
        self.current = None;
        self.lookup = None;
        self.next_check = None;
        if self.renewing {
            self.renewing = false;
            self.in_flight = None;
        }
        self.plan_next_step(LastOutcome::Failed);
        self.publish();
        self.save_state();
        self.complete_refresh();
    }

    pub(super) fn on_clock_change(&mut self) {
        let now = self.clock.now();
        self.reporter.metrics.get::<ClockMetrics>().jumps.inc();
        tracing::info!(event = "clock.jump", session = self.options.name, "the clock was set, or the machine slept");
        if let Some(current) = &mut self.current {
            current.apply_wall_clock_change(&self.clock);
            self.publish();
            self.save_state();
            // A clock that is set all the time must not cause calls all the time.
            if self.clock_change_checked.is_none_or(|looked| now.since(looked) >= CLOCK_CHANGE_LOOKUP_INTERVAL) {
                self.clock_change_checked = Some(now);
                self.start_lookup();
            }
        }
    }
}

const RENEWAL_REFUSAL_HOLD: Duration = Duration::from_hours(1);
const CLOCK_CHANGE_LOOKUP_INTERVAL: Duration = Duration::from_mins(1);

fn failure(error: &LoginError, now: ClockReading) -> FailureCause {
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
