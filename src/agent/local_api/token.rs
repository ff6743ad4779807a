//! The token that a listener serves for a session: serialised once for each state of the watch, and never served past its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use keyward_credentials::credential_watch::{Availability, CredentialState};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::audit::AuditedRequest;
use keyward_telemetry::time_format::format_rfc3339;
use parking_lot::RwLock;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::json_response::{Errors, json_bytes, retry_later};
use crate::token::{SessionHandle, Token, TokenKind, TokenWatch};

/// Builds the responses about one session's token.
#[derive(Debug)]
pub(super) struct TokenReader {
    session: String,
    watch: TokenWatch,
    clock: Clock,
    cached: RwLock<Option<CachedResponse>>,
}

/// A serialised token in protected memory, with the token itself: comparing addresses shows whether it is current.
struct CachedResponse {
    token: Arc<Token>,
    body: Bytes,
}

impl std::fmt::Debug for CachedResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedResponse").field("token", &self.token).finish_non_exhaustive()
    }
}

/// The token for a caller, or the reason why there is none.
pub(super) enum TokenLookup {
    Token(Arc<Token>),
    None { reason: Arc<str>, retry_after: Duration },
}

impl TokenReader {
    pub(super) fn new(session: String, watch: TokenWatch, clock: Clock) -> Self {
        Self { session, watch, clock, cached: RwLock::new(None) }
    }

    /// Responds with the current token.
    pub(super) fn now(&self) -> Response<Full<Bytes>> {
        self.watch.read(|reading| self.to_response(reading))
    }

    /// Responds as soon as there is a token of another generation than `after` (any token for `None`), or after `wait`, or when
    /// the listener stops.
    pub(super) async fn wait(
        self: Arc<Self>,
        after: Option<String>,
        wait: Duration,
        stop: CancellationToken,
    ) -> Response<Full<Bytes>> {
        let mut watch = self.watch.clone();
        let changed = async {
            loop {
                if self.is_changed(&watch.current(), after.as_deref()) || watch.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => {}
        }
        self.now()
    }

    /// Returns true if there is a token of another generation than `after`, so that [`TokenReader::wait`] would not wait.
    pub(super) fn has_changed(&self, after: Option<&str>) -> bool {
        self.watch.read(|reading| self.is_changed(reading, after))
    }

    fn is_changed(&self, reading: &CredentialState<Token>, after: Option<&str>) -> bool {
        match self.lookup(reading) {
            TokenLookup::Token(token) => after.is_none_or(|after| token.generation.to_string() != after),
            TokenLookup::None { .. } => false,
        }
    }

    /// Returns the token. A token past its end is refused even where the session has not published that yet.
    pub(super) fn lookup(&self, reading: &CredentialState<Token>) -> TokenLookup {
        match &reading.availability {
            Availability::Available(token) if self.has_ended(token) => {
                TokenLookup::None { reason: "the token has expired".into(), retry_after: Duration::from_secs(1) }
            }
            Availability::Available(token) => TokenLookup::Token(Arc::clone(token)),
            Availability::Unavailable { reason, retry_after } => {
                let retry_after = reading.remaining_wait(*retry_after, self.clock.now());
                TokenLookup::None { reason: Arc::clone(reason), retry_after }
            }
        }
    }

    fn has_ended(&self, token: &Token) -> bool {
        token.expires.is_some_and(|end| self.clock.has_reached(end))
    }

    fn to_response(&self, reading: &CredentialState<Token>) -> Response<Full<Bytes>> {
        if let Availability::Available(token) = &reading.availability
            && let Some(cached) = &*self.cached.read()
            && Arc::ptr_eq(token, &cached.token)
            && !self.has_ended(token)
        {
            return json_bytes(StatusCode::OK, cached.body.clone());
        }
        match self.lookup(reading) {
            TokenLookup::Token(token) => {
                let body = serialize(&self.session, &token);
                let cached = CachedResponse { token, body: body.clone() };
                *self.cached.write() = Some(cached);
                json_bytes(StatusCode::OK, body)
            }
            TokenLookup::None { reason, retry_after } => {
                *self.cached.write() = None;
                retry_later(StatusCode::SERVICE_UNAVAILABLE, &Errors { errors: [&reason] }, retry_after)
            }
        }
    }
}

/// Body of the response to `GET /agent/v1/token`.
#[derive(Serialize)]
struct TokenResponse<'a> {
    /// The session's name.
    session: &'a str,
    /// The token that a client sends to Vault or OpenBao.
    token: &'a str,
    /// The token's accessor.
    #[serde(skip_serializing_if = "Option::is_none")]
    accessor: Option<&'a str>,
    /// Changes with each login, not with a renewal. Opaque; the value for `after`.
    generation: String,
    /// `service`, `batch` or `wrapping`.
    kind: &'static str,
    /// The server allows renewals, which the agent does.
    renewable: bool,
    /// Names of the token's policies.
    policies: &'a [String],
    /// Time of the login or the last renewal (RFC 3339).
    obtained_at: String,
    /// End of the token (RFC 3339), which a renewal moves; `null` for no end.
    expires_at: Option<String>,
    /// The path whose response is wrapped; for wrapping tokens only.
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_path: Option<&'a str>,
    /// Time of its creation; for wrapping tokens only.
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_time: Option<&'a str>,
}

fn serialize(session: &str, token: &Token) -> Bytes {
    let wall = |moment: ClockReading| format_rfc3339(moment.wall);
    let (kind, creation) = match &token.kind {
        TokenKind::Service => ("service", None),
        TokenKind::Batch => ("batch", None),
        TokenKind::Wrapping { creation_time, creation_path } => ("wrapping", Some((creation_path, creation_time))),
    };
    let wire = TokenResponse {
        session,
        token: token.secret.secret().expose_secret(),
        accessor: token.accessor.as_deref(),
        generation: token.generation.to_string(),
        kind,
        renewable: token.lease.renewable,
        policies: &token.policies,
        obtained_at: wall(token.obtained),
        expires_at: token.expires.map(wall),
        creation_path: creation.map(|(path, _)| path.as_str()),
        creation_time: creation.map(|(_, time)| time.as_str()),
    };
    // Cannot fail: the map keys are strings.
    let body = serde_json::to_string(&wire).unwrap_or_default();
    Bytes::from_owner(ProtectedBody(SecretString::from(body)))
}

/// Body of a response, which is kept for as long as its token is current, or until the next request after that.
struct ProtectedBody(SecretString);

impl AsRef<[u8]> for ProtectedBody {
    fn as_ref(&self) -> &[u8] {
        self.0.expose_secret().as_bytes()
    }
}

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
