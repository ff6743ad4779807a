//! What a keeper makes of what happened.

use std::time::Duration;

use super::TokenKeeper;
use crate::agent::identity::Class;
use crate::agent::login::{Cure, LoginError};
use crate::agent::server_client::{CallError, LookedUp, Renewed, Verdict};
use crate::agent::token::{Generation, Token};
use crate::agent::token_lifecycle::current_token::{Held, Looks, Standing};
use crate::agent::token_lifecycle::retry_budget::Failure;
use crate::agent::token_lifecycle::schedule::{Last, next_check};
use crate::agent::token_lifecycle::status_reporter::{Attempt, words};
use crate::backoff::random_unit;
use crate::clock::ClockReading;
use crate::error_chain::format_chain;
use crate::time_format::format_rfc3339;

impl TokenKeeper {
    pub(super) fn login_done(&mut self, result: Result<Token, LoginError>) {
        let now = self.clock.now();
        match result {
            Ok(token) => self.logged_in(Held::new(token), now),
            Err(error) => {
                let message = format_chain(&error);
                self.report.count(Attempt::Login, Some(error.reason()));
                self.pace.failed(now, failure(&error, now), error.retry_after(), random_unit());
                self.plan(Last::Failed);
                let (session, wait) = (&self.options.name, words(self.retry_after()));
                let (reason, failures) = (error.reason(), self.pace.failures());
                tracing::warn!(event = "token.login.failed", session, reason, failures, wait, "{message}");
                self.last_error = Some(message);
                if self.held.is_none() {
                    self.publish();
                }
                self.publish_checked();
            }
        }
        self.save();
        self.answer_ring();
    }

    fn logged_in(&mut self, mut new: Held, now: ClockReading) {
        self.report.count(Attempt::Login, None);
        let session = self.options.name.clone();
        let short = new.too_short(now);
        if short {
            self.pace.failed(now, Failure::Passing, None, random_unit());
            let message = format!("the server gave a token that lives {} s", new.life.ttl.as_secs());
            tracing::warn!(event = "token.login.short", session, "{message}");
            self.last_error = Some(message);
        } else {
            self.pace.succeeded(now);
            self.last_error = None;
        }
        new.life.renewable &= !short && self.no_renewal_until.is_none_or(|until| now.until(until).is_zero());
        let outlived = short && self.held.as_ref().is_some_and(|old| old.left(now) >= new.left(now));
        if !outlived {
            let expires = new.life.ends.map(|ends| format_rfc3339(ends.wall));
            let accessor = new.token.accessor.clone();
            let (renewable, policies) = (new.life.renewable, new.token.policies.join(","));
            tracing::info!(event = "token.login.ok", session, accessor, expires, renewable, policies, "logged in");
            self.mark_checked();
            self.look = None;
            let old = self.held.take();
            let suspected = old.as_ref().is_some_and(|old| old.standing != Standing::Good);
            self.replaced.extend(old.map(|old| old.token));
            self.forget_ended();
            self.take(new);
            self.refresh_signal.allow_one();
            if suspected {
                // At once: where the server refuses this one too, it was not the token.
                self.next_check = Some(now);
            }
        }
        self.plan(if short { Last::Failed } else { Last::Well });
        self.publish();
    }

    /// Keeps of the tokens that were replaced the newest that have not ended.
    pub(super) fn forget_ended(&mut self) {
        let now = self.clock.now();
        self.replaced.retain(|token| token.expires.is_none_or(|ends| !now.until(ends).is_zero()));
        self.replaced.drain(..self.replaced.len().saturating_sub(MOST_REPLACED));
    }

    /// Has a token from now on. The first look is soon: it tells whether the token may look itself up at all, without
    /// which a later refusal of that call would say nothing.
    pub(super) fn take(&mut self, held: Held) {
        let first = Duration::from_secs(5).mul_f64(1.0 + 2.0 * random_unit());
        let interval = self.options.check_interval.filter(|_| held.can_be_looked_up());
        self.next_check = interval.map(|interval| self.clock.now() + first.min(interval));
        self.held = Some(held);
    }

