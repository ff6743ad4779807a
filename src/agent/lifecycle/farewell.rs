//! A session's last act, after the outputs have let its token go.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::login::Login;
use crate::agent::token::{Kind, Token, TokenPublisher};
use crate::feed::State;

/// What is left of a keeper that was stopped. Readers keep what was published last until this is dropped.
#[derive(Debug)]
#[must_use = "a session that revokes its token at the end does so here"]
pub struct Farewell {
    pub(super) session: String,
    pub(super) publisher: TokenPublisher,
    pub(super) login: Login,
    pub(super) token: Option<Arc<Token>>,
    pub(super) revoke: bool,
}

impl Farewell {
    /// Revokes the token if the session is to do so, in at most 5 s. Call it when the outputs have let the token go.
    ///
    /// Batch and wrapping tokens are not kept by the server in a way that could be revoked; they live to their end.
    pub async fn revoke(self) {
        let Some(token) = self.token.filter(|token| self.revoke && token.kind == Kind::Service) else { return };
        let reason = "the session has ended and its token is revoked".into();
        self.publisher.publish(State::None { reason, retry_after: LIMIT }, None);
        let namespace = self.login.options().namespace.as_deref();
        let call = self.login.upstream().revoke_self(&token.secret, namespace);
        let session = self.session;
        match tokio::time::timeout(LIMIT, call).await {
            Ok(Ok(())) => tracing::info!(event = "token.revoke.ok", session, "the session's token is revoked"),
            Ok(Err(error)) => {
                tracing::warn!(event = "token.revoke.failed", session, %error, "the token could not be revoked");
            }
            Err(_) => {
                let error = format!("no answer within {} s", LIMIT.as_secs());
                tracing::warn!(event = "token.revoke.failed", session, error, "the token could not be revoked");
            }
        }
    }
}

const LIMIT: Duration = Duration::from_secs(5);
