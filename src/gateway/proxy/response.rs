//! What is made of the platform's answers, and what the gateway answers of itself.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use url::{Position, Url};

use super::body::GatewayBody;
use super::path::{RequestTarget, classify_path};
use crate::gateway::jsonapi_error::{JsonApiError, MEDIA_TYPE};
use crate::http::reverse_proxy::{is_direct, remove_all};

/// An answer of the gateway's own.
pub(super) fn local_response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<GatewayBody> {
    let mut answer = Response::new(GatewayBody::Buffered(Full::new(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// A refusal in the platform's own form.
pub(super) fn error_responses(errors: &[JsonApiError]) -> Response<GatewayBody> {
    let status = errors.first().map_or(StatusCode::BAD_REQUEST, |error| error.status);
    let mut answer = local_response(status, MEDIA_TYPE, JsonApiError::document(errors));
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

/// The same of one, in words.
pub(super) fn error_response(status: StatusCode, detail: impl Into<String>) -> Response<GatewayBody> {
    error_responses(&[JsonApiError::new(status, detail)])
}

/// A refusal of a method, with those that there are (RFC 9110, 15.5.6).
pub(super) fn method_not_allowed(detail: &str, allow: &'static str) -> Response<GatewayBody> {
    let mut answer = error_response(StatusCode::METHOD_NOT_ALLOWED, detail);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    answer
}

/// A refusal that may pass: when to ask again.
pub(super) fn retry_later(status: StatusCode, detail: impl Into<String>, wait: Duration) -> Response<GatewayBody> {
    let mut answer = error_response(status, detail);
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, seconds(wait));
    // As the platform writes it. go-tfe, and Terraform with it, waits for this header alone.
    if let Ok(reset) = HeaderValue::from_str(&format!("{:.3}", wait.as_secs_f64())) {
        headers.insert(LIMIT_RESET.clone(), reset);
    }
    answer
}

/// A wait in whole seconds, one at least.
fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1))
}

/// Makes the headers of an answer fit for a client that came through the gateway; `platform_url` gives the URL at the platform. A
/// relative `Location` inside the API leads to the gateway; any other relative address leads to the platform.
pub(super) fn rewrite_headers(
    status: StatusCode,
    headers: &mut HeaderMap,
    platform_url: impl Fn() -> Url,
    now: SystemTime,
) {
    remove_all(headers, is_direct);
    make_absolute_url(headers, &LOCATION, &platform_url, |_| true, is_served_path);
    // What a module's source may be else (a getter's address such as git::https://...) is no relative URL.
    let relative = |value: &str| value.starts_with(['/', '.']);
    make_absolute_url(headers, &TERRAFORM_GET, &platform_url, relative, |_| false);
    if status == StatusCode::TOO_MANY_REQUESTS
        && !headers.contains_key(RETRY_AFTER)
        && let Some(wait) = rate_limit_reset(headers, now)
    {
        headers.insert(RETRY_AFTER, seconds(wait));
    }
}

/// Makes a relative address absolute: it would lead to the gateway, which serves the platform's API alone. One that `is_served_here`
/// becomes a path from the root, which leads to the gateway. An absolute one stays byte for byte.
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

/// True if the gateway serves this address of the platform.
fn is_served_path(url: &Url) -> bool {
    classify_path(url.path()) == RequestTarget::Api
}

static TERRAFORM_GET: HeaderName = HeaderName::from_static("x-terraform-get");

/// How long until requests are taken again: `X-RateLimit-Reset`, seconds with a fraction. Some servers tell a time since
/// 1970 by that name.
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

/// `X-RateLimit-Limit`, a number, or a list that begins with one.
pub(super) fn rate_limit(headers: &HeaderMap) -> Option<u32> {
    let value = headers.get(&LIMIT)?.to_str().ok()?;
    value.split(',').next()?.trim().parse().ok()
}

/// What of an answer's body is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// A JSON document that is told to be so small that it is held.
    SmallJson,
    /// Another JSON document.
    LargeJson,
    /// A JSON document in an encoding that was not asked for: its links cannot be found.
    EncodedJson,
    /// Something else.
    Other,
}

/// The largest document that is held rather than passed on as it comes, in bytes.
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

/// The encoding of an answer, such as `gzip`, if it has one other than `identity`.
pub(super) fn content_encoding(headers: &HeaderMap) -> Option<&HeaderValue> {
    let plain = |value: &HeaderValue| value.is_empty() || value.as_bytes().eq_ignore_ascii_case(b"identity");
    headers.get_all(CONTENT_ENCODING).iter().find(|value| !plain(value))
}

/// Puts a document's own length in place of what the platform told, or takes it away.
pub(super) fn set_length(headers: &mut HeaderMap, length: Option<usize>) {
    match length {
        Some(length) => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
        None => headers.remove(CONTENT_LENGTH),
    };
}

#[cfg(test)]
mod tests;