    pub(super) fn renewal_done(&mut self, result: Result<Renewed, CallError>) {
        let now = self.clock.now();
        let session = self.options.name.clone();
        self.mark_checked();
        let Some(held) = &mut self.held else { return self.answer_ring() };
        match result {
            Ok(renewed) => {
                held.renew(renewed, now);
                self.suspicions.confirm();
                let expires = held.life.ends.map(|ends| format_rfc3339(ends.wall));
                let again = held.life.renewable;
                let short = held.too_short(now);
                tracing::info!(event = "token.renew.ok", session, expires, again, "renewed");
                self.report.count(Attempt::Renewal, None);
                if held.outdated {
                    // It says nothing about the login that is to replace the token.
                    self.pace.renewal_succeeded(now);
                } else {
                    self.pace.succeeded(now);
                    self.last_error = None;
                }
                // What a look tells that was sent before the renewal is out of date.
                self.look = None;
                self.check_later(now);
                self.plan(if short { Last::NotRenewed } else { Last::Well });
                self.publish();
            }
            Err(error) => {
                let message = format!("the renewal failed: {}", format_chain(&error));
                match error.verdict() {
                    Verdict::Dead => {
                        self.report.count(Attempt::Renewal, Some("dead"));
                        self.died(&message);
                    }
                    Verdict::Suspect => {
                        self.report.count(Attempt::Renewal, Some("suspect"));
                        self.suspect(&message);
                        if self.held.as_ref().is_some_and(|held| held.standing == Standing::Refused) {
                            self.plan(Last::NotRenewed);
                        }
                    }
                    Verdict::Denied | Verdict::Refused => {
                        held.life.renewable = false;
                        if !held.renewed {
                            self.no_renewal_until = Some(now + REFUSAL_HOLDS);
                        }
                        self.report.count(Attempt::Renewal, Some("refused"));
                        self.plan(Last::NotRenewed);
                        let wait = words(self.retry_after());
                        tracing::warn!(event = "token.renew.refused", session, wait, "{message}");
                        // A refusal may mean that the token is dead; only a look tells.
                        self.start_look();
                    }
                    Verdict::Unavailable => {
                        self.report.count(Attempt::Renewal, Some("unavailable"));
                        self.pace.renewal_failed(now, error.retry_after(), random_unit());
                        self.plan(Last::Failed);
                        let (failures, wait) = (self.pace.renewal_failures(), words(self.retry_after()));
                        tracing::warn!(event = "token.renew.failed", session, failures, wait, "{message}");
                    }
                }
                self.last_error = Some(message);
            }
        }
        self.save();
        self.answer_ring();
    }

    pub(super) fn look_done(&mut self, generation: Generation, result: Result<LookedUp, CallError>) {
        let now = self.clock.now();
        let session = self.options.name.clone();
        self.mark_checked();
        let Some(held) = self.held.as_mut().filter(|held| held.token.generation == generation) else {
            return self.answer_ring();
        };
        match result {
            Ok(found) => {
                self.report.count(Attempt::Check, None);
                let doubted = held.looks == Looks::Doubted || held.standing != Standing::Good;
                self.suspicions.confirm();
                let moved = held.looked_up(&found, now);
                if doubted {
                    self.last_error = None;
                }
                if (moved || doubted) && self.work.is_none() {
                    self.plan(self.last());
                }
                if moved {
                    self.publish();
                    self.save();
                } else {
                    self.publish_checked();
                }
            }
            Err(error) => {
                let message = format!("the look-up failed: {}", format_chain(&error));
                match error.verdict() {
                    Verdict::Dead => {
                        self.report.count(Attempt::Check, Some("dead"));
                        self.died(&message);
                    }
                    Verdict::Suspect => {
                        self.report.count(Attempt::Check, Some("suspect"));
                        self.suspect(&message);
                    }
                    Verdict::Denied => {
                        self.report.count(Attempt::Check, Some("refused"));
                        self.denied(&message);
                    }
                    Verdict::Refused => {
                        self.report.count(Attempt::Check, Some("refused"));
                        tracing::warn!(event = "token.check.failed", session, "{message}");
                    }
                    Verdict::Unavailable => {
                        self.report.count(Attempt::Check, Some("unavailable"));
                        tracing::warn!(event = "token.check.failed", session, "{message}");
                    }
                }
                if !self.awaits_replacement() {
                    self.publish_checked();
                }
            }
        }
        if self.held.is_some() {
            self.check_later(now);
        }
        self.answer_ring();
    }

