//! Rewrites headers of the platform's responses, and builds the gateway's own responses.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use keyward_http::reverse_proxy::{is_direct, remove_all};
use url::{Position, Url};

use super::body::GatewayBody;
use super::path::{RequestTarget, classify_path};
use crate::jsonapi_error::{JsonApiError, MEDIA_TYPE};

/// Builds a response of the gateway's own.
pub(super) fn local_response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<GatewayBody> {
    let mut response = Response::new(GatewayBody::Buffered(Full::new(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Builds an error response in the platform's format.
pub(super) fn error_responses(errors: &[JsonApiError]) -> Response<GatewayBody> {
    let status = errors.first().map_or(StatusCode::BAD_REQUEST, |error| error.status);
    let mut response = local_response(status, MEDIA_TYPE, JsonApiError::document(errors));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Builds a response with one error.
pub(super) fn error_response(status: StatusCode, detail: impl Into<String>) -> Response<GatewayBody> {
    error_responses(&[JsonApiError::new(status, detail)])
}

/// Builds the 503 for a request whose audit record cannot be kept.
pub fn unaudited_response(message: &str) -> Response<GatewayBody> {
    error_response(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// Builds a 405 with the allowed methods (RFC 9110, 15.5.6).
pub(super) fn method_not_allowed(detail: &str, allow: &'static str) -> Response<GatewayBody> {
    let mut response = error_response(StatusCode::METHOD_NOT_ALLOWED, detail);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// Builds an error response with `Retry-After`.
pub(super) fn retry_later(status: StatusCode, detail: impl Into<String>, wait: Duration) -> Response<GatewayBody> {
    let mut response = error_response(status, detail);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, seconds(wait));
    // In the platform's own header: go-tfe, and Terraform with it, waits for this one only.
    if let Ok(reset) = HeaderValue::from_str(&format!("{:.3}", wait.as_secs_f64())) {
        headers.insert(LIMIT_RESET.clone(), reset);
    }
    response
}

/// Rounds a wait up to whole seconds, at least one.
fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1))
}

/// Makes response headers fit for a client of the gateway; `platform_url` returns the requested URL at the platform. A
/// relative `Location` inside the API stays on the gateway; any other relative address becomes one at the platform.
pub(super) fn rewrite_headers(
    status: StatusCode,
    headers: &mut HeaderMap,
    platform_url: impl Fn() -> Url,
    now: SystemTime,
) {
    remove_all(headers, is_direct);
    make_absolute_url(headers, &LOCATION, &platform_url, |_| true, is_served_path);
    // Other module sources (a getter's address such as git::https://...) are not relative URLs.
    let relative = |value: &str| value.starts_with(['/', '.']);
    make_absolute_url(headers, &TERRAFORM_GET, &platform_url, relative, |_| false);
    if status == StatusCode::TOO_MANY_REQUESTS
        && !headers.contains_key(RETRY_AFTER)
        && let Some(wait) = rate_limit_reset(headers, now)
    {
        headers.insert(RETRY_AFTER, seconds(wait));
    }
}

/// Makes a relative address absolute, as it would otherwise lead to the gateway, which serves only the API. An address
/// that `is_served_here` becomes a path from the root, which stays on the gateway. An absolute one is not changed.
fn make_absolute_url(
    headers: &mut HeaderMap,
    name: &HeaderName,
    platform_url: impl Fn() -> Url,
    relative: impl FnOnce(&str) -> bool,
    is_served_here: impl FnOnce(&Url) -> bool,
) {
    let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) else { return };
    if Url::parse(value).is_ok() || !relative(value) {
        return;
    }
    let platform_url = platform_url();
    let Ok(url) = platform_url.join(value) else { return };
    let here = url.origin() == platform_url.origin() && is_served_here(&url);
    let address = if here { &url[Position::BeforePath..] } else { url.as_str() };
    if let Ok(address) = HeaderValue::from_str(address) {
        headers.insert(name, address);
    }
}

/// Returns true if the gateway serves this URL of the platform.
fn is_served_path(url: &Url) -> bool {
    classify_path(url.path()) == RequestTarget::Api
}

static TERRAFORM_GET: HeaderName = HeaderName::from_static("x-terraform-get");

/// Parses `X-RateLimit-Reset`: seconds with a fraction until requests are accepted again. Some servers send a Unix time
/// under that name.
pub(super) fn rate_limit_reset(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value: f64 = headers.get(&LIMIT_RESET)?.to_str().ok()?.trim().parse().ok()?;
    if !value.is_finite() {
        return None;
    }
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let wait = if value > 1e9 { value - now } else { value };
    Duration::try_from_secs_f64(wait.clamp(0.0, MAX_RESET.as_secs_f64())).ok()
}

const MAX_RESET: Duration = Duration::from_mins(15);

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Parses `X-RateLimit-Limit`: a number, or a list that begins with one.
pub(super) fn rate_limit(headers: &HeaderMap) -> Option<u32> {
    let value = headers.get(&LIMIT)?.to_str().ok()?;
    value.split(',').next()?.trim().parse().ok()
}

/// Handling that a response body needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// JSON with a length small enough to buffer.
    SmallJson,
    /// Other JSON.
    LargeJson,
    /// JSON in a content encoding that was not requested: its links cannot be found.
    EncodedJson,
    /// Anything else.
    Other,
}

/// Largest document that is buffered instead of streamed, in bytes.
pub(super) const MAX_SMALL_BODY: u64 = 64 * 1024;

pub(super) fn classify_body(status: StatusCode, headers: &HeaderMap, length: Option<u64>) -> BodyKind {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let json = kind.eq_ignore_ascii_case(MEDIA_TYPE) || kind.eq_ignore_ascii_case("application/json");
    let part = status == StatusCode::PARTIAL_CONTENT || headers.contains_key(CONTENT_RANGE);
    if !json || part || length == Some(0) || status == StatusCode::NOT_MODIFIED {
        BodyKind::Other
    } else if content_encoding(headers).is_some() {
        BodyKind::EncodedJson
    } else if length.is_some_and(|length| length <= MAX_SMALL_BODY) {
        BodyKind::SmallJson
    } else {
        BodyKind::LargeJson
    }
}

/// Returns the content encoding, such as `gzip`, unless it is `identity`.
pub(super) fn content_encoding(headers: &HeaderMap) -> Option<&HeaderValue> {
    let plain = |value: &HeaderValue| value.is_empty() || value.as_bytes().eq_ignore_ascii_case(b"identity");
    headers.get_all(CONTENT_ENCODING).iter().find(|value| !plain(value))
}

/// Sets the length of a rewritten document, or removes the header.
pub(super) fn set_length(headers: &mut HeaderMap, length: Option<usize>) {
    match length {
        Some(length) => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
        None => headers.remove(CONTENT_LENGTH),
    };
}

#[cfg(test)]
mod tests;
