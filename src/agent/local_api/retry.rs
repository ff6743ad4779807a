//! `POST /agent/v1/retry`: one more login at once, for a session that fails. It waits for its outcome.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio_util::sync::CancellationToken;

use super::SessionHandle;
use super::check::report;
use super::token::{TokenLookup, TokenReader};
use crate::agent::json_response::{json, retry_later};
use crate::clock::Clock;
use crate::demand::Retried;

/// How long a caller waits for the login. It goes on after that.
const TIMEOUT: Duration = Duration::from_secs(30);

const TOO_OFTEN: &str = "no login may be tried yet: the server has asked to wait, or too many were tried";
const UNDER_WAY: &str = "the login is under way";
const IN_VAIN: &str = "there is no token yet";

/// Asks for a login and tells how the session is after it.
pub(super) async fn retry(
    reader: Arc<TokenReader>,
    source: SessionHandle,
    clock: Clock,
    stop: CancellationToken,
) -> Response<Full<Bytes>> {
    let SessionHandle { mut watch, refresh_signal } = source;
    let tried = refresh_signal.demand().retry();
    let retried = tokio::select! {
        retried = tried => retried.ok(),
        () = tokio::time::sleep(TIMEOUT) => None,
        () = stop.cancelled() => None,
    };
    let reading = watch.current();
    let tell = |error| report(&reader, &reading, &clock, error);
    match (retried, reader.look(&reading)) {
        (Some(Retried::Later { after }), _) => {
            retry_later(StatusCode::TOO_MANY_REQUESTS, &tell(Some(TOO_OFTEN)), after)
        }
        (Some(Retried::Tried | Retried::NotNeeded), TokenLookup::Token(_)) => json(StatusCode::OK, &tell(None)),
        (Some(Retried::Tried | Retried::NotNeeded), TokenLookup::None { retry_after, .. }) => {
            retry_later(StatusCode::SERVICE_UNAVAILABLE, &tell(Some(IN_VAIN)), retry_after)
        }
        (None, _) => retry_later(StatusCode::SERVICE_UNAVAILABLE, &tell(Some(UNDER_WAY)), Duration::from_secs(5)),
    }
}
