//! A session, or a caller token in its place, as a listener serves it.

use std::sync::Arc;
use std::time::Duration;

use super::token::TokenReader;
use crate::token::{SessionHandle, TokenWatch};
use keyward_credentials::credential_watch::Availability;
use keyward_machine::clock::Clock;
use keyward_telemetry::audit::AuditedRequest;

/// A session that a listener serves, or the caller token that replaces the session's token.
#[derive(Clone)]
pub(super) struct ServedSession {
    pub(super) handle: SessionHandle,
    pub(super) reader: Arc<TokenReader>,
    /// Its token is a caller token.
    pub(super) has_caller_token: bool,
}

impl ServedSession {
    pub(super) fn new(name: String, handle: SessionHandle, clock: Clock) -> Self {
        let reader = Arc::new(TokenReader::new(name, handle.watch.clone(), clock));
        Self { handle, reader, has_caller_token: false }
    }

    /// Returns true if the session serves a caller token that does not exist yet; its creation may be in progress.
    pub(super) fn is_missing_caller_token(&self) -> bool {
        self.has_caller_token && !self.reader.has_changed(None)
    }
}

/// Notes the token that is served for the audit.
pub(super) fn note_token(audited: &AuditedRequest, session: &Arc<str>, watch: &TokenWatch) {
    watch.read(|reading| match &reading.availability {
        Availability::Available(token) => audited.use_token(session, token.accessor.as_deref()),
        Availability::Unavailable { .. } => audited.use_token(session, None),
    });
}

/// Longest wait for the creation of a caller token, without a `wait` of the request.
pub(super) const CALLER_TOKEN_WAIT: Duration = Duration::from_secs(5);
