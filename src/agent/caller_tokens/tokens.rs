//! Looks up a caller token, which replaces the session's token in the caller's requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;

use super::caller_token::CallerToken;
use super::pending_token::PendingProcessToken;
use super::process_tokens::{ProcessTokenRefusal, ProcessTokens};
use crate::callers::{AdmittedCaller, CallerRefusal};

/// Tokens of all callers that have one of their own, by caller and session. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct CallerTokens(Arc<BTreeMap<(String, String), CallerTokenSource>>);

/// Source of a caller token for one session.
#[derive(Debug, Clone)]
pub enum CallerTokenSource {
    /// One token for all processes of the caller.
    Shared(CallerToken),
    /// A token for each process.
    Process(ProcessTokens),
}

impl CallerTokens {
    /// Creates the set from sources, by caller and session.
    pub fn new(sources: BTreeMap<(String, String), CallerTokenSource>) -> Self {
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
            Some(CallerTokenSource::Shared(token)) => Ok(Some(token.clone())),
            Some(CallerTokenSource::Process(tokens)) => {
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
            CallerTokenSource::Shared(_) => None,
            CallerTokenSource::Process(tokens) => {
                Some(PendingProcessToken::new(name.to_owned(), tokens.clone(), Arc::clone(identity)))
            }
        }
    }
}

impl ProcessTokenRefusal {
    pub(super) fn into_caller_refusal(self, caller: &str) -> CallerRefusal {
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
