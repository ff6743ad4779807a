//! `POST /agent/v1/retry`: one more login at once for a session that fails, or with `force=true` for any; the response waits for
//! its result.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use keyward_credentials::credential_watch::CredentialState;
use keyward_credentials::demand::RetryOutcome;
use keyward_machine::clock::Clock;
use tokio_util::sync::CancellationToken;

use super::check::report;
use super::token::{TokenLookup, TokenReader};
use crate::json_response::{json, retry_later};
use crate::token::{Generation, SessionHandle, Token};

/// Bounds the wait for the login, which continues afterwards.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the generation of the token that is served.
fn generation(reader: &TokenReader, reading: &CredentialState<Token>) -> Option<Generation> {
    match reader.lookup(reading) {
        TokenLookup::Token(token) => Some(token.generation),
        TokenLookup::None { .. } => None,
    }
}

const RATE_LIMITED: &str = "no login is allowed yet: the server asked to wait, or there were too many";
const UNDER_WAY: &str = "the login is under way";
const NOT_REPLACED: &str = "the login failed; the previous token stays in use";
const NO_TOKEN: &str = "there is no token yet";

/// Login that a request asks for.
pub(super) struct RetryQuery {
    /// Log in also if the token is good.
    pub(super) force: bool,
    /// The reader's token is the session's own: a login replaces it.
    pub(super) is_session: bool,
    /// Returns the text of the session's last failure.
    pub(super) last_error: Box<dyn Fn() -> Option<String> + Send>,
}

/// Requests a login and reports the session's state after it.
pub(super) async fn retry(
    reader: Arc<TokenReader>,
    source: SessionHandle,
    request: RetryQuery,
    clock: Clock,
    stop: CancellationToken,
) -> Response<Full<Bytes>> {
    let SessionHandle { mut watch, refresh_signal } = source;
    let before = generation(&reader, &watch.peek());
    let demand = refresh_signal.demand();
    let RetryQuery { force, is_session, last_error } = request;
    let retry = if force { demand.replace() } else { demand.retry() };
    let retried = tokio::select! {
        retried = retry => retried.ok(),
        () = tokio::time::sleep(TIMEOUT) => None,
        () = stop.cancelled() => None,
    };
    let reading = watch.current();
    let report = |error| report(&reader, &reading, &clock, error);
    match (retried, reader.lookup(&reading)) {
        (Some(RetryOutcome::TooEarly { after }), _) => {
            retry_later(StatusCode::TOO_MANY_REQUESTS, &report(Some(RATE_LIMITED)), after)
        }
        (Some(RetryOutcome::Attempted), TokenLookup::Token(token))
            if force && is_session && before == Some(token.generation) =>
        {
            let report = report(Some(NOT_REPLACED)).with_reason(last_error());
            retry_later(StatusCode::SERVICE_UNAVAILABLE, &report, Duration::from_secs(5))
        }
        (Some(RetryOutcome::Attempted | RetryOutcome::NotNeeded), TokenLookup::Token(_)) => {
            json(StatusCode::OK, &report(None))
        }
        (Some(RetryOutcome::Attempted | RetryOutcome::NotNeeded), TokenLookup::None { retry_after, .. }) => {
            retry_later(StatusCode::SERVICE_UNAVAILABLE, &report(Some(NO_TOKEN)), retry_after)
        }
        (None, _) => retry_later(StatusCode::SERVICE_UNAVAILABLE, &report(Some(UNDER_WAY)), Duration::from_secs(5)),
    }
}
