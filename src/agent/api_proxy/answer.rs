//! What callers are answered: the server's answer as it comes, or one of the agent's own.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALT_SVC, SET_COOKIE, STRICT_TRANSPORT_SECURITY};
use http::{HeaderMap, HeaderName, Response, StatusCode};
use http_body_util::{Either, Full};

use super::credential::Absent;
use crate::http::answer::{Errors, error, later};
use crate::http::forward::Downstream;

/// The body of an answer.
pub type Answered = Either<Downstream, Full<Bytes>>;

/// An answer of the agent's own, as a body that callers are sent.
pub(super) fn own(answer: Response<Full<Bytes>>) -> Response<Answered> {
    answer.map(Either::Right)
}

/// A refusal in words.
pub(super) fn refuse(status: StatusCode, why: &str) -> Response<Answered> {
    own(error(status, why))
}

/// A refusal that may pass.
pub(super) fn wait(status: StatusCode, why: &str, retry_after: Duration) -> Response<Answered> {
    own(later(status, &Errors { errors: [why] }, retry_after))
}

/// The session has no token.
pub(super) fn absent(absent: &Absent) -> Response<Answered> {
    wait(StatusCode::SERVICE_UNAVAILABLE, &absent.reason, absent.retry_after)
}

/// The server's answer has ended before its end.
pub(super) fn broken_off() -> Response<Answered> {
    wait(StatusCode::BAD_GATEWAY, "the server's answer broke off", Duration::from_secs(1))
}

/// Headers that are the server's word to those who speak with it directly: a client that keeps a cookie would be taken for
/// a browser here, and one that follows the others would leave.
const DIRECT: [HeaderName; 3] = [SET_COOKIE, STRICT_TRANSPORT_SECURITY, ALT_SVC];

/// Makes the headers of the server's answer fit for callers.
pub(super) fn fit(headers: &mut HeaderMap) {
    // Most answers have none of them: to look at what is there costs less than to look for each.
    if headers.keys().any(|name| matches!(name.as_str(), "set-cookie" | "strict-transport-security" | "alt-svc")) {
        for name in DIRECT {
            headers.remove(name);
        }
    }
}

/// Whether a status leads elsewhere, where a client would take its token, or the listener's key.
pub(super) const fn leads_away(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
