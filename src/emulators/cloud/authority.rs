//! Token endpoint, discovery and signing keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Form, Path, State as AxumState};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde_json::{Value, json};

use super::State;
use super::assertion::AuthorityError;
use super::faults::FaultTarget;
use super::serve::json_response;
use super::tokens::{Principal, seconds};

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/{tenant}/oauth2/v2.0/token", post(token))
        .route("/{tenant}/.well-known/openid-configuration", get(discovery))
        .route("/{tenant}/v2.0/.well-known/openid-configuration", get(discovery))
        .route("/{tenant}/discovery/keys", get(keys))
}

type Fields = BTreeMap<String, String>;

async fn token(
    AxumState(state): AxumState<Arc<State>>,
    Path(tenant): Path<String>,
    Form(form): Form<Fields>,
) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Authority).await {
        return *failure;
    }
    let granted = grant(&state, &tenant, &form).and_then(|(principal, audience)| {
        state
            .issue(principal, &audience)
            .ok_or_else(|| AuthorityError::new(50_000, "There was an error issuing a token"))
    });
    match granted {
        Ok(issued) => {
            let body = json!({
                "token_type": "Bearer", "expires_in": issued.life, "ext_expires_in": issued.life,
                "access_token": issued.token,
            });
            json_response(StatusCode::OK, &body)
        }
        Err(refusal) => refusal_response(&state, &refusal),
    }
}

/// Authenticates a token request. Returns the principal and the audience.
fn grant(state: &State, tenant: &str, form: &Fields) -> Result<(Principal, String), AuthorityError> {
    let field = |name: &str| form.get(name).map(String::as_str);
    if !tenant.eq_ignore_ascii_case(&state.identities.tenant) {
        return Err(AuthorityError::new(90_002, &format!("Tenant '{tenant}' not found")));
    }
    if field("grant_type") != Some("client_credentials") {
        return Err(AuthorityError::new(70_003, "The app requested an unsupported grant type"));
    }
    let client = field("client_id").unwrap_or_default();
    let principal = [Principal::Workload, Principal::Application]
        .into_iter()
        .find(|principal| state.identity(*principal).client_id.eq_ignore_ascii_case(client));
    let Some(principal) = principal else {
        let problem = format!("Application with identifier '{client}' was not found in the directory");
        return Err(AuthorityError::new(700_016, &problem));
    };
    match (principal, field("client_secret"), field("client_assertion")) {
        (Principal::Application, Some(secret), None) => {
            if !keyward_machine::secret::ct_eq(&state.identities.client_secret, secret.as_bytes()) {
                return Err(AuthorityError::new(7_000_215, "Invalid client secret provided"));
            }
        }
        (_, None, Some(assertion)) => {
            if field("client_assertion_type") != Some("urn:ietf:params:oauth:client-assertion-type:jwt-bearer") {
                return Err(AuthorityError::new(
                    900_144,
                    "The request body must contain the parameter 'client_assertion_type'",
                ));
            }
            state.check_assertion(principal, assertion)?;
        }
        _ => {
            let needed = "The request body must contain the parameter: 'client_assertion' or 'client_secret'";
            return Err(AuthorityError::new(7_000_218, needed));
        }
    }
    let scope = field("scope").unwrap_or_default();
    match scope.strip_suffix("/.default") {
        Some(audience) if !audience.is_empty() => Ok((principal, audience.to_owned())),
        _ => Err(AuthorityError::new(
            70_011,
            &format!("The provided value for the input parameter 'scope' is not valid: {scope}"),
        )),
    }
}

fn refusal_response(state: &State, refusal: &AuthorityError) -> Response {
    let (status, error) = match refusal.code {
        700_024 | 70_021 | 700_027 | 7_000_215 | 7_000_218 => (StatusCode::UNAUTHORIZED, "invalid_client"),
        50_000 => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
        700_016 => (StatusCode::BAD_REQUEST, "unauthorized_client"),
        70_011 => (StatusCode::BAD_REQUEST, "invalid_scope"),
        _ => (StatusCode::BAD_REQUEST, "invalid_request"),
    };
    let id = || uuid::Uuid::new_v4().to_string();
    let trace = id();
    let correlation = id();
    let text = format!(
        "AADSTS{}: {}. Trace ID: {trace} Correlation ID: {correlation} (emulated)",
        refusal.code, refusal.message
    );
    let body = json!({
        "error": error, "error_description": text, "error_codes": [refusal.code], "trace_id": trace,
        "correlation_id": correlation, "timestamp": seconds(state.clock.now().wall),
    });
    json_response(status, &body)
}

async fn discovery(AxumState(state): AxumState<Arc<State>>, Path(tenant): Path<String>) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Keys).await {
        return *failure;
    }
    if !tenant.eq_ignore_ascii_case(&state.identities.tenant) {
        return refusal_response(&state, &AuthorityError::new(90_002, &format!("Tenant '{tenant}' not found")));
    }
    let base = state.issuer();
    let body = json!({
        "issuer": base, "jwks_uri": format!("{base}discovery/keys"),
        "token_endpoint": format!("{base}oauth2/v2.0/token"),
        "authorization_endpoint": format!("{base}oauth2/v2.0/authorize"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["pairwise"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
    });
    json_response(StatusCode::OK, &body)
}

async fn keys(AxumState(state): AxumState<Arc<State>>) -> Result<Json<Value>, Response> {
    state.apply_faults(FaultTarget::Keys).await.map_err(|failure| *failure)?;
    Ok(Json(json!({"keys": [state.signing_key.jwk()]})))
}
