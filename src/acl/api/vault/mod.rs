//! API in Vault's wire format: login, and a token's calls about itself, in the `default` namespace.

mod login;
mod token;

pub(super) use login::log_in;
pub(super) use token::{look_up, renew, revoke};

use std::future::{Ready, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use keyward_telemetry::audit::AuditedRequest;
use serde::Serialize;

use super::error::ApiError;
use super::request_headers::{bearer_secret, single_header};
use super::response::{ApiResponse, JSON, ResponseBody, full_body};
use super::state::ApiState;
use crate::model::secret::PlainSecret;
use crate::service::caller::LiveToken;
use crate::service::lists::Omitted;
use crate::store::Freshness;
use keyward_http::server::IncomingBody;

static TOKEN_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-vault-token"),
    HeaderName::from_static("x-service-token"),
    HeaderName::from_static("x-consul-token"),
];

static NAMESPACE_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-vault-namespace"),
    HeaderName::from_static("x-service-namespace"),
    HeaderName::from_static("x-consul-namespace"),
];

/// Request in Vault's wire format.
pub(super) struct VaultRequest {
    /// Variable part of the path, decoded: the mount of a login.
    mount: String,
    head: Parts,
    body: IncomingBody,
}

impl VaultRequest {
    /// Creates a request from HTTP.
    pub(super) fn new(mount: String, request: Request<IncomingBody>) -> Self {
        let (head, body) = request.into_parts();
        Self { mount, head, body }
    }
}

/// Answers health probes with 200 while the process runs; it does not check the store.
pub(super) fn health(_: &ApiState, _: VaultRequest) -> Ready<Result<Response<ResponseBody>, ApiError>> {
    let version = concat!("keyward ", env!("CARGO_PKG_VERSION"));
    ready(json(&serde_json::json!({"initialized": true, "sealed": false, "standby": false, "version": version})))
}

fn json(value: &impl Serialize) -> Result<Response<ResponseBody>, ApiError> {
    let body = serde_json::to_vec(value)?;
    let body = full_body(Bytes::from(body));
    let omitted = Omitted::default();
    Ok(ApiResponse { status: StatusCode::OK, content_type: Some(JSON), body, omitted }.into_http())
}

/// Authenticates the caller, and returns its token with the secret.
async fn authenticate(state: &ApiState, head: &Parts) -> Result<(LiveToken, PlainSecret), ApiError> {
    let secret = match single_header(&head.headers, &TOKEN_HEADERS)? {
        Some(secret) => Some(PlainSecret::from_presented(&secret)),
        None => bearer_secret(&head.headers)?,
    };
    let secret = secret.ok_or(ApiError::UnknownToken)?;
    let live = state
        .service
        .authenticator()
        .live_token_by_secret(&secret, Freshness::Linearizable)
        .await?
        .ok_or(ApiError::UnknownToken)?;
    audit_accessor(head, &live);
    Ok((live, secret))
}

/// Notes for the audit the accessor of the token that a request uses or gets; none for the anonymous token.
fn audit_accessor(head: &Parts, live: &LiveToken) {
    if let (Some(audited), Some(accessor)) = (AuditedRequest::from_extensions(&head.extensions), live.accessor()) {
        audited.set_accessor(Some(&accessor.to_string()));
    }
}

/// Refuses a namespace other than `default`: answering from `default` would return the wrong records without an
/// error.
fn require_default_namespace(headers: &HeaderMap) -> Result<(), ApiError> {
    let values = NAMESPACE_HEADERS.iter().flat_map(|name| headers.get_all(name));
    for name in values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()) {
        // `root` is what Vault calls its top namespace.
        if !matches!(name.trim_matches('/'), "" | "default" | "root") {
            return Err(ApiError::NamespaceUnsupported(name.chars().take(64).collect()));
        }
    }
    Ok(())
}
