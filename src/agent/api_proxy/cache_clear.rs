//! `POST /agent/v1/cache-clear`: invalidates cache entries at a caller's request.
//!
//! The body is `{"type": "all"}`, or `request_path`, `lease`, `token` or `token_accessor` with a `value`; `request_path` may
//! name a `namespace`.

use std::time::Duration;

use http::{Method, Response, StatusCode, request};
use keyward_http::body_buffer::collect;
use keyward_http::server::IncomingBody;
use serde::{Deserialize, Serialize};

use super::cache::Invalidate;
use super::response::{ProxyBody, error_response, local_response};
use super::response_cache::ResponseCache;
use crate::json_response::{json, method_not_allowed};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearRequest {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Serialize)]
struct ClearResponse {
    /// Number of entries that were invalidated.
    cleared: usize,
}

/// Paths of the endpoint: keyward's, and that of Vault Proxy.
pub(super) const PATHS: [&str; 2] = ["/agent/v1/cache-clear", "/proxy/v1/cache-clear"];

/// Handles a request that the guard has admitted. `X-Vault-Request` is required even where the listener does without it: a
/// browser's form cannot send it.
pub(super) async fn clear(cache: &ResponseCache, parts: &request::Parts, body: IncomingBody) -> Response<ProxyBody> {
    if parts.method != Method::POST && parts.method != Method::PUT {
        return local_response(method_not_allowed("POST, PUT"));
    }
    if parts.headers.get("x-vault-request").is_none_or(|value| value.as_bytes() != b"true") {
        return error_response(StatusCode::PRECONDITION_FAILED, "the header X-Vault-Request: true is missing");
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, collect(body, MAX_BODY)).await;
    let Ok(Ok(body)) = body else { return error_response(StatusCode::BAD_REQUEST, "the request body is incomplete") };
    let Ok(request) = serde_json::from_slice::<ClearRequest>(&body.into_vec()) else {
        return error_response(StatusCode::BAD_REQUEST, USAGE);
    };
    let scope = match (request.kind.as_str(), request.value.as_str()) {
        ("all", "") => Invalidate::All,
        (_, "") => return error_response(StatusCode::BAD_REQUEST, USAGE),
        ("request_path", path) => {
            let path = path.trim_start_matches('/');
            Invalidate::Path(&request.namespace, path.strip_prefix("v1/").unwrap_or(path))
        }
        ("lease", id) => Invalidate::Lease(id),
        ("token", token) => Invalidate::Token(token.as_bytes()),
        ("token_accessor", accessor) => Invalidate::Accessor(accessor),
        _ => return error_response(StatusCode::BAD_REQUEST, USAGE),
    };
    let cleared = cache.cache.invalidate(&scope);
    tracing::info!(
        event = "cache.cleared",
        scope = request.kind.as_str(),
        entries = cleared,
        "a caller cleared cache entries"
    );
    local_response(json(StatusCode::OK, &ClearResponse { cleared }))
}

const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest request body, in bytes.
const MAX_BODY: usize = 64 * 1024;
const USAGE: &str = "write {\"type\": \"all\"}, or request_path, lease, token or token_accessor with a \"value\"";
