//! A session, or a caller's own token in its place, as a listener serves it.

use std::sync::Arc;
use std::time::Duration;

use super::token::TokenReader;
use crate::agent::token::{SessionHandle, TokenWatch};
use crate::audit::AuditedRequest;
use crate::clock::Clock;
use crate::credential_watch::Availability;

/// A session that a listener serves, or the token of a caller's own that stands in for the session's.
#[derive(Clone)]
pub(super) struct ServedSession {
    pub(super) handle: SessionHandle,
    pub(super) reader: Arc<TokenReader>,
    /// Its token is a caller's own.
    pub(super) is_own: bool,
}

impl ServedSession {
    pub(super) fn new(name: String, handle: SessionHandle, clock: Clock) -> Self {
        let reader = Arc::new(TokenReader::new(name, handle.watch.clone(), clock));
        Self { handle, reader, is_own: false }
    }

    /// Returns true if the session serves a caller's own token that does not exist yet; its creation may be in progress.
    pub(super) fn is_missing_own_token(&self) -> bool {
        self.is_own && !self.reader.has_changed(None)
    }
}

/// Notes the token that is served for the audit.
pub(super) fn note_token(audited: &AuditedRequest, session: &Arc<str>, watch: &TokenWatch) {
    watch.with(|reading| match &reading.availability {
        Availability::Available(token) => audited.use_token(session, token.accessor.as_deref()),
        Availability::Unavailable { .. } => audited.use_token(session, None),
    });
}

/// Bounds the wait for the creation of a caller's own token, without a `wait` of the request.
pub(super) const OWN_TOKEN_WAIT: Duration = Duration::from_secs(5);
