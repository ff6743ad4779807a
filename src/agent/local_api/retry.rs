//! `POST /agent/v1/retry`: one more login at once for a session that fails; the response waits for its result.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use keyward_credentials::demand::RetryOutcome;
use keyward_machine::clock::Clock;
use tokio_util::sync::CancellationToken;

use super::check::report;
use super::token::{TokenLookup, TokenReader};
use crate::json_response::{json, retry_later};
use crate::token::SessionHandle;

/// Bounds the wait for the login, which continues afterwards.
const TIMEOUT: Duration = Duration::from_secs(30);

const RATE_LIMITED: &str = "no login is allowed yet: the server asked to wait, or there were too many";
const UNDER_WAY: &str = "the login is under way";
const NO_TOKEN: &str = "there is no token yet";

/// Requests a login and reports the session's state after it.
pub(super) async fn retry(
    reader: Arc<TokenReader>,
    source: SessionHandle,
    clock: Clock,
    stop: CancellationToken,
) -> Response<Full<Bytes>> {
    let SessionHandle { mut watch, refresh_signal } = source;
    let retry = refresh_signal.demand().retry();
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
        (Some(RetryOutcome::Attempted | RetryOutcome::NotNeeded), TokenLookup::Token(_)) => {
            json(StatusCode::OK, &report(None))
        }
        (Some(RetryOutcome::Attempted | RetryOutcome::NotNeeded), TokenLookup::None { retry_after, .. }) => {
            retry_later(StatusCode::SERVICE_UNAVAILABLE, &report(Some(NO_TOKEN)), retry_after)
        }
        (None, _) => retry_later(StatusCode::SERVICE_UNAVAILABLE, &report(Some(UNDER_WAY)), Duration::from_secs(5)),
    }
}
