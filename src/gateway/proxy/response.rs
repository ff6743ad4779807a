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

use super::body::Answered;
use super::path::{Place, place};
use crate::gateway::jsonapi_error::{MEDIA_TYPE, Refusal};
use crate::http::reverse_proxy::{is_direct, remove_all};

/// An answer of the gateway's own.
pub(super) fn own(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Answered> {
    let mut answer = Response::new(Answered::Whole(Full::new(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// A refusal in the platform's own form.
pub(super) fn refused(refusals: &[Refusal]) -> Response<Answered> {
    let status = refusals.first().map_or(StatusCode::BAD_REQUEST, |refusal| refusal.status);
    let mut answer = own(status, MEDIA_TYPE, Refusal::document(refusals));
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

/// The same of one, in words.
pub(super) fn refuse(status: StatusCode, detail: impl Into<String>) -> Response<Answered> {
    refused(&[Refusal::new(status, detail)])
}

/// A refusal of a method, with those that there are (RFC 9110, 15.5.6).
pub(super) fn no_method(detail: &str, allow: &'static str) -> Response<Answered> {
    let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, detail);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    answer
}

/// A refusal that may pass: when to ask again.
pub(super) fn later(status: StatusCode, detail: impl Into<String>, wait: Duration) -> Response<Answered> {
    let mut answer = refuse(status, detail);
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

/// Makes the headers of an answer fit for a client that came through the gateway; `asked` gives the URL at the platform. A
/// relative `Location` inside the API leads to the gateway; any other relative address leads to the platform.
pub(super) fn fit(status: StatusCode, headers: &mut HeaderMap, asked: impl Fn() -> Url, now: SystemTime) {
    remove_all(headers, is_direct);
    absolute(headers, &LOCATION, &asked, |_| true, is_served);
    // What a module's source may be else (a getter's address such as git::https://...) is no relative URL.
    let relative = |value: &str| value.starts_with(['/', '.']);
    absolute(headers, &TERRAFORM_GET, &asked, relative, |_| false);
    if status == StatusCode::TOO_MANY_REQUESTS
        && !headers.contains_key(RETRY_AFTER)
        && let Some(wait) = reset(headers, now)
    {
        headers.insert(RETRY_AFTER, seconds(wait));
    }
}

/// Makes a relative address absolute: it would lead to the gateway, which serves the platform's API alone. One that `stays`
/// becomes a path from the root, which leads to the gateway. An absolute one stays byte for byte.
fn absolute(
    headers: &mut HeaderMap,
    name: &HeaderName,
    asked: impl Fn() -> Url,
    relative: impl FnOnce(&str) -> bool,
    stays: impl FnOnce(&Url) -> bool,
) {
    let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) else { return };
    if Url::parse(value).is_ok() || !relative(value) {
        return;
    }
    let asked = asked();
    let Ok(url) = asked.join(value) else { return };
    let here = url.origin() == asked.origin() && stays(&url);
    let address = if here { &url[Position::BeforePath..] } else { url.as_str() };
    if let Ok(address) = HeaderValue::from_str(address) {
        headers.insert(name, address);
    }
}

/// True if the gateway serves this address of the platform.
fn is_served(url: &Url) -> bool {
    place(url.path()) == Place::Api
}

static TERRAFORM_GET: HeaderName = HeaderName::from_static("x-terraform-get");

/// How long until requests are taken again: `X-RateLimit-Reset`, seconds with a fraction. Some servers tell a time since
/// 1970 by that name.
pub(super) fn reset(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let told: f64 = headers.get(&LIMIT_RESET)?.to_str().ok()?.trim().parse().ok()?;
    if !told.is_finite() {
        return None;
    }
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let wait = if told > 1e9 { told - now } else { told };
    Duration::try_from_secs_f64(wait.clamp(0.0, LONGEST.as_secs_f64())).ok()
}

const LONGEST: Duration = Duration::from_mins(15);

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// `X-RateLimit-Limit`, a number, or a list that begins with one.
pub(super) fn limit(headers: &HeaderMap) -> Option<u32> {
    let told = headers.get(&LIMIT)?.to_str().ok()?;
    told.split(',').next()?.trim().parse().ok()
}

/// What of an answer's body is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A JSON document that is told to be so small that it is held.
    Small,
    /// Another JSON document.
    Document,
    /// A JSON document in an encoding that was not asked for: its links cannot be found.
    Encoded,
    /// Something else.
    Other,
}

/// The largest document that is held rather than passed on as it comes, in bytes.
pub(super) const SMALL: u64 = 64 * 1024;

pub(super) fn shape(status: StatusCode, headers: &HeaderMap, length: Option<u64>) -> Shape {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let json = kind.eq_ignore_ascii_case(MEDIA_TYPE) || kind.eq_ignore_ascii_case("application/json");
    let part = status == StatusCode::PARTIAL_CONTENT || headers.contains_key(CONTENT_RANGE);
    if !json || part || length == Some(0) || status == StatusCode::NOT_MODIFIED {
        Shape::Other
    } else if encoding(headers).is_some() {
        Shape::Encoded
    } else if length.is_some_and(|length| length <= SMALL) {
        Shape::Small
    } else {
        Shape::Document
    }
}

/// The encoding of an answer, such as `gzip`, if it has one other than `identity`.
pub(super) fn encoding(headers: &HeaderMap) -> Option<&HeaderValue> {
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
mod tests {
    use super::*;

    fn fitted(status: u16, given: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut headers: HeaderMap = given
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let asked = Url::parse("https://tfe.example.com/api/registry/v1/modules/a/b/c/1.0.0/download?x=1").unwrap();
        fit(StatusCode::from_u16(status).unwrap(), &mut headers, || asked.clone(), SystemTime::now());
        let text = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
        headers.iter().map(text).collect()
    }

    #[test]
    fn relative_addresses_lead_to_the_platform_or_the_gateway_and_absolute_ones_stay() {
        let check = |name: &'static str, given: &'static str, wanted: &str| {
            assert_eq!(fitted(302, &[(name, given)]), [(name.to_owned(), wanted.to_owned())], "{given}");
        };
        for name in ["location", "x-terraform-get"] {
            check(name, "/v1/object/a?b", "https://tfe.example.com/v1/object/a?b");
            check(name, "https://archivist.example.com/v1/object/a%2f", "https://archivist.example.com/v1/object/a%2f");
            check(name, "https://tfe.example.com/api/v2/x", "https://tfe.example.com/api/v2/x");
            check(name, "//archivist.example.com/a", "https://archivist.example.com/a");
        }
        let module = "/api/registry/v1/modules/a/b/c";
        for (given, path) in [
            ("./archive.tar.gz", format!("{module}/1.0.0/archive.tar.gz")),
            ("../x", format!("{module}/x")),
            ("/api/v2/x?y=%2F#z", "/api/v2/x?y=%2F#z".to_owned()),
            ("//tfe.example.com/api/v2/x", "/api/v2/x".to_owned()),
        ] {
            check("location", given, &path);
        }
        check("location", "?page=2", &format!("{module}/1.0.0/download?page=2"));
        check("location", "/api/v2/..%2f..%2fadmin", "https://tfe.example.com/api/v2/..%2f..%2fadmin");
        check("location", "/api/v2/../../admin", "https://tfe.example.com/admin");
        check("x-terraform-get", "../x", &format!("https://tfe.example.com{module}/x"));
        check("x-terraform-get", "/api/v2/x", "https://tfe.example.com/api/v2/x");
        check("x-terraform-get", "git::https://example.com/a.git", "git::https://example.com/a.git");
        check("x-terraform-get", "github.com/a/b", "github.com/a/b");
    }

    #[test]
    fn too_many_requests_tell_when_to_ask_again() {
        let retry = |status, given: &[_]| {
            fitted(status, given).into_iter().find(|(name, _)| name == "retry-after").map(|(_, value)| value)
        };
        let check = |reset: &'static str, wanted: Option<&str>| {
            assert_eq!(retry(429, &[("x-ratelimit-reset", reset)]).as_deref(), wanted, "{reset}");
        };
        check("0.25", Some("1"));
        check("2", Some("2"));
        check("2.001", Some("3"));
        check("0", Some("1"));
        check("-3", Some("1"));
        check("1e7", Some("900"));
        check("1e300", Some("900"));
        check("1500000000", Some("1"));
        check("NaN", None);
        check("soon", None);
        assert_eq!(retry(429, &[("x-ratelimit-reset", "5"), ("retry-after", "7")]).as_deref(), Some("7"));
        assert_eq!(retry(200, &[("x-ratelimit-reset", "5")]), None);
    }

    #[test]
    fn what_is_meant_for_those_who_came_directly_is_taken_off() {
        let given =
            [("set-cookie", "a=b"), ("strict-transport-security", "max-age=1"), ("alt-svc", "h3"), ("etag", "1")];
        assert_eq!(fitted(200, &given), [("etag".to_owned(), "1".to_owned())]);
    }
}
