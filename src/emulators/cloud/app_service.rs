//! Identity endpoint of App Service, Functions and Container Apps.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State as AxumState};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, StatusCode};

use super::State;
use super::faults::FaultTarget;
use super::metadata::{error_response, principal, token_response};
use crate::control_listener::has_secret_header;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/msi/token", get(token))
}

type Parameters = Query<std::collections::BTreeMap<String, String>>;

async fn token(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap, Query(query): Parameters) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::AppService).await {
        return *failure;
    }
    if !has_secret_header(&headers, "x-identity-header", &state.identities.identity_header) {
        return error_response(StatusCode::UNAUTHORIZED, "access_denied", "The identity header is missing or wrong");
    }
    if query.get("api-version").is_none_or(|version| version != "2019-08-01") {
        return error_response(StatusCode::BAD_REQUEST, "invalid_request", "api-version 2019-08-01 is needed");
    }
    let Some(resource) = query.get("resource") else {
        return error_response(StatusCode::BAD_REQUEST, "invalid_request", "The resource is missing");
    };
    match principal(&state, &query) {
        Some(principal) => token_response(&state, principal, resource, "app"),
        None => error_response(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "No User Assigned or Delegated Managed Identity found",
        ),
    }
}
