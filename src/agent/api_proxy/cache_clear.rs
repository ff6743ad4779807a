//! `POST /agent/v1/cache-clear`: a caller has what is kept forgotten.
//!
//! The body is `{"type": "all"}`, or `request_path`, `lease`, `token` or `token_accessor` with a `value`; `request_path` may
//! name a `namespace`.

use std::time::Duration;

use http::{Method, Response, StatusCode, request};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::answer::{ProxyBody, own, refuse};
use super::response_cache::CachePolicy;
use crate::agent::json_response::{json, method_not_allowed};
use crate::agent::secrets::cache::Invalidate;
use crate::http::body_buffer::collect;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Serialize)]
struct Cleared {
    /// How many answers were forgotten.
    cleared: usize,
}

/// Where it is asked for; other agents have it at the second.
pub(super) const PATHS: [&str; 2] = ["/agent/v1/cache-clear", "/proxy/v1/cache-clear"];

/// Forgets what is asked. The guard has let the caller in; the request header is asked for here whatever the listener says.
pub(super) async fn clear(policy: &CachePolicy, parts: &request::Parts, body: Incoming) -> Response<ProxyBody> {
    if parts.method != Method::POST && parts.method != Method::PUT {
        return own(method_not_allowed("POST, PUT"));
    }
    if parts.headers.get("x-vault-request").is_none_or(|value| value.as_bytes() != b"true") {
        return refuse(StatusCode::PRECONDITION_FAILED, "the header X-Vault-Request: true is missing");
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, collect(body, MOST)).await;
    let Ok(Ok(body)) = body else { return refuse(StatusCode::BAD_REQUEST, "the body did not arrive whole") };
    let Ok(wanted) = serde_json::from_slice::<Wanted>(&body.into_vec()) else {
        return refuse(StatusCode::BAD_REQUEST, USAGE);
    };
    let value = Zeroizing::new(wanted.value);
    let forget = match (wanted.kind.as_str(), value.as_str()) {
        ("all", "") => Invalidate::All,
        (_, "") => return refuse(StatusCode::BAD_REQUEST, USAGE),
        ("request_path", path) => {
            let path = path.trim_start_matches('/');
            Invalidate::Path(&wanted.namespace, path.strip_prefix("v1/").unwrap_or(path))
        }
        ("lease", id) => Invalidate::Lease(id),
        ("token", token) => Invalidate::Token(token.as_bytes()),
        ("token_accessor", accessor) => Invalidate::Accessor(accessor),
        _ => return refuse(StatusCode::BAD_REQUEST, USAGE),
    };
    let cleared = policy.cache.forget(&forget);
    tracing::info!(event = "cache.cleared", what = ?forget, cleared, "a caller had kept answers forgotten");
    own(json(StatusCode::OK, &Cleared { cleared }))
}

const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const MOST: usize = 64 * 1024;
const USAGE: &str = "write {\"type\": \"all\"}, or request_path, lease, token or token_accessor with a \"value\"";
