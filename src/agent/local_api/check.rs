//! `POST /agent/v1/check`: has the session check its token, once for all callers that ask.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use keyward_credentials::credential_watch::{CredentialState, RefreshRequest, RefreshSignal};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::time_format::format_rfc3339;
use serde::Serialize;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use super::token::{TokenLookup, TokenReader};
use crate::json_response::{json, retry_later};
use crate::token::{Token, TokenWatch};

/// Bounds the wait for the check. A login that follows may take longer; `GET /agent/v1/token?wait=` waits for it.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Response to a check or a retry.
#[derive(Debug, Serialize)]
pub(super) struct SessionReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<[&'static str; 1]>,
    /// The session has a token.
    serving: bool,
    /// The token's generation, which changes when the token is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<String>,
    /// Reason why there is no token, or no new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Time of the last request to the server about the token (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    last_checked: Option<String>,
    /// Time since then, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    age: Option<u64>,
}

impl SessionReport {
    /// Sets the reason of a session that has a token.
    pub(super) fn with_reason(self, reason: Option<String>) -> Self {
        Self { reason, ..self }
    }
}

/// Requests a check and waits for its result.
pub(super) async fn check(
    reader: Arc<TokenReader>,
    mut watch: TokenWatch,
    refresh_signal: RefreshSignal,
    clock: Clock,
    stop: CancellationToken,
) -> Response<Full<Bytes>> {
    let before = watch.current();
    if let RefreshRequest::RateLimited { retry_after } = refresh_signal.request() {
        let report =
            report(&reader, &before, &clock, Some("too many checks were requested; returning the last result"));
        return retry_later(StatusCode::TOO_MANY_REQUESTS, &report, retry_after);
    }
    let checked = async {
        tokio::select! {
            () = wait_for_check(&mut watch, before.last_checked) => {}
            () = refresh_signal.wait() => {}
        }
    };
    tokio::select! {
        () = checked => {}
        () = tokio::time::sleep(TIMEOUT) => {}
        () = stop.cancelled() => {}
    }
    let after = watch.current();
    if after.last_checked == before.last_checked {
        let report = report(&reader, &after, &clock, Some("the server has not answered the check yet"));
        return retry_later(StatusCode::SERVICE_UNAVAILABLE, &report, Duration::from_secs(1));
    }
    json(StatusCode::OK, &report(&reader, &after, &clock, None))
}

/// Waits for a check after `from` whose result is final: a login may be about to replace a refused token.
async fn wait_for_check(watch: &mut TokenWatch, from: Option<ClockReading>) {
    let is_pending = |state: CredentialState<Token>| state.last_checked == from || state.awaited.is_some();
    while is_pending(watch.current()) {
        if watch.changed().await.is_err() {
            // The session has ended, so only the timeout is left.
            std::future::pending::<()>().await;
        }
    }
}

/// Builds the report of the session's current state.
pub(super) fn report(
    reader: &TokenReader,
    reading: &CredentialState<Token>,
    clock: &Clock,
    error: Option<&'static str>,
) -> SessionReport {
    let (generation, reason) = match reader.lookup(reading) {
        TokenLookup::Token(token) => (Some(token.generation.to_string()), None),
        TokenLookup::None { reason, .. } => (None, Some(reason.to_string())),
    };
    SessionReport {
        errors: error.map(|error| [error]),
        serving: generation.is_some(),
        generation,
        reason,
        last_checked: reading.last_checked.map(|at| format_rfc3339(at.wall)),
        age: reading.last_checked.map(|at| clock.now().since(at).as_secs()),
    }
}
