//! Instance metadata service (learn.microsoft.com, "Azure Instance Metadata Service"): identity tokens and the instance
//! document.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State as AxumState};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::faults::FaultTarget;
use super::serve::json_response;
use super::tokens::{IssuedToken, Principal};
use super::{CloudIdentities, MachineKind, State};

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/metadata/identity/oauth2/token", get(token).fallback(not_allowed))
        .route("/metadata/instance", get(instance).fallback(not_allowed))
        .route("/metadata/instance/compute", get(compute).fallback(not_allowed))
}

async fn token(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Metadata).await {
        return *failure;
    }
    let query = match check_request(&headers, query.as_deref()) {
        Ok(query) => query,
        Err(refusal) => return *refusal,
    };
    let Some(resource) = query.get("resource") else {
        return error_response(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "Required query parameter 'resource' is missing",
        );
    };
    match principal(&state, &query) {
        Some(principal) => token_response(&state, principal, resource, "managed identity"),
        None => error_response(StatusCode::BAD_REQUEST, "invalid_request", "Identity not found"),
    }
}

/// Returns the identity that a query names, if the machine has it.
pub(super) fn principal(state: &State, query: &BTreeMap<String, String>) -> Option<Principal> {
    let by = |name: &str| query.get(name).map(String::as_str);
    let object = by("object_id").or_else(|| by("principal_id"));
    let resource = by("msi_res_id").or_else(|| by("mi_res_id"));
    match (object, by("client_id"), resource) {
        (None, None, None) => Some(Principal::System),
        (object, client, resource) => [Principal::System, Principal::User].into_iter().find(|principal| {
            let identity = state.identity(*principal);
            // Only user-assigned identities are resources of their own.
            let own_resource = matches!(principal, Principal::User).then(|| state.identities.user_identity_id());
            object.is_none_or(|id| id.eq_ignore_ascii_case(&identity.object_id))
                && client.is_none_or(|id| id.eq_ignore_ascii_case(&identity.client_id))
                && resource.is_none_or(|id| own_resource.is_some_and(|own| id.eq_ignore_ascii_case(&own)))
        }),
    }
}

/// Parameters that name an identity.
pub(super) const IDENTITY_PARAMETERS: [&str; 5] = ["object_id", "principal_id", "client_id", "msi_res_id", "mi_res_id"];

/// Builds a token response as all managed-identity endpoints write it: numbers as strings.
pub(super) fn token_response(state: &State, principal: Principal, resource: &str, what: &str) -> Response {
    let Some(IssuedToken { token, client_id, not_before, expires, life }) = state.issue(principal, resource) else {
        return error_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            "unknown",
            &format!("cannot sign a token for the {what}"),
        );
    };
    let body = json!({
        "access_token": token, "client_id": client_id, "expires_in": life.to_string(),
        "expires_on": expires.to_string(), "ext_expires_in": life.to_string(), "not_before": not_before.to_string(),
        "resource": resource, "token_type": "Bearer",
    });
    json_response(StatusCode::OK, &body)
}

async fn instance(state: AxumState<Arc<State>>, headers: HeaderMap, query: RawQuery) -> Response {
    document(&state, &headers, query.0.as_deref(), |state| json!({"compute": compute_document(state)})).await
}

async fn compute(state: AxumState<Arc<State>>, headers: HeaderMap, query: RawQuery) -> Response {
    document(&state, &headers, query.0.as_deref(), compute_document).await
}

async fn document(
    state: &State,
    headers: &HeaderMap,
    query: Option<&str>,
    body: impl FnOnce(&State) -> Value,
) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Instance).await {
        return *failure;
    }
    if state.faults.settings().block_instance || state.machine == MachineKind::App {
        return error_response(StatusCode::NOT_FOUND, "not_found", "No instance document on this host");
    }
    match check_request(headers, query) {
        Ok(_) => json_response(StatusCode::OK, &body(state)),
        Err(refusal) => *refusal,
    }
}

fn compute_document(state: &State) -> Value {
    let (name, set) = match state.machine {
        MachineKind::VirtualMachine => (CloudIdentities::VM.to_owned(), ""),
        MachineKind::ScaleSet => (format!("{}_0", CloudIdentities::SCALE_SET), CloudIdentities::SCALE_SET),
        MachineKind::App => (CloudIdentities::APP.to_owned(), ""),
    };
    let set_id = if set.is_empty() { String::new() } else { state.identities.machine_id(state.machine) };
    json!({
        "azEnvironment": "AzurePublicCloud", "location": "emulated", "name": name,
        "resourceGroupName": CloudIdentities::RESOURCE_GROUP, "resourceId": state.identities.machine_id(state.machine),
        "subscriptionId": state.identities.subscription, "vmScaleSetName": set,
        "virtualMachineScaleSet": {"id": set_id}, "vmId": state.identities.system.object_id,
    })
}

/// Checks what every request needs: the `Metadata` header, no sign of a proxy, a version, and no repeated parameter.
pub(super) fn check_request(
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<BTreeMap<String, String>, Box<Response>> {
    let bad = |error, description: &str| Err(Box::new(error_response(StatusCode::BAD_REQUEST, error, description)));
    if headers.get("metadata").is_none_or(|value| value != "true") {
        return bad("bad_request_102", "Required metadata header not specified");
    }
    if headers.contains_key("x-forwarded-for") {
        return bad("bad_request_103", "Requests that a proxy forwarded are not answered");
    }
    let mut parameters = BTreeMap::new();
    for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if parameters.insert(name.to_ascii_lowercase(), value.into_owned()).is_some() {
            return bad("invalid_request", "A query parameter was given twice");
        }
    }
    if !parameters.contains_key("api-version") {
        let body = json!({"error": "Bad request. api-version was not specified in the request",
            "newest-versions": ["2021-02-01", "2020-06-01"]});
        return Err(Box::new(json_response(StatusCode::BAD_REQUEST, &body)));
    }
    Ok(parameters)
}

pub(super) fn error_response(status: StatusCode, error: &str, description: &str) -> Response {
    json_response(status, &json!({"error": error, "error_description": description}))
}

async fn not_allowed() -> Response {
    error_response(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Only GET is allowed")
}
