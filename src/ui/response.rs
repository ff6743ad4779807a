//! Responses of the pages: HTML, redirects and files, all with the same protective headers.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use maud::Markup;

/// Response of a page.
pub(super) type PageResponse = Response<Full<Bytes>>;

/// Nothing is loaded from elsewhere, no script stands in a page, and no other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

fn respond(status: StatusCode, content_type: &'static str, cache: &'static str, body: Bytes) -> PageResponse {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, cache),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer` browsers send `Origin: null` with forms (Fetch, "append a request Origin header").
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Builds a page, which no cache keeps.
pub(super) fn html(status: StatusCode, page: Markup) -> PageResponse {
    respond(status, "text/html; charset=utf-8", "no-store", page.into_string().into())
}

/// Builds a response with a file of the program.
pub(super) fn file(content_type: &'static str, content: &'static str) -> PageResponse {
    respond(StatusCode::OK, content_type, "no-cache", Bytes::from_static(content.as_bytes()))
}

/// Redirects to a path of ours by GET.
pub(super) fn redirect(path: &str) -> PageResponse {
    // 303: the browser continues by GET, so that a reload does not send the form again (RFC 9110, 15.4.4).
    let mut response = respond(StatusCode::SEE_OTHER, "text/plain", "no-store", Bytes::new());
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

/// Adds a cookie to a response.
pub(super) fn with_cookie(mut response: PageResponse, cookie: Option<HeaderValue>) -> PageResponse {
    if let Some(cookie) = cookie {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}
