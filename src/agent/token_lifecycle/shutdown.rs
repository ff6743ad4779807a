//! Shutdown of a session: its token, and those that logins have replaced, are revoked after all outputs have stopped.

use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::Availability;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;

use super::current_token::CurrentToken;
use crate::login::Login;
use crate::token::{Token, TokenKind, TokenPublisher};

/// State of a stopped token manager. Readers keep the last published token until this is dropped.
#[derive(Debug)]
#[must_use = "a session that revokes its token at shutdown does so here"]
pub struct SessionShutdown {
    pub(super) session: String,
    pub(super) publisher: TokenPublisher,
    pub(super) login: Login,
    pub(super) current: Option<CurrentToken>,
    pub(super) replaced: ReplacedTokens,
    pub(super) revoke: bool,
    /// Time for all revocations.
    pub(super) revocation_limit: Duration,
}

impl SessionShutdown {
    /// Revokes the token and the replaced tokens that are alive, if the session is configured so, in at most 5 s together,
    /// less the time that the shutdown has waited for a login.
    ///
    /// Call it after the outputs have stopped. Replaced tokens are not revoked earlier, since secrets that were read with
    /// them (such as a database login) are leased under them and would be revoked too. Tokens of earlier processes are valid to
    /// their end, as do batch and wrapping tokens, which the server cannot revoke.
    pub async fn revoke(self) {
        if !self.revoke {
            return;
        }
        if self.current.is_some() {
            // Before the revocation, so that no reader uses a token that is revoked already.
            let reason = "the session has ended and its token is revoked".into();
            self.publisher.publish(Availability::Unavailable { reason, retry_after: REVOCATION_LIMIT }, None);
        }
        let end = tokio::time::Instant::now() + self.revocation_limit;
        let current = self.current.as_ref().map(|current| &current.token);
        for token in current.into_iter().chain(self.replaced.iter()).filter(|token| token.kind == TokenKind::Service) {
            self.revoke_one(token, end).await;
        }
    }

    async fn revoke_one(&self, token: &Token, end: tokio::time::Instant) {
        let namespace = self.login.options().namespace.as_deref();
        let call = self.login.server().revoke_self(&token.secret, namespace);
        let session = &self.session;
        let accessor = token.accessor.as_deref();
        let error = match tokio::time::timeout_at(end, call).await {
            // A token that the server does not know needs no revocation.
            Ok(Err(error)) if !error.verdict().suspects_token() => format_chain(&error),
            Ok(_) => {
                tracing::info!(event = "token.revoke.ok", session, accessor, "revoked a token of the session");
                return;
            }
            Err(_) => format!("no response within {:.1} s", self.revocation_limit.as_secs_f64()),
        };
        let code = ErrorCode::TokenNotRevoked.as_str();
        tracing::warn!(event = "token.revoke.failed", session, accessor, code, error, "cannot revoke a token");
    }
}

/// Longest time for all revocations of a session, with the wait for a login. The process stops a session's task after 8 s.
pub(super) const REVOCATION_LIMIT: Duration = Duration::from_secs(5);

/// Longest wait for a login in flight, so that time is left to revoke its token.
pub(super) const LOGIN_WAIT: Duration = Duration::from_secs(4);

/// Replaced tokens that may still be alive, oldest first; shutdown revokes them.
#[derive(Debug, Default)]
pub(super) struct ReplacedTokens(Vec<Arc<Token>>);

impl ReplacedTokens {
    /// Adds a replaced token, if there is one, and prunes the others.
    pub(super) fn add(&mut self, token: Option<Arc<Token>>, now: ClockReading) {
        self.0.extend(token);
        self.prune(now);
    }

    /// Drops tokens that have expired, and the oldest beyond [`MAX_REPLACED`].
    pub(super) fn prune(&mut self, now: ClockReading) {
        self.0.retain(|token| token.expires.is_none_or(|ends| !now.until(ends).is_zero()));
        self.0.drain(..self.0.len().saturating_sub(MAX_REPLACED));
    }

    /// Iterates over the tokens.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.0.iter()
    }
}

/// Largest number of replaced tokens; each costs a call at shutdown, and a healthy session has one.
const MAX_REPLACED: usize = 4;
