//! What callers are answered: the server's answer as it comes, or one of the agent's own.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{Either, Full};

use super::screen::FilteredBody;
use super::session_token::TokenUnavailable;
use crate::agent::json_response::{Errors, error, retry_later};

/// The body of an answer.
pub type ProxyBody = Either<FilteredBody, Full<Bytes>>;

/// An answer of the agent's own, as a body that callers are sent.
pub(super) fn own(answer: Response<Full<Bytes>>) -> Response<ProxyBody> {
    answer.map(Either::Right)
}

/// A refusal in words.
pub(super) fn refuse(status: StatusCode, why: &str) -> Response<ProxyBody> {
    own(error(status, why))
}

/// A refusal that may pass.
pub(super) fn wait(status: StatusCode, why: &str, retry_after: Duration) -> Response<ProxyBody> {
    own(retry_later(status, &Errors { errors: [why] }, retry_after))
}

/// The session has no token.
pub(super) fn absent(absent: &TokenUnavailable) -> Response<ProxyBody> {
    wait(StatusCode::SERVICE_UNAVAILABLE, &absent.reason, absent.retry_after)
}

/// The server's answer has ended before its end.
pub(super) fn truncated_response() -> Response<ProxyBody> {
    wait(StatusCode::BAD_GATEWAY, "the server's answer broke off", Duration::from_secs(1))
}

/// Whether a status leads elsewhere, where a client would take its token, or the listener's key.
pub(super) const fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
