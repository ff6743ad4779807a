//! How a keeper starts: with what the last process left, or with nothing.

use std::sync::Arc;
use std::time::Duration;

use super::TokenKeeper;
use crate::agent::token_lifecycle::current_token::Held;
use crate::agent::token_lifecycle::inflight;
use crate::agent::token_lifecycle::retry_budget::Pace;
use crate::agent::token_lifecycle::schedule::Step;
use crate::agent::token_lifecycle::session_state::Kept;
use crate::agent::token_lifecycle::status_reporter::words;
use crate::backoff::random_unit;
use crate::error_chain::format_chain;
use crate::time_format::format_rfc3339;

impl TokenKeeper {
    /// Takes up what the last process left; if that is no token, plans the first login.
    pub(super) async fn start(&mut self) {
        let Kept { pace, held, last_error, changed, refused } = self.load().await;
        let now = self.clock.now();
        if let Some(record) = pace {
            self.pace = Pace::resume(&record, now);
        }
        if changed {
            self.pace.forget_failures(now);
        } else if self.pace.failures() > 0 {
            self.last_error = last_error;
        }
        if let Some(refused) = refused {
            let (session, error) = (&self.options.name, format_chain(&refused));
            tracing::warn!(event = "state.refused", session, error, "what the last process left is not taken");
        }
        // A token that the session before this one has handed over is newer than the file.
        if let Some(held) = held.filter(|_| self.held.is_none()) {
            self.resume(held).await;
        }
        self.plan(self.last());
        if self.held.is_none() {
            self.tell_of_a_wait();
            let splayed = now + self.options.login_jitter.mul_f64(random_unit());
            if let Step::LoginAt(at) = self.next
                && splayed.boot > at.boot
            {
                self.next = Step::LoginAt(splayed);
            }
            self.publish();
        }
    }

    /// Says so where the first login has to wait for what the last process met, until when, and why.
    fn tell_of_a_wait(&mut self) {
        let now = self.clock.now();
        let wait = self.next.at().map(|at| now.until(at)).unwrap_or_default();
        if wait < WORTH_TELLING {
            return;
        }
        let failures = self.pace.failures();
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
            wait = words(wait),
            "no login before then: {cause}"
        );
        self.last_error.get_or_insert(cause);
    }

    async fn load(&mut self) -> Kept {
        let Some(archive) = self.archive.take() else { return Kept::default() };
        let now = self.clock.now();
        let read = tokio::task::spawn_blocking(move || {
            let kept = archive.load(now);
            (archive, kept)
        });
        match tokio::time::timeout(LOAD_LIMIT, read).await {
            Ok(Ok((archive, kept))) => {
                self.archive = Some(archive);
                kept
            }
            // A disk that does not answer now will not do so later; the session lives without it.
            _ => Kept::default(),
        }
    }

    /// Asks the server about a token that the last process left. If it is slow or away, the token is good to its end.
    async fn resume(&mut self, held: Held) {
        let may_look = held.can_be_looked_up() && self.pace.spare(self.clock.now());
        let session = self.options.name.clone();
        tracing::info!(event = "state.resumed", session, "a token of the last process is taken up");
        let mut look = may_look.then(|| inflight::look(self.login.clone(), Arc::clone(&held.token)));
        self.take(held);
        self.save();
        if let Ok((generation, result)) = tokio::time::timeout(RESUME_WAIT, inflight::of(&mut look)).await {
            look = None;
            self.look_done(generation, result);
        }
        self.look = look;
        if self.held.is_some() {
            self.publish();
        }
    }
}

/// Shorter waits are backoff as usual.
const WORTH_TELLING: Duration = Duration::from_secs(2);
const LOAD_LIMIT: Duration = Duration::from_secs(5);
const RESUME_WAIT: Duration = Duration::from_secs(1);
