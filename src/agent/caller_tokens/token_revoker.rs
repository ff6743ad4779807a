//! Revokes the tokens of a process that has ended.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_machine::clock::Clock;
use keyward_telemetry::error_chain::format_chain;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::server_client::{CallError, ServerClient, TokenVerdict};
use crate::token::{Generation, Token, TokenWatch};

/// Revokes tokens by their accessors, with the session's token. Where that has no right to do so, each token revokes itself,
/// which the `default` policy allows.
#[derive(Debug)]
pub(super) struct TokenRevoker {
    pub(super) upstream: ServerClient,
    pub(super) namespace: Option<String>,
    /// The session's token.
    pub(super) session: TokenWatch,
    pub(super) clock: Clock,
    /// Login whose token the server refused a revocation by accessor, so that none is tried again with it.
    pub(super) denied: Mutex<Option<Generation>>,
}

/// Outcome of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revocation {
    Revoked,
    /// The server does not know the token any more, or it has expired.
    Gone,
    Failed,
}

impl Revocation {
    /// Describes it for the log.
    pub(super) const fn describe(self) -> &'static str {
        match self {
            Self::Revoked => "revoked the token of an ended process",
            Self::Gone => "the token of an ended process was no longer valid",
            Self::Failed => "did not revoke the token of an ended process",
        }
    }

    /// Value of the metric's label.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Gone => "gone",
            Self::Failed => "failed",
        }
    }
}

impl TokenRevoker {
    /// Revokes a token. Tries again while the server is unavailable, until the token expires; once only after `stop`.
    pub(super) async fn revoke(&self, token: &Arc<Token>, output: &str, stop: &CancellationToken) -> Revocation {
        let mut backoff = Backoff::UPSTREAM;
        loop {
            if token.expires.is_some_and(|end| self.clock.has_reached(end)) {
                return Revocation::Gone;
            }
            let Err(error) = self.try_revoke(token).await else { return Revocation::Revoked };
            if is_gone(&error) {
                return Revocation::Gone;
            }
            let verdict = error.verdict();
            let is_transient = verdict == TokenVerdict::Unavailable;
            let wait = backoff.next(random_unit()).max(error.retry_after().unwrap_or_default()).max(MIN_WAIT);
            let waited = async { tokio::time::sleep(wait).await };
            if is_transient && stop.run_until_cancelled(waited).await.is_some() {
                continue;
            }
            let hint = if verdict == TokenVerdict::Suspect { MAY_BE_VALID } else { "" };
            tracing::warn!(
                event = "token.derived.revoke_failed",
                output,
                accessor = token.accessor,
                error = format!("{}{hint}", format_chain(&error)),
                "the token of a process that has ended could not be revoked; it stays valid until it expires"
            );
            return Revocation::Failed;
        }
    }

    async fn try_revoke(&self, token: &Token) -> Result<(), CallError> {
        let namespace = self.namespace.as_deref();
        let session = self.session.peek().availability.available();
        if let (Some(session), Some(accessor)) = (session, &token.accessor)
            && self.denied() != Some(session.generation)
        {
            let revoked = self.upstream.revoke_accessor(&session.secret, accessor, namespace).await;
            match revoked {
                Err(error) if matches!(error.verdict(), TokenVerdict::Denied | TokenVerdict::Suspect) => {
                    *self.denied.lock() = Some(session.generation);
                }
                // The session's token is dead, and perhaps not this one.
                Err(error) if error.is_token_dead() => {}
                revoked => return revoked,
            }
        }
        self.upstream.revoke_self(&token.secret, namespace).await
    }

    fn denied(&self) -> Option<Generation> {
        *self.denied.lock()
    }
}

/// Returns true if the server does not know the token: an unknown accessor is a 400 or a 404, an unknown token a 403 that says so.
fn is_gone(error: &CallError) -> bool {
    match error {
        CallError::Status { status: 400 | 404, errors, .. } => {
            errors.iter().any(|text| text.contains("invalid accessor"))
        }
        other => other.is_token_dead(),
    }
}

/// Follows the error of a bare denial.
const MAY_BE_VALID: &str = "; the token may still be valid: a live one is refused so from outside its bound addresses, and by OpenBao a dead one";

/// Bounds the rate of attempts.
const MIN_WAIT: Duration = Duration::from_secs(1);
