//! A session's last act, after the outputs have let its token go.

use std::sync::Arc;
use std::time::Duration;

use super::current_token::Held;
use crate::agent::login::Login;
use crate::agent::token::{Kind, Token, TokenPublisher};
use crate::credential_watch::Availability;
use crate::error_chain::format_chain;

/// What is left of a keeper that was stopped. Readers keep what was published last until this is dropped.
#[derive(Debug)]
#[must_use = "a session that revokes its token at the end does so here"]
pub struct Farewell {
    pub(super) session: String,
    pub(super) publisher: TokenPublisher,
    pub(super) login: Login,
    pub(super) held: Option<Held>,
    /// Tokens that logins replaced and that may live on.
    pub(super) replaced: Vec<Arc<Token>>,
    pub(super) revoke: bool,
}

impl Farewell {
    /// Revokes the token if the session is to do so, and those that it replaced and that have not ended, in at most 5 s
    /// together. Call it when the outputs have let the token go.
    ///
    /// A token that a login replaced is not revoked before this, since what its holders got with it (a database's login, say)
    /// is leased under it and would go with it. Those of a process before this one live to their end.
    ///
    /// Batch and wrapping tokens are not kept by the server in a way that could be revoked; they live to their end.
    pub async fn revoke(self) {
        if !self.revoke {
            return;
        }
        if self.held.is_some() {
            let reason = "the session has ended and its token is revoked".into();
            self.publisher.publish(Availability::Unavailable { reason, retry_after: LIMIT }, None);
        }
        let end = tokio::time::Instant::now() + LIMIT;
        let own = self.held.as_ref().map(|held| &held.token);
        for token in own.into_iter().chain(&self.replaced).filter(|token| token.kind == Kind::Service) {
            self.revoke_one(token, end).await;
        }
    }

    async fn revoke_one(&self, token: &Token, end: tokio::time::Instant) {
        let namespace = self.login.options().namespace.as_deref();
        let call = self.login.upstream().revoke_self(&token.secret, namespace);
        let (session, accessor) = (&self.session, token.accessor.as_deref());
        let error = match tokio::time::timeout_at(end, call).await {
            Ok(Err(error)) if !error.verdict().doubts_token() => format_chain(&error),
            Ok(_) => {
                tracing::info!(event = "token.revoke.ok", session, accessor, "a token of the session is revoked");
                return;
            }
            Err(_) => format!("no answer within {} s", LIMIT.as_secs()),
        };
        tracing::warn!(event = "token.revoke.failed", session, accessor, error, "a token could not be revoked");
    }
}

const LIMIT: Duration = Duration::from_secs(5);
