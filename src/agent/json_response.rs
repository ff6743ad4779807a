//! Builds the agent's own responses to local callers: JSON, with errors as `{"errors": ["message"]}`, as Vault writes them.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use keyward_http::guard::GuardRejection;

/// Builds a response with this body. Headers forbid caches to store it and browsers to guess its type.
pub(super) fn with_body(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = json_bytes(status, body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Builds a response from serialized JSON. Cloning the shared headers costs half of building them for each response.
pub(super) fn json_bytes(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    static HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
        let headers = [(CONTENT_TYPE, JSON), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
        headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
    });
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = HEADERS.clone();
    response
}

/// Builds a response with `value` as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    // Fails only for maps with keys that are not strings; none of ours has such keys.
    let body = serde_json::to_vec(value).unwrap_or_default();
    json_bytes(status, body.into())
}

/// Builds an error response.
pub(super) fn error(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    json(status, &Errors { errors: [message] })
}

/// Builds an error response with `Retry-After`, in whole seconds rounded up, at least one.
pub(super) fn retry_later(status: StatusCode, value: &impl Serialize, retry_after: Duration) -> Response<Full<Bytes>> {
    let mut response = json(status, value);
    let seconds = retry_after.as_secs().saturating_add(u64::from(retry_after.subsec_nanos() > 0));
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    response
}

/// Builds a 405 response; `allowed` lists the methods of the path, such as `GET, PUT`.
pub(super) fn method_not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &format!("this path takes {allowed}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Builds the response to a request that the guard rejected.
pub(super) fn rejection_response(rejection: &GuardRejection) -> Response<Full<Bytes>> {
    let mut response = error(rejection.status, &rejection.message);
    if rejection.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Body of every error response.
#[derive(Debug, Serialize)]
pub(super) struct Errors<'a> {
    /// One message for the caller, without secrets.
    pub(super) errors: [&'a str; 1],
}

const JSON: &str = "application/json";
