//! Responses in Vault's format.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use keyward_telemetry::time_format::format_http_date;
use serde_json::{Map, Value, json};

use super::faults::CannedResponse;
use super::go_json;
use super::tokens::random_text;

/// A complete HTTP response.
pub(super) type Reply = Response<ReplyBody>;

/// Response body framed as by Go's net/http without an explicit length: up to 2,048 bytes with `Content-Length`, above
/// that chunked (its `bufferBeforeChunkingSize`).
#[derive(Debug, Default)]
pub(super) struct ReplyBody(Full<Bytes>);

const CHUNKED_ABOVE: u64 = 2048;

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let exact = self.0.size_hint();
        if exact.lower() > CHUNKED_ABOVE { SizeHint::default() } else { exact }
    }
}

/// A response that can still be wrapped.
#[derive(Debug)]
pub(super) enum WrappableResponse {
    Json(StatusCode, Value),
    /// JSON whose bytes a handler wrote itself: without the line break that Go's encoder adds to others.
    Raw(StatusCode, Value),
    /// Another type of content, such as PEM.
    Text(&'static str, String),
    /// Success without content.
    Nothing,
}

impl WrappableResponse {
    /// Converts to an HTTP response.
    pub(super) fn reply(self) -> Reply {
        match self {
            Self::Json(status, body) => whole(status, JSON, go_json::to_text(&body) + "\n"),
            Self::Raw(status, body) => whole(status, JSON, go_json::to_text(&body)),
            Self::Text(content_type, text) => whole(StatusCode::OK, content_type, text),
            Self::Nothing => whole(StatusCode::NO_CONTENT, JSON, String::new()),
        }
    }

    /// Sends a success with another status, which the real server's engines do by bytes of their own.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        match self {
            Self::Json(_, body) | Self::Raw(_, body) => Self::Raw(status, body),
            Self::Text(..) | Self::Nothing => self,
        }
    }
}

/// Builds a success with one part of the envelope.
pub(super) fn success(key: &str, value: Value) -> WrappableResponse {
    WrappableResponse::Json(StatusCode::OK, envelope(&random_text(), key, value))
}

/// Builds a success whose `data` is also in the envelope itself, as in the oldest parts of the API.
pub(super) fn success_at_both_levels(data: Map<String, Value>) -> WrappableResponse {
    let mut response = envelope(&random_text(), "data", Value::Object(data.clone()));
    if let Some(fields) = response.as_object_mut() {
        fields.extend(data);
    }
    WrappableResponse::Json(StatusCode::OK, response)
}

/// Builds a success with a lease.
pub(super) fn build_leased(id: &str, ttl: Duration, renewable: bool, value: Value) -> WrappableResponse {
    let mut response = envelope(&random_text(), "data", value);
    response["lease_id"] = id.into();
    response["lease_duration"] = ttl.as_secs().into();
    response["renewable"] = renewable.into();
    WrappableResponse::Json(StatusCode::OK, response)
}

/// Builds an error: `{"errors": [...]}`.
pub(super) fn refusal(status: StatusCode, message: &str) -> WrappableResponse {
    WrappableResponse::Json(status, json!({ "errors": [message] }))
}

/// Builds the 404 for a path that no engine has.
pub(super) fn no_route(path: &str) -> WrappableResponse {
    refusal(StatusCode::NOT_FOUND, &format!("no handler for route {path:?}. route entry not found."))
}

/// Builds a 405 without messages.
pub(super) fn method_not_allowed() -> WrappableResponse {
    WrappableResponse::Json(StatusCode::METHOD_NOT_ALLOWED, json!({ "errors": [] }))
}

/// Builds a 404 with a warning: the real server's response to a path that its engine does not have.
pub(super) fn not_found_with_warning(warning: &str) -> WrappableResponse {
    let response = envelope(&random_text(), "warnings", json!([warning]));
    WrappableResponse::Raw(StatusCode::NOT_FOUND, response)
}

/// Builds a 404 without messages.
pub(super) fn empty() -> WrappableResponse {
    WrappableResponse::Json(StatusCode::NOT_FOUND, json!({ "errors": [] }))
}

/// Builds an HTML page, which no client expects.
pub(super) fn garbage() -> Reply {
    whole(StatusCode::OK, "text/html", "<html><body>It works!</body></html>".to_owned())
}

/// Builds a response set by fault injection.
pub(super) fn build_canned(canned: CannedResponse) -> Reply {
    let status = StatusCode::from_u16(canned.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = whole(status, JSON, canned.body);
    if let Some(value) = canned.retry_after.and_then(|value| HeaderValue::from_str(&value).ok()) {
        reply.headers_mut().insert(header::RETRY_AFTER, value);
    }
    reply
}

/// Sets `Date` by the emulated clock; the HTTP library would use the machine's.
pub(super) fn date(reply: &mut Reply, now: SystemTime) {
    if let Ok(value) = HeaderValue::from_str(&format_http_date(now)) {
        reply.headers_mut().insert(header::DATE, value);
    }
}

/// Builds the envelope of every success, with one of `auth`, `data` and `wrap_info` set.
pub(super) fn envelope(request_id: &str, key: &str, value: Value) -> Value {
    let mut envelope = json!({
        "request_id": request_id, "lease_id": "", "renewable": false, "lease_duration": 0,
        "data": null, "wrap_info": null, "warnings": null, "auth": null,
    });
    envelope[key] = value;
    envelope
}

fn whole(status: StatusCode, content_type: &'static str, body: String) -> Reply {
    let mut reply = Reply::new(ReplyBody(Full::new(Bytes::from(body))));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::SERVER, HeaderValue::from_static("keyward-emulated-secrets"));
    // Sent over plain HTTP too.
    headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000; includeSubDomains"));
    reply
}

const JSON: &str = "application/json";
