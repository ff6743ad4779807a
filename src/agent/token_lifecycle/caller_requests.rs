//! Requests of callers to a session: look-ups of its token, and logins sooner than the backoff.

use keyward_credentials::credential_watch::RefreshSignal;
use keyward_credentials::demand::{RetryOutcome, RetryRequest};

/// Requests of a session's callers, until they are complete.
#[derive(Debug)]
pub(super) struct CallerRequests {
    signal: RefreshSignal,
    awaits_lookup: bool,
    retries: Vec<RetryRequest>,
}

/// A request of callers.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallerRequest {
    /// Look the token up, as the server refused it.
    Lookup,
    /// Log in sooner: callers wait for a token, or an operator requests a retry.
    Token,
}

impl CallerRequests {
    pub(super) const fn new(signal: RefreshSignal) -> Self {
        Self { signal, awaits_lookup: false, retries: Vec::new() }
    }

    /// Waits for the next request.
    pub(super) async fn next(&mut self) -> CallerRequest {
        tokio::select! {
            biased;
            () = self.signal.requested() => {
                self.awaits_lookup = true;
                CallerRequest::Lookup
            }
            () = self.signal.demand().changed() => {
                self.retries.extend(self.signal.demand().take_retries());
                CallerRequest::Token
            }
        }
    }

    /// Returns true while a requested look-up is not complete.
    pub(super) const fn awaits_lookup(&self) -> bool {
        self.awaits_lookup
    }

    /// Completes the requested look-up.
    pub(super) fn complete_lookup(&mut self) {
        self.awaits_lookup = false;
        self.signal.complete();
    }

    /// Accepts at least one more look-up, of a new token.
    pub(super) fn allow_lookup(&self) {
        self.signal.allow_one();
    }

    /// Returns true while a caller waits for a token.
    pub(super) fn awaits_token(&self) -> bool {
        self.signal.demand().is_waited_for()
    }

    /// Returns true while an operator's retry is not answered.
    pub(super) const fn awaits_retry(&self) -> bool {
        !self.retries.is_empty()
    }

    /// Returns true while an operator waits for a login that replaces a good token.
    pub(super) fn awaits_replacement(&self) -> bool {
        self.retries.iter().any(|retry| retry.replaces)
    }

    /// Answers the operators' retries.
    pub(super) fn answer_retries(&mut self, response: RetryOutcome) {
        for retry in self.retries.drain(..) {
            // Send only fails if the requester was dropped.
            let _ = retry.answer.send(response);
        }
    }
}
