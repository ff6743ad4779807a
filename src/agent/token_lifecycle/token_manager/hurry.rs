//! Tries that come sooner than the backoff: callers wait, or somebody asks for one.

use std::sync::Arc;
use std::time::Duration;

use super::TokenKeeper;
use crate::agent::identity::IdentityProof;
use crate::agent::login::LoginError;
use crate::agent::token::Token;
use crate::agent::token_lifecycle::current_token::Standing;
use crate::agent::token_lifecycle::schedule::Step;
use crate::backoff::random_unit;
use crate::clock::ClockReading;
use crate::demand::Retried;

impl TokenKeeper {
    /// Callers wait, or have asked for a try.
    pub(super) fn demanded(&mut self) {
        self.retries.extend(self.refresh_signal.demand().take_retries());
        if !self.retries.is_empty() {
            self.retry();
        }
        self.hurry();
    }

    /// Brings the login that is planned forward, where there is no token and callers wait for one.
    pub(super) fn hurry(&mut self) {
        let idle = self.held.is_none() && self.work.is_none() && !self.for_caller;
        if !idle || !self.refresh_signal.demand().is_waited_for() {
            return;
        }
        let sooner = self.pace.next_for_caller(self.clock.now(), random_unit());
        if let (Step::LoginAt(at), Some(sooner)) = (self.next, sooner)
            && sooner.boot < at.boot
        {
            self.next = Step::LoginAt(sooner);
            self.for_caller = true;
            // Who is told to come back is told when.
            self.publish();
        }
    }

    fn retry(&mut self) {
        let now = self.clock.now();
        let fails = self.pace.failures() + self.pace.renewal_failures() > 0;
        let good = self.held.as_ref().is_some_and(|held| held.standing == Standing::Good && !held.outdated);
        if good && !fails {
            return self.answer_retries(Retried::NotNeeded);
        }
        if self.work.is_some() {
            return;
        }
        let at = self.pace.next_on_demand(now);
        let after = now.until(at);
        if !after.is_zero() {
            return self.answer_retries(Retried::Later { after });
        }
        tracing::info!(event = "session.retry", session = self.options.name, "a login is tried, as somebody has asked");
        (self.next, self.for_caller) = (Step::LoginAt(now), true);
    }

    pub(super) fn answer_retries(&mut self, answer: Retried) {
        for retry in self.retries.drain(..) {
            // Who asked may have gone.
            let _ = retry.send(answer);
        }
    }

    /// Keeps the proof of a login that the server did not judge: the next try needs no other.
    pub(super) fn keep_proof(&mut self, result: &Result<Token, LoginError>, proof: Option<Arc<IdentityProof>>) {
        let unjudged = matches!(result, Err(LoginError::Unavailable { .. }));
        let got = self.proof.take().map(|(_, got)| got);
        self.proof = proof.filter(|_| unjudged).map(|proof| (proof, got.unwrap_or_else(|| self.clock.now())));
    }

    /// The proof that is kept, where it was got a short time ago and lives on for a minute.
    pub(super) fn usable_proof(&mut self, now: ClockReading) -> Option<Arc<IdentityProof>> {
        let usable = |(proof, got): &(Arc<IdentityProof>, ClockReading)| {
            let IdentityProof::Signed(signed) = &**proof else { return false };
            let ends = signed.claims.as_ref().and_then(|claims| claims.exp);
            let lives = ends.is_some_and(|ends| ends.duration_since(now.wall).is_ok_and(|left| left > LEAST));
            lives && now.since(*got) < KEPT
        };
        self.proof = self.proof.take().filter(usable);
        self.proof.as_ref().map(|(proof, _)| Arc::clone(proof))
    }
}

const LEAST: Duration = Duration::from_mins(1);
const KEPT: Duration = Duration::from_mins(10);
