//! Finds the caller token for a request, or waits for it: it replaces the session's token in the caller's requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use keyward_credentials::credential_watch::Availability;
use keyward_http::peer::PeerIdentity;

use super::process_tokens::{ProcessTokenRefusal, ProcessTokens};
use super::token::CallerToken;
use crate::callers::{AdmittedCaller, CallerRefusal};
use crate::token::{SessionHandle, TokenWatch};

/// Tokens of all callers that have one of their own, by caller and session. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CallerTokens(Arc<BTreeMap<(String, String), Source>>);

/// Source of a caller token for one session.
#[derive(Debug, Clone)]
pub enum Source {
    /// One token for all processes of the caller.
    Shared(CallerToken),
    /// A token for each process.
    Process(ProcessTokens),
}

impl CallerTokens {
    /// Creates the set from sources, by caller and session.
    pub fn new(sources: BTreeMap<(String, String), Source>) -> Self {
        Self(Arc::new(sources))
    }

    /// Returns the caller token of an admitted caller for a session; `None` if the caller uses the session's token.
    ///
    /// # Errors
    /// The caller token is not available: the recorded refusal.
    pub(crate) fn resolve(
        &self,
        caller: &AdmittedCaller<'_>,
        session: &str,
    ) -> Result<Option<CallerToken>, CallerRefusal> {
        let Some((name, _, identity)) = caller.token_options() else { return Ok(None) };
        // Refuse if the caller token is missing: the session's token has more rights.
        match self.0.get(&(name.to_owned(), session.to_owned())) {
            Some(Source::Shared(token)) => Ok(Some(token.clone())),
            Some(Source::Process(tokens)) => {
                let token = tokens.get(identity);
                token.map(Some).map_err(|refusal| caller.refuse(refusal.into_caller_refusal(name)))
            }
            None => Err(caller.refuse(ProcessTokenRefusal::NoSource.into_caller_refusal(name))),
        }
    }

    /// Returns the token of the caller's process for a session, to be waited for; `None` if the caller has no token of its own or
    /// its processes share one.
    pub(crate) fn process_token(&self, caller: &AdmittedCaller<'_>, session: &str) -> Option<PendingProcessToken> {
        let (name, _, identity) = caller.token_options()?;
        match self.0.get(&(name.to_owned(), session.to_owned()))? {
            Source::Shared(_) => None,
            Source::Process(tokens) => Some(PendingProcessToken {
                caller: name.to_owned(),
                tokens: tokens.clone(),
                identity: Arc::clone(identity),
            }),
        }
    }
}

/// Token of a caller's process, which may not exist yet.
#[derive(Debug)]
pub(crate) struct PendingProcessToken {
    caller: String,
    tokens: ProcessTokens,
    identity: Arc<PeerIdentity>,
}

impl PendingProcessToken {
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

impl ProcessTokenRefusal {
    fn into_caller_refusal(self, caller: &str) -> CallerRefusal {
        let (status, reason, message, retry_after) = match self {
            Self::NoSource => {
                let message = format!("no token is derived from that session for caller {caller}");
                (StatusCode::FORBIDDEN, "token_source", message, None)
            }
            Self::NoProcess => {
                let message = format!(
                    "caller {caller} needs the process of the connection, which the kernel does not report here; use a unix socket in the same PID namespace"
                );
                (StatusCode::FORBIDDEN, "token_process", message, None)
            }
            Self::Ended => {
                let message = "the process that opened this connection has ended; reconnect".to_owned();
                (StatusCode::FORBIDDEN, "ended", message, None)
            }
            Self::Full { max, retry_after } => {
                let message = format!(
                    "caller {caller} has reached its limit of {max} process tokens; retry when one of its processes has ended"
                );
                (StatusCode::SERVICE_UNAVAILABLE, "token_limit", message, Some(retry_after))
            }
            Self::RateLimited { retry_after } => {
                let message =
                    format!("too many tokens were created for caller {caller}; retry later, or reuse one process");
                (StatusCode::TOO_MANY_REQUESTS, "token_rate", message, Some(retry_after))
            }
            Self::Unavailable { reason, retry_after } => {
                (StatusCode::SERVICE_UNAVAILABLE, "token_failed", reason.to_string(), Some(retry_after))
            }
        };
        CallerRefusal { status, reason, message, retry_after }
    }
}
