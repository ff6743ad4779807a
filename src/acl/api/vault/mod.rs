//! The doors in the wire of Vault: login, and the calls of a token about itself. They open to the `default` namespace.

mod login;
mod token;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;

use super::error::ApiError;
use super::operation::Operation;
use super::request::{bearer, only};
use super::response::{Body, JSON, Reply, whole};
use super::state::Rooms;
use crate::acl::model::secret::PlainSecret;
use crate::acl::service::caller::Live;
use crate::acl::service::lists::LeftOut;
use crate::acl::store::Freshness;

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

pub(super) async fn answer(
    rooms: &Rooms,
    operation: Operation,
    subject: String,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let (head, body) = request.into_parts();
    match operation {
        Operation::VaultLogin => login::log_in(rooms, &subject, &head.headers, body).await,
        Operation::VaultLookup => token::look_up(rooms, &head.headers).await,
        Operation::VaultRevoke => token::revoke(rooms, &head.headers).await,
        Operation::VaultRenew => token::renew(rooms, &head.headers).await,
        Operation::VaultHealth => health(),
        _ => Err(ApiError::NoRoute { versioned: true }),
    }
}

/// For probes: 200 while the process answers. It tells nothing else.
fn health() -> Result<Response<Body>, ApiError> {
    let version = concat!("keyward ", env!("CARGO_PKG_VERSION"));
    json(&serde_json::json!({"initialized": true, "sealed": false, "standby": false, "version": version}))
}

fn json(value: &impl Serialize) -> Result<Response<Body>, ApiError> {
    let body = serde_json::to_vec(value)?;
    let reply = Reply {
        status: StatusCode::OK,
        kind: Some(JSON),
        body: whole(Bytes::from(body)),
        left_out: LeftOut::default(),
    };
    Ok(reply.answer())
}

/// The caller's token and its secret.
async fn caller(rooms: &Rooms, headers: &HeaderMap) -> Result<(Live, PlainSecret), ApiError> {
    let secret = match only(headers, &TOKEN_HEADERS)? {
        Some(secret) => Some(PlainSecret::presented(&secret)),
        None => bearer(headers)?,
    };
    let secret = secret.ok_or(ApiError::NoToken)?;
    let live = rooms.directory.live_by_secret(&secret, Freshness::Linearizable).await?.ok_or(ApiError::NoToken)?;
    Ok((live, secret))
}

/// Refuses a request for another namespace than `default`: to answer it from there would be to answer another question.
fn default_namespace(headers: &HeaderMap) -> Result<(), ApiError> {
    let named = NAMESPACE_HEADERS.iter().flat_map(|name| headers.get_all(name));
    for name in named.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()) {
        if !matches!(name.trim_matches('/'), "" | "default" | "root") {
            return Err(ApiError::Namespace(name.chars().take(64).collect()));
        }
    }
    Ok(())
}
