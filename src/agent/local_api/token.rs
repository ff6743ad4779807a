//! The token itself: serialised once for each state of the watch, and never served past its end.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::agent::json_response::{Errors, json_bytes, retry_later};
use crate::agent::token::{Token, TokenKind, TokenWatch};
use crate::clock::{Clock, ClockReading};
use crate::credential_watch::{Availability, CredentialState};
use crate::time_format::format_rfc3339;

/// ListenerKind one session's token.
#[derive(Debug)]
pub(super) struct TokenReader {
    session: String,
    watch: TokenWatch,
    clock: Clock,
    written: RwLock<Option<CachedResponse>>,
}

/// A token's answer. It holds the token that it was made from, so that the two can be told to belong together by
/// address.
struct CachedResponse {
    token: Arc<Token>,
    body: Bytes,
}

impl std::fmt::Debug for CachedResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Written").field("token", &self.token).finish_non_exhaustive()
    }
}

/// What there is for a caller.
pub(super) enum TokenLookup {
    Token(Arc<Token>),
    None { reason: Arc<str>, retry_after: Duration },
}

impl TokenReader {
    pub(super) fn new(session: String, watch: TokenWatch, clock: Clock) -> Self {
        Self { session, watch, clock, written: RwLock::new(None) }
    }

    /// The answer of this moment.
    pub(super) fn now(&self) -> Response<Full<Bytes>> {
        self.watch.with(|reading| self.answer(reading))
    }

    /// The answer as soon as there is a token of another generation than `after` (any token, where that is not
    /// given); what there is, after `wait` or when the listener stops.
    pub(super) async fn wait(
        self: Arc<Self>,
        after: Option<String>,
        wait: Duration,
        stop: CancellationToken,
    ) -> Response<Full<Bytes>> {
        let mut watch = self.watch.clone();
        let news = async {
            loop {
                if self.is_news(&watch.current(), after.as_deref()) || watch.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = news => {}
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => {}
        }
        self.now()
    }

    /// Whether there is a token of another generation than `after`, so that [`TokenReader::wait`] would not wait.
    pub(super) fn has_news(&self, after: Option<&str>) -> bool {
        self.watch.with(|reading| self.is_news(reading, after))
    }

    fn is_news(&self, reading: &CredentialState<Token>, after: Option<&str>) -> bool {
        match self.look(reading) {
            TokenLookup::Token(token) => after.is_none_or(|after| token.generation.to_string() != after),
            TokenLookup::None { .. } => false,
        }
    }

    /// What a caller may be given: a token whose end has come is none, though its maker has not said so yet.
    pub(super) fn look(&self, reading: &CredentialState<Token>) -> TokenLookup {
        match &reading.availability {
            Availability::Available(token) if self.has_ended(token) => {
                TokenLookup::None { reason: "the token has expired".into(), retry_after: Duration::from_secs(1) }
            }
            Availability::Available(token) => TokenLookup::Token(Arc::clone(token)),
            Availability::Unavailable { reason, retry_after } => {
                TokenLookup::None { reason: Arc::clone(reason), retry_after: *retry_after }
            }
        }
    }

    fn has_ended(&self, token: &Token) -> bool {
        token.expires.is_some_and(|end| self.clock.has_reached(end))
    }

    fn answer(&self, reading: &CredentialState<Token>) -> Response<Full<Bytes>> {
        if let Availability::Available(token) = &reading.availability
            && let Some(written) = &*self.written.read().unwrap_or_else(PoisonError::into_inner)
            && Arc::ptr_eq(token, &written.token)
            && !self.has_ended(token)
        {
            return json_bytes(StatusCode::OK, written.body.clone());
        }
        match self.look(reading) {
            TokenLookup::Token(token) => {
                let body = write(&self.session, &token);
                let written = CachedResponse { token, body: body.clone() };
                *self.written.write().unwrap_or_else(PoisonError::into_inner) = Some(written);
                json_bytes(StatusCode::OK, body)
            }
            TokenLookup::None { reason, retry_after } => {
                *self.written.write().unwrap_or_else(PoisonError::into_inner) = None;
                retry_later(StatusCode::SERVICE_UNAVAILABLE, &Errors { errors: [&reason] }, retry_after)
            }
        }
    }
}

/// What `GET /agent/v1/token` answers.
#[derive(Serialize)]
struct TokenResponse<'a> {
    /// The session's name.
    session: &'a str,
    /// What a client sends to the secrets server.
    token: &'a str,
    /// The server's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    accessor: Option<&'a str>,
    /// Changes with each login, not with a renewal. Opaque: for `after`, and to be compared.
    generation: String,
    /// `service`, `batch` or `wrapping`.
    kind: &'static str,
    /// Whether the server renews it; the agent does that.
    renewable: bool,
    /// Names that the server gave it.
    policies: &'a [String],
    /// When it was got or last renewed, RFC 3339.
    obtained_at: String,
    /// When it ends, RFC 3339, `null` for one that never does. A renewal moves it.
    expires_at: Option<String>,
    /// For a wrapping token: the path that was wrapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_path: Option<&'a str>,
    /// For a wrapping token: when the server made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_time: Option<&'a str>,
}

fn write(session: &str, token: &Token) -> Bytes {
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
    // Large enough not to grow: a buffer that is left behind would keep the token.
    let mut body = Zeroizing::new(Vec::with_capacity(16 * 1024));
    // A vector takes all that is written, and the shape has no key that is no string.
    let _ = serde_json::to_writer(&mut *body, &wire);
    Bytes::from_owner(body)
}
