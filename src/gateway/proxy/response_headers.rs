//! Headers of the platform's responses: read, and rewritten for clients of the gateway.

use std::time::{Duration, SystemTime};

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use keyward_http::reverse_proxy::{is_direct, remove_all};
use url::{Position, Url};

use super::local_response::{LIMIT_RESET, seconds};
use super::path::{RequestTarget, classify_path};
use crate::jsonapi_error::MEDIA_TYPE;

/// Makes response headers fit for a client of the gateway; `platform_url` returns the requested URL at the platform, and
/// `is_platform` says if a URL is on the platform by any of its names. A `Location` inside the API stays on the gateway;
/// any other relative address becomes one at the platform.
pub(super) fn rewrite_headers(
    status: StatusCode,
    headers: &mut HeaderMap,
    platform_url: impl Fn() -> Url,
    is_platform: impl Fn(&Url) -> bool,
    now: SystemTime,
) {
    remove_all(headers, is_direct);
    rewrite_location(headers, &platform_url, is_platform);
    // Other module sources (a getter's address such as git::https://...) are not relative URLs.
    if let Some(address) = headers.get(&TERRAFORM_GET).and_then(|value| value.to_str().ok())
        && address.starts_with(['/', '.'])
        && let Ok(url) = platform_url().join(address)
        && let Ok(url) = HeaderValue::from_str(url.as_str())
    {
        headers.insert(&TERRAFORM_GET, url);
    }
    if status == StatusCode::TOO_MANY_REQUESTS
        && !headers.contains_key(RETRY_AFTER)
        && let Some(wait) = rate_limit_reset(headers, now)
    {
        headers.insert(RETRY_AFTER, seconds(wait));
    }
}

/// Keeps a redirect into the API on the gateway, as a path: a client that left it would call the platform with the local
/// token, or with none. Any other relative one becomes absolute, as the gateway serves only the API.
fn rewrite_location(headers: &mut HeaderMap, platform_url: impl Fn() -> Url, is_platform: impl Fn(&Url) -> bool) {
    let Some(value) = headers.get(LOCATION).and_then(|value| value.to_str().ok()) else { return };
    let is_absolute = Url::parse(value).is_ok();
    let Ok(url) = platform_url().join(value) else { return };
    let stays = is_platform(&url) && is_served_path(&url);
    if is_absolute && !stays {
        return;
    }
    let address = if stays { &url[Position::BeforePath..] } else { url.as_str() };
    if let Ok(address) = HeaderValue::from_str(address) {
        headers.insert(LOCATION, address);
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

/// A Unix time beside a wrong clock must not pause all calls for hours.
const MAX_RESET: Duration = Duration::from_mins(15);

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");

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
