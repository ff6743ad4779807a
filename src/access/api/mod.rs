//! The service over HTTP: the login and token doors in the wire of Vault, the access-control API in its own.

mod acl_token;
mod body;
mod caller;
mod error;
mod login;
mod vault_token;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{get, post};

use self::error::{ApiError, Door};
use crate::access::service::login::Methods;
use crate::access::service::policies::Policies;
use crate::access::service::tokens::Tokens;

/// What the doors open to.
#[derive(Debug, Clone)]
pub struct Rooms {
    /// The tokens.
    pub tokens: Arc<Tokens>,
    /// The policies.
    pub policies: Policies,
    /// The auth methods.
    pub methods: Arc<Methods>,
}

/// All routes, under `/v1`.
pub fn router(rooms: Rooms) -> Router {
    let revoke = post(vault_token::revoke_self).put(vault_token::revoke_self);
    let renew = post(vault_token::renew_self).put(vault_token::renew_self);
    Router::new()
        .route("/v1/auth/{mount}/login", post(login::login).put(login::login))
        .route("/v1/auth/token/lookup-self", get(vault_token::lookup_self))
        .route("/v1/auth/token/revoke-self", revoke)
        .route("/v1/auth/token/renew-self", renew)
        .route("/v1/acl/token/self", get(acl_token::read_self))
        .route("/v1/sys/health", get(health))
        .fallback(no_route)
        // Answers with the `Allow` header that axum adds.
        .method_not_allowed_fallback(no_method)
        .with_state(rooms)
}

/// Vault's health door, for probes: 200 while the process answers. It tells nothing else.
async fn health() -> axum::Json<serde_json::Value> {
    let version = concat!("keyward ", env!("CARGO_PKG_VERSION"));
    axum::Json(serde_json::json!({"initialized": true, "sealed": false, "standby": false, "version": version}))
}

async fn no_route(uri: Uri) -> axum::response::Response {
    ApiError::NoRoute.at(Door::of(uri.path()))
}

async fn no_method(method: Method, uri: Uri) -> axum::response::Response {
    ApiError::NoMethod(method).at(Door::of(uri.path()))
}
