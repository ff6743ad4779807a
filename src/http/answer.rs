//! What is answered to local callers by the agent itself: JSON, an error as `{"errors": ["why"]}`.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use crate::http::guard::Refusal;

/// An answer with this body, which no cache keeps and no browser takes for something else.
pub fn with_body(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = in_json(status, body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// [`with_body`] for JSON, which nearly all answers are: a copy of headers costs half of making them.
pub fn in_json(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    static HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
        let headers = [(CONTENT_TYPE, JSON), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
        headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
    });
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    *answer.headers_mut() = HEADERS.clone();
    answer
}

/// An answer of this value in JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    // Fails for maps with keys that are no strings, which none of ours has.
    let body = serde_json::to_vec(value).unwrap_or_default();
    in_json(status, body.into())
}

/// An error, in words.
pub fn error(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    json(status, &Errors { errors: [message] })
}

/// An error that may pass: `retry_after` tells when to ask again.
pub fn later(status: StatusCode, value: &impl Serialize, retry_after: Duration) -> Response<Full<Bytes>> {
    let mut answer = json(status, value);
    let seconds = retry_after.as_secs().saturating_add(u64::from(retry_after.subsec_nanos() > 0));
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    answer
}

/// A path that takes other methods; `allowed` lists them.
pub fn method_not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, &format!("this path takes {allowed}"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// What the guard has refused.
pub fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut answer = error(refusal.status, &refusal.message);
    if refusal.status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

/// The body of every error.
#[derive(Debug, Serialize)]
pub struct Errors<'a> {
    /// Why, in words fit for a caller.
    pub errors: [&'a str; 1],
}

const JSON: &str = "application/json";
