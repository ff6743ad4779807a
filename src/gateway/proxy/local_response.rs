//! The gateway's own responses: errors in the platform's format, and documents of its own endpoints.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use super::body::GatewayBody;
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
pub(super) fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1))
}

/// Header of the platform with the seconds until requests are accepted again.
pub(super) static LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