    /// A look-up was denied without a reason.
    fn denied(&mut self, message: &str) {
        let Some(held) = &mut self.held else { return };
        // A policy is asked about tokens that are known alone.
        held.standing = Standing::Good;
        self.suspicions.confirm();
        let session = &self.options.name;
        match held.looks {
            Looks::Untried | Looks::Forbidden => {
                held.looks = Looks::Forbidden;
                tracing::debug!(event = "token.check.refused", session, "{message}");
            }
            Looks::Doubted => tracing::debug!(event = "token.check.doubted", session, "{message}"),
            Looks::Allowed => {
                held.looks = Looks::Doubted;
                tracing::warn!(
                    event = "token.check.doubted",
                    session,
                    "the token may be dead, or its policies have changed: a login is to replace it; {message}"
                );
                self.last_error = Some(message.to_owned());
                if self.work.is_none() {
                    self.plan(Last::Well);
                }
            }
        }
        self.save();
    }

    pub(super) fn check_later(&mut self, now: ClockReading) {
        let lookable = self.held.as_ref().is_some_and(Held::can_be_looked_up);
        let interval = self.options.check_interval.filter(|_| lookable);
        self.next_check = interval.map(|interval| next_check(now, interval, random_unit()));
    }

    /// The server says that the token is dead.
    fn died(&mut self, message: &str) {
        let session = &self.options.name;
        tracing::warn!(event = "token.dead", session, "the server no longer knows the token: {message}");
        self.last_error = Some(message.to_owned());
        self.mark_checked();
        self.lose("the token was revoked or lost by the server");
    }

    pub(super) fn expire(&mut self) {
        let session = &self.options.name;
        tracing::warn!(event = "token.expired", session, "the token has ended and nothing could replace it in time");
        self.lose("the token has expired");
    }

    fn lose(&mut self, absence: &'static str) {
        self.absence = absence;
        self.held = None;
        self.look = None;
        self.next_check = None;
        if self.renewing {
            self.renewing = false;
            self.work = None;
        }
        self.plan(Last::Failed);
        self.publish();
        self.save();
        self.answer_ring();
    }

    pub(super) fn clock_jumped(&mut self) {
        let now = self.clock.now();
        self.report.metrics.clock_jumps.inc();
        tracing::info!(event = "clock.jump", session = self.options.name, "the clock was set, or the machine slept");
        if let Some(held) = &mut self.held {
            held.follow_wall_clock(&self.clock);
            self.publish();
            self.save();
            // Clocks that are set all the time must not make calls all the time.
            if self.jump_looked.is_none_or(|looked| now.since(looked) >= JUMP_LOOKS_APART) {
                self.jump_looked = Some(now);
                self.start_look();
            }
        }
    }
}

/// A session in good order has one at a time; each costs a call at the end.
const MOST_REPLACED: usize = 4;
const REFUSAL_HOLDS: Duration = Duration::from_hours(1);
const JUMP_LOOKS_APART: Duration = Duration::from_mins(1);

fn failure(error: &LoginError, now: ClockReading) -> Failure {
    match error {
        LoginError::Unavailable { .. } => Failure::Passing,
        LoginError::Refused { .. } | LoginError::Bug { .. } => Failure::Refused,
        LoginError::Clock { cure: Cure::Refetch, .. } => Failure::Clock(Duration::ZERO),
        LoginError::Clock { cure: Cure::Wait(until), .. } => {
            until.map_or(Failure::Refused, |until| Failure::Clock(until.duration_since(now.wall).unwrap_or_default()))
        }
        LoginError::NoProof(error) => match error.class {
            Class::Config | Class::Denied => Failure::Refused,
            Class::NotReady | Class::Throttled | Class::Transient => Failure::Identity,
        },
    }
}
