//! Metadata server of Compute Engine (cloud.google.com, "About VM metadata", "Verifying the identity of instances").

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State as AxumState};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::HeaderValue;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::State;
use super::faults::FaultTarget;
use super::google_project::GcpNames;
use super::serve::json_response;
use super::tokens::seconds;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/computeMetadata/v1/instance/service-accounts/{account}/{what}", get(account))
        .route("/computeMetadata/v1/instance/{what}", get(instance))
        .route("/computeMetadata/v1/project/{what}", get(project))
}

type Parameters = BTreeMap<String, String>;

async fn account(
    AxumState(state): AxumState<Arc<State>>,
    Path((account, what)): Path<(String, String)>,
    Query(query): Query<Parameters>,
    headers: HeaderMap,
) -> Response {
    let target = if what == "email" { FaultTarget::Instance } else { FaultTarget::Metadata };
    if let Err(failure) = state.apply_faults(target).await {
        return *failure;
    }
    if let Err(refusal) = check_request(&headers) {
        return *refusal;
    }
    if account != "default" && account != GcpNames::ACCOUNT {
        return plain(StatusCode::NOT_FOUND, "service account not found\n".to_owned());
    }
    match what.as_str() {
        "email" => plain(StatusCode::OK, GcpNames::ACCOUNT.to_owned()),
        "token" => match state.google.issue_access_token(GcpNames::ACCOUNT, state.clock.now().wall) {
            Some(token) => with_flavor(json_response(StatusCode::OK, &token)),
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
        "identity" => identity(&state, &query),
        _ => plain(StatusCode::NOT_FOUND, String::new()),
    }
}

fn identity(state: &State, query: &Parameters) -> Response {
    let Some(audience) = query.get("audience").filter(|audience| !audience.is_empty()) else {
        return plain(StatusCode::BAD_REQUEST, "non-empty audience parameter required\n".to_owned());
    };
    let is_full = query.get("format").is_some_and(|format| format == "full");
    match state.signing_key.sign(&identity_claims(state, audience, is_full)) {
        Some(token) => plain(StatusCode::OK, token),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Claims of an identity token, of which the full format names the machine.
fn identity_claims(state: &State, audience: &str, is_full: bool) -> Value {
    let settings = state.faults.settings();
    let now = seconds(state.shifted_now());
    let life = settings.token_life.map_or(3600, |life| i64::try_from(life.as_secs()).unwrap_or(i64::MAX));
    let mut claims = json!({
        "aud": settings.audience.as_deref().unwrap_or(audience), "azp": GcpNames::ACCOUNT_ID,
        "exp": now.saturating_add(life), "iat": now, "iss": "https://accounts.google.com", "sub": GcpNames::ACCOUNT_ID,
    });
    if is_full {
        claims["email"] = GcpNames::ACCOUNT.into();
        claims["email_verified"] = true.into();
        claims["google"] = json!({ "compute_engine": {
            "instance_creation_timestamp": GcpNames::CREATED, "instance_id": GcpNames::INSTANCE_ID,
            "instance_name": GcpNames::INSTANCE, "project_id": GcpNames::PROJECT,
            "project_number": GcpNames::PROJECT_NUMBER, "zone": GcpNames::ZONE,
        }});
    }
    claims
}

async fn instance(AxumState(state): AxumState<Arc<State>>, Path(what): Path<String>, headers: HeaderMap) -> Response {
    let zone = format!("projects/{}/zones/{}", GcpNames::PROJECT_NUMBER, GcpNames::ZONE);
    let values = [("id", GcpNames::INSTANCE_ID), ("name", GcpNames::INSTANCE), ("zone", zone.as_str())];
    value(&state, &headers, &values, &what).await
}

async fn project(AxumState(state): AxumState<Arc<State>>, Path(what): Path<String>, headers: HeaderMap) -> Response {
    let number = GcpNames::PROJECT_NUMBER.to_string();
    let values = [("project-id", GcpNames::PROJECT), ("numeric-project-id", number.as_str())];
    value(&state, &headers, &values, &what).await
}

async fn value(state: &State, headers: &HeaderMap, values: &[(&str, &str)], what: &str) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Instance).await {
        return *failure;
    }
    if let Err(refusal) = check_request(headers) {
        return *refusal;
    }
    match values.iter().find(|(name, _)| *name == what) {
        Some((_, text)) if !state.faults.settings().block_instance => plain(StatusCode::OK, (*text).to_owned()),
        _ => plain(StatusCode::NOT_FOUND, String::new()),
    }
}

/// Refuses requests without the header that a forged request seldom can set, and those that a proxy forwarded.
fn check_request(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let has_flavor = headers.get(FLAVOR).is_some_and(|value| value == "Google");
    if has_flavor && !headers.contains_key("x-forwarded-for") {
        return Ok(());
    }
    Err(Box::new(StatusCode::FORBIDDEN.into_response()))
}

const FLAVOR: &str = "metadata-flavor";

fn plain(status: StatusCode, text: String) -> Response {
    with_flavor((status, text).into_response())
}

fn with_flavor(mut response: Response) -> Response {
    response.headers_mut().insert(FLAVOR, HeaderValue::from_static("Google"));
    response
}
