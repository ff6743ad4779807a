//! Responses in the platform's format: JSON:API documents and errors.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use http::{StatusCode, Uri};
use serde_json::{Value, json};

use super::page::{Page, PageInfo};

/// Result of a route.
pub(super) type ApiResult = Result<Response, ApiError>;

/// Error response of a request.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    error: Value,
}

impl ApiError {
    fn new(status: StatusCode, title: &str, detail: Option<&str>) -> Self {
        let mut error = json!({"status": status.as_str(), "title": title});
        if let Some(detail) = detail {
            error["detail"] = detail.into();
        }
        Self { status, error }
    }

    /// Missing or invalid token.
    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", None)
    }

    /// Not there, or hidden from this caller: the platform does not say which.
    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not found", None)
    }

    pub(super) fn bad_request(detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad request", Some(detail))
    }

    pub(super) fn conflict(detail: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", Some(detail))
    }

    /// A write without `Content-Type`.
    pub(super) fn missing_media_type() -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported media type", None)
    }

    pub(super) fn too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload too large", None)
    }

    /// Invalid attribute.
    pub(super) fn invalid(attribute: &str, why: &str) -> Self {
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid attribute", Some(why));
        refusal.error["source"] = json!({"pointer": format!("/data/attributes/{attribute}")});
        refusal
    }

    /// Rate limit. `status` is a number here, unlike in every other error, as in the public sample.
    pub(super) fn rate_limited() -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let mut refusal = Self::new(status, "Too many requests", Some("You have exceeded the API's rate limit."));
        refusal.error["status"] = status.as_u16().into();
        refusal
    }

    /// Error response set by fault injection.
    pub(super) fn injected_failure(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, "emulated failure", Some("The emulated platform was told to fail."))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        document(self.status, &json!({"errors": [self.error]}))
    }
}

/// Builds a JSON:API document.
pub(super) fn document(status: StatusCode, body: &Value) -> Response {
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/vnd.api+json"));
    response
}

/// Builds `{"data": ...}` with status 200.
pub(super) fn ok(value: &Value) -> Response {
    document(StatusCode::OK, &json!({ "data": value }))
}

/// Builds `{"data": ...}` with status 201.
pub(super) fn created(value: &Value) -> Response {
    document(StatusCode::CREATED, &json!({ "data": value }))
}

/// Builds a 204.
pub(super) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Builds a 302 to `location`.
pub(super) fn redirect(location: &str) -> Response {
    let mut response = StatusCode::FOUND.into_response();
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Builds a list, or a page of it. Links begin with `base`, the platform's own URL.
pub(super) fn list_page(base: &str, uri: &Uri, page: &Page, all: &[Value]) -> Response {
    let mut body = json!({"data": all.get(page.entries.clone()).unwrap_or_default()});
    if let Some(info) = &page.info {
        body["links"] = links(base, uri, info);
        body["meta"] = json!({"pagination": {
            "current-page": info.current, "page-size": info.size, "prev-page": info.previous,
            "next-page": info.next, "total-pages": info.pages, "total-count": info.total,
        }});
    }
    document(StatusCode::OK, &body)
}

fn links(base: &str, uri: &Uri, info: &PageInfo) -> Value {
    let other_parameters: Vec<(String, String)> =
        url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .filter(|(name, _)| !name.starts_with("page["))
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
    let link = |number: usize| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&other_parameters);
        query.append_pair("page[number]", &number.to_string());
        query.append_pair("page[size]", &info.size.to_string());
        format!("{base}{}?{}", uri.path(), query.finish())
    };
    json!({
        "self": link(info.current), "first": link(1), "prev": info.previous.map(link), "next": info.next.map(link),
        "last": link(info.pages),
    })
}
