//! Responses to callers: the server's, as it streams in, or one of the agent's own.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{Either, Full};

use super::leak_filter::FilteredBody;
use super::session_token::TokenUnavailable;
use crate::json_response::{self, Errors};

/// The body of a response: the server's on the left, the agent's own on the right.
pub(crate) type ProxyBody = Either<FilteredBody, Full<Bytes>>;

/// Extension of the 503 for a caller for which no connection to the server is free. Other callers may have one.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoFreeConnection;

/// Converts a response of the agent's own.
pub(super) fn local_response(response: Response<Full<Bytes>>) -> Response<ProxyBody> {
    response.map(Either::Right)
}

/// Builds a final error response with one message.
pub(super) fn error_response(status: StatusCode, message: &str) -> Response<ProxyBody> {
    local_response(json_response::error(status, message))
}

/// Builds an error response with `Retry-After`.
pub(super) fn retry_later(status: StatusCode, message: &str, retry_after: Duration) -> Response<ProxyBody> {
    local_response(json_response::retry_later(status, &Errors { errors: [message] }, retry_after))
}

/// Builds the 503 for a session without a token.
pub(super) fn token_unavailable(cause: &TokenUnavailable) -> Response<ProxyBody> {
    retry_later(StatusCode::SERVICE_UNAVAILABLE, &cause.reason, cause.retry_after)
}

/// Builds the 502 for a response that ended before its declared end.
pub(super) fn truncated_response() -> Response<ProxyBody> {
    retry_later(StatusCode::BAD_GATEWAY, "the response of the server ended early", Duration::from_secs(1))
}

/// Returns true for a redirect: a client that followed it would carry its token, or the listener's key, to another host.
pub(super) const fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
