//! The identity endpoint of App Service, Functions and Container Apps.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State as Held};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, StatusCode};

use super::State;
use super::faults::Door;
use super::metadata::{issued, principal, refuse};
use crate::emulators::control_listener::carries;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/msi/token", get(token))
}

type Parameters = Query<std::collections::BTreeMap<String, String>>;

async fn token(Held(state): Held<Arc<State>>, headers: HeaderMap, Query(query): Parameters) -> Response {
    if let Err(failure) = state.knock(Door::AppService).await {
        return *failure;
    }
    if !carries(&headers, "x-identity-header", &state.names.identity_header) {
        return refuse(StatusCode::UNAUTHORIZED, "access_denied", "The identity header is missing or wrong");
    }
    if query.get("api-version").is_none_or(|version| version != "2019-08-01") {
        return refuse(StatusCode::BAD_REQUEST, "invalid_request", "api-version 2019-08-01 is needed");
    }
    let Some(resource) = query.get("resource") else {
        return refuse(StatusCode::BAD_REQUEST, "invalid_request", "The resource is missing");
    };
    match principal(&state, &query) {
        Some(who) => issued(&state, who, resource, "app"),
        None => {
            refuse(StatusCode::BAD_REQUEST, "invalid_request", "No User Assigned or Delegated Managed Identity found")
        }
    }
}
