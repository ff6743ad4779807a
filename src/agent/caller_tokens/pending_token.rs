//! Token of a process that a request waits for, over a login of the session.

use std::sync::Arc;

use super::caller_token::CallerToken;
use super::process_tokens::ProcessTokens;
use crate::callers::CallerRefusal;
use crate::token::{SessionHandle, TokenWatch};
use keyward_credentials::credential_watch::Availability;
use keyward_http::peer::PeerIdentity;

/// Token of a caller's process, which may not exist yet.
#[derive(Debug)]
pub(crate) struct PendingProcessToken {
    caller: String,
    tokens: ProcessTokens,
    identity: Arc<PeerIdentity>,
}

impl PendingProcessToken {
    pub(super) fn new(caller: String, tokens: ProcessTokens, identity: Arc<PeerIdentity>) -> Self {
        Self { caller, tokens, identity }
    }

    /// Returns true while the session has no token, so that none can be derived from it.
    pub(crate) fn is_session_absent(&self) -> bool {
        is_absent(&self.tokens.session().watch)
    }

    /// Returns the token, or starts its creation.
    ///
    /// # Errors
    /// The token is not available: the refusal, which is not recorded.
    pub(crate) fn resolve(&self) -> Result<CallerToken, CallerRefusal> {
        self.tokens.get(&self.identity).map_err(|refusal| refusal.into_caller_refusal(&self.caller))
    }

    /// Waits until the session has a token, which makes its login come sooner, or until it has ended.
    pub(crate) async fn wait_for_session(&self) {
        let SessionHandle { mut watch, refresh_signal } = self.tokens.session().clone();
        let _waiting = refresh_signal.demand().wait();
        loop {
            watch.current();
            if !is_absent(&watch) || watch.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until `is_wanted` returns true for the token. Requests its creation whenever it is missing while the session has a
    /// token. Returns early if that fails, or if the process gets no token for another reason.
    pub(crate) async fn wait(&self, is_wanted: impl Fn(&TokenWatch) -> bool) {
        let SessionHandle { watch: mut session, refresh_signal } = self.tokens.session().clone();
        let _waiting = refresh_signal.demand().wait();
        loop {
            session.current();
            let was_session_absent = is_absent(&session);
            let Ok(token) = self.tokens.get(&self.identity) else {
                // Absent before or after: a change in between wakes the wait.
                let awaits_session = was_session_absent || self.is_session_absent();
                if !awaits_session || session.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let SessionHandle { mut watch, refresh_signal } = token.handle;
            watch.current();
            if is_wanted(&watch) {
                return;
            }
            if !is_absent(&watch) {
                if watch.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let mut manager = watch.clone();
            tokio::select! {
                () = refresh_signal.wait() => {}
                // The manager ends after a creation that failed.
                () = async { while manager.changed().await.is_ok() {} } => {}
            }
            // The session may have lost its token before the creation.
            if is_absent(&watch) && !self.is_session_absent() {
                return;
            }
        }
    }
}

fn is_absent(watch: &TokenWatch) -> bool {
    watch.read(|state| matches!(state.availability, Availability::Unavailable { .. }))
}
