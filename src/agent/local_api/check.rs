//! `POST /agent/v1/check`: a caller's word that the token may be dead. The session's keeper looks, once for all who ask.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use super::token::{TokenLookup, TokenReader};
use crate::agent::json_response::{json, retry_later};
use crate::agent::token::{Token, TokenWatch};
use crate::clock::{Clock, ClockReading};
use crate::credential_watch::{CredentialState, RefreshRequest, RefreshSignal};
use crate::time_format::format_rfc3339;

/// How long a caller waits for the keeper's look. A login that follows may take longer; the token's waiters wait for it.
const TIMEOUT: Duration = Duration::from_secs(15);

/// What a check answers.
#[derive(Debug, Serialize)]
pub(super) struct SessionReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<[&'static str; 1]>,
    /// Whether there is a token to serve.
    serving: bool,
    /// The token's generation: another one than before means that the token was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// When the server was last asked, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_checked: Option<String>,
    /// How long ago that is, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    age: Option<u64>,
}

/// Rings and waits for the look.
pub(super) async fn check(
    reader: Arc<TokenReader>,
    mut watch: TokenWatch,
    refresh_signal: RefreshSignal,
    clock: Clock,
    stop: CancellationToken,
) -> Response<Full<Bytes>> {
    let before = watch.current();
    if let RefreshRequest::RateLimited { retry_after } = refresh_signal.request() {
        let report = report(&reader, &before, &clock, Some("asked too often; this is the last result"));
        return retry_later(StatusCode::TOO_MANY_REQUESTS, &report, retry_after);
    }
    let looked = async {
        tokio::select! {
            () = moved(&mut watch, before.last_checked) => {}
            () = refresh_signal.wait() => {}
        }
    };
    tokio::select! {
        () = looked => {}
        () = tokio::time::sleep(TIMEOUT) => {}
        () = stop.cancelled() => {}
    }
    let after = watch.current();
    if after.last_checked == before.last_checked {
        let report = report(&reader, &after, &clock, Some("the server gave no answer about the token yet"));
        return retry_later(StatusCode::SERVICE_UNAVAILABLE, &report, Duration::from_secs(1));
    }
    json(StatusCode::OK, &report(&reader, &after, &clock, None))
}

async fn moved(watch: &mut TokenWatch, from: Option<ClockReading>) {
    while watch.current().last_checked == from {
        if watch.changed().await.is_err() {
            // Its maker has ended: there is nothing to wait for but the patience's end.
            std::future::pending::<()>().await;
        }
    }
}

/// How the session is now.
pub(super) fn report(
    reader: &TokenReader,
    reading: &CredentialState<Token>,
    clock: &Clock,
    error: Option<&'static str>,
) -> SessionReport {
    let (generation, reason) = match reader.look(reading) {
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
