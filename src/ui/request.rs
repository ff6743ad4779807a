//! Requests of the pages to the services of this process.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use keyward_http::in_process::{InProcessError, InProcessService};
use keyward_machine::secret_string::SecretString;
use serde::de::DeserializeOwned;

/// Largest response that a page is made of, in bytes.
const MAX_RESPONSE: usize = 32 * 1024 * 1024;

/// Longest text of a service's error on a page, in characters.
const MAX_ERROR: usize = 500;

/// Reason why a page cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceError {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl SourceError {
    /// There is no such page.
    pub(super) fn not_found() -> Self {
        Self { status: StatusCode::NOT_FOUND, message: "page not found".to_owned() }
    }
}

/// Reads JSON from a service by GET, with an ACL token if one is given.
pub(super) async fn get<T: DeserializeOwned>(
    service: &InProcessService,
    path: &str,
    token: Option<&SecretString>,
) -> Result<T, SourceError> {
    let (status, body) = call(service, Method::GET, path, token, Bytes::new()).await?;
    parse(status, &body)
}

/// Accessor of the anonymous token, which Consul's API fixes.
const ANONYMOUS: &str = "00000000-0000-0000-0000-000000000002";

/// Checks that a token is one of the ACL server's; returns the reason if it is not. Everybody has the anonymous token: a session
/// for it would be one for everybody.
pub(super) async fn check_token(service: &InProcessService, token: &SecretString) -> Result<(), String> {
    match get::<serde_json::Value>(service, "/v1/acl/token/self", Some(token)).await {
        Ok(found) if found["AccessorID"] == ANONYMOUS => Err("it is the anonymous one".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.message),
    }
}

/// As [`get`], by POST with a JSON body.
pub(super) async fn post<T: DeserializeOwned>(
    service: &InProcessService,
    path: &str,
    token: Option<&SecretString>,
    body: &serde_json::Value,
) -> Result<T, SourceError> {
    let (status, body) = call(service, Method::POST, path, token, body.to_string().into()).await?;
    parse(status, &body)
}

async fn call(
    service: &InProcessService,
    method: Method,
    path: &str,
    token: Option<&SecretString>,
    body: Bytes,
) -> Result<(StatusCode, Bytes), SourceError> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|_| failed("invalid address in the page request"))?;
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_static("localhost"));
    headers.insert(HeaderName::from_static("x-vault-request"), HeaderValue::from_static("true"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(token) = token {
        let value = HeaderValue::from_str(token.expose_secret());
        let mut value = value.map_err(|_| failed("an ACL token has letters, digits and hyphens only"))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static("x-consul-token"), value);
    }
    let response = service.call(request, MAX_RESPONSE).await.map_err(|error| match error {
        InProcessError::TooLarge(_) => failed("the list is too long for a page; use the commands of keyward acl"),
        InProcessError::Broken => failed(&error.to_string()),
    })?;
    Ok((response.status(), response.into_body()))
}

/// Parses a response. The gateway reports errors of a query in a document of the same kind.
fn parse<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, SourceError> {
    if status.is_success() || status == StatusCode::UNPROCESSABLE_ENTITY {
        return serde_json::from_slice(body).map_err(|_| failed("the service's response is not as expected"));
    }
    let message = String::from_utf8_lossy(body).chars().take(MAX_ERROR).collect();
    Err(SourceError { status, message })
}

fn failed(message: &str) -> SourceError {
    SourceError { status: StatusCode::BAD_GATEWAY, message: message.to_owned() }
}
