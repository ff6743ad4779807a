//! Google's APIs, as far as a login needs them: public keys, access tokens for the key of a service account, signatures on demand, and
//! the records of service accounts and machines that a server asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::signature::RSA_PKCS1_2048_8192_SHA256;
use axum::extract::{Form, Path, State as AxumState};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::State;
use super::faults::FaultTarget;
use super::google_project::GcpNames;
use super::keys::SigningKey;
use super::serve::json_response;
use super::tokens::seconds;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/oauth2/v1/certs", get(certificates))
        .route("/oauth2/v3/certs", get(keys))
        .route("/service_accounts/v1/metadata/x509/{account}", get(account_certificates))
        .route("/service_accounts/v1/jwk/{account}", get(account_keys))
        .route("/token", post(access_token))
        .route("/v1/projects/{project}/serviceAccounts/{account}", get(service_account).post(sign_jwt))
        .route("/compute/v1/projects/{project}/zones/{zone}/instances/{instance}", get(instance))
}

async fn certificates(AxumState(state): AxumState<Arc<State>>) -> Response {
    public(&state, json!({ state.signing_key.id(): state.google.issuer_certificate })).await
}

async fn keys(AxumState(state): AxumState<Arc<State>>) -> Response {
    public(&state, json!({ "keys": [state.signing_key.jwk()] })).await
}

async fn account_certificates(AxumState(state): AxumState<Arc<State>>, Path(account): Path<String>) -> Response {
    match state.account_key(&account) {
        Some((key, certificate)) => public(&state, json!({ key.id(): certificate })).await,
        None => error_response(StatusCode::NOT_FOUND, "NOT_FOUND", "Not Found"),
    }
}

async fn account_keys(AxumState(state): AxumState<Arc<State>>, Path(account): Path<String>) -> Response {
    match state.account_key(&account) {
        Some((key, _)) => public(&state, json!({ "keys": [key.jwk()] })).await,
        None => error_response(StatusCode::NOT_FOUND, "NOT_FOUND", "Not Found"),
    }
}

async fn public(state: &State, body: Value) -> Response {
    match state.apply_faults(FaultTarget::Keys).await {
        Ok(()) => json_response(StatusCode::OK, &body),
        Err(failure) => *failure,
    }
}

/// Exchanges an assertion that the key of a service account signed (developers.google.com, "Using OAuth 2.0 for Server to Server
/// Applications").
async fn access_token(AxumState(state): AxumState<Arc<State>>, Form(form): Form<BTreeMap<String, String>>) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Authority).await {
        return *failure;
    }
    let bad = |error: &str, text: &str| {
        json_response(StatusCode::BAD_REQUEST, &json!({ "error": error, "error_description": text }))
    };
    if form.get("grant_type").map(String::as_str) != Some("urn:ietf:params:oauth:grant-type:jwt-bearer") {
        return bad("unsupported_grant_type", "Invalid grant_type");
    }
    let assertion = form.get("assertion").map_or("", String::as_str);
    let Some(claims) = verified_claims(&state.certificate.key, assertion) else {
        return bad("invalid_grant", "Invalid JWT Signature.");
    };
    let now = seconds(state.shifted_now());
    let time = |name: &str| claims.get(name).and_then(Value::as_i64).unwrap_or_default();
    if time("exp") <= now || time("iat") > now + 60 || time("exp") - time("iat") > 3600 {
        let text = "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe.";
        return bad("invalid_grant", text);
    }
    if claims.get("iss").and_then(Value::as_str) != Some(GcpNames::KEY_ACCOUNT) {
        return bad("invalid_grant", "Invalid grant: account not found");
    }
    match state.google.issue_access_token(GcpNames::KEY_ACCOUNT, state.clock.now().wall) {
        Some(token) => json_response(StatusCode::OK, &token),
        None => bad("internal_failure", "no random bytes"),
    }
}

async fn service_account(
    AxumState(state): AxumState<Arc<State>>,
    Path((_, account)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = check_caller(&state, &headers).await {
        return *refusal;
    }
    let Some((email, id)) = GcpNames::find_account(&account) else {
        return error_response(StatusCode::NOT_FOUND, "NOT_FOUND", &format!("Unknown service account: {account}"));
    };
    let body = json!({
        "name": format!("projects/{}/serviceAccounts/{email}", GcpNames::PROJECT), "projectId": GcpNames::PROJECT,
        "uniqueId": id, "email": email, "oauth2ClientId": id,
    });
    json_response(StatusCode::OK, &body)
}

/// Signs claims for the machine's account, which may sign for itself only.
async fn sign_jwt(
    AxumState(state): AxumState<Arc<State>>,
    Path((project, called)): Path<(String, String)>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let caller = match check_caller(&state, &headers).await {
        Ok(caller) => caller,
        Err(refusal) => return *refusal,
    };
    let invalid = |text: &str| error_response(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", text);
    let account = called.strip_suffix(":signJwt").filter(|_| project == "-");
    let Some((account, _)) = account.and_then(GcpNames::find_account) else {
        return error_response(StatusCode::NOT_FOUND, "NOT_FOUND", "Requested entity was not found.");
    };
    if account != GcpNames::ACCOUNT || caller != account {
        let text = "Permission 'iam.serviceAccounts.signJwt' denied on resource (or it may not exist).";
        return error_response(StatusCode::FORBIDDEN, "PERMISSION_DENIED", text);
    }
    let payload = body.get("payload").and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(payload) = payload.filter(Value::is_object) else {
        return invalid("Payload is not a valid JSON object.");
    };
    if payload.get("exp").and_then(Value::as_i64).is_none_or(|end| end > seconds(state.shifted_now()) + 43_200) {
        return invalid("'exp' must be a time within 12 hours in the future.");
    }
    match state.cluster_key.sign(&payload) {
        Some(token) => json_response(StatusCode::OK, &json!({ "keyId": state.cluster_key.id(), "signedJwt": token })),
        None => error_response(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "Internal error encountered."),
    }
}

async fn instance(
    AxumState(state): AxumState<Arc<State>>,
    Path((project, zone, instance)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = check_caller(&state, &headers).await {
        return *refusal;
    }
    let expected = (GcpNames::PROJECT, GcpNames::ZONE, GcpNames::INSTANCE);
    if (project.as_str(), zone.as_str(), instance.as_str()) != expected {
        let text = format!("The resource 'projects/{project}/zones/{zone}/instances/{instance}' was not found");
        return error_response(StatusCode::NOT_FOUND, "NOT_FOUND", &text);
    }
    let zone = format!("https://www.googleapis.com/compute/v1/projects/{project}/zones/{zone}");
    let created = OffsetDateTime::from_unix_timestamp(GcpNames::CREATED).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let body = json!({
        "kind": "compute#instance", "id": GcpNames::INSTANCE_ID, "name": GcpNames::INSTANCE, "status": "RUNNING",
        "creationTimestamp": created.format(&Rfc3339).unwrap_or_default(), "selfLink": format!("{zone}/instances/{instance}"),
        "serviceAccounts": [{ "email": GcpNames::ACCOUNT }], "zone": zone,
    });
    json_response(StatusCode::OK, &body)
}

/// Returns the account whose access token a request has.
async fn check_caller(state: &State, headers: &HeaderMap) -> Result<&'static str, Box<Response>> {
    state.apply_faults(FaultTarget::Authority).await?;
    let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let caller = token.and_then(|token| state.google.find_caller(token, state.clock.now().wall));
    caller.ok_or_else(|| {
        let text = "Request had invalid authentication credentials. Expected OAuth 2 access token.";
        Box::new(error_response(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", text))
    })
}

impl State {
    /// Returns the key that signs for a service account, and its certificate.
    fn account_key(&self, account: &str) -> Option<(&SigningKey, &str)> {
        match GcpNames::find_account(account)?.0 {
            GcpNames::ACCOUNT => Some((&self.cluster_key, &self.google.account_certificate)),
            _ => Some((&self.certificate.key, &self.google.key_certificate)),
        }
    }
}

fn verified_claims(key: &SigningKey, jwt: &str) -> Option<Map<String, Value>> {
    let (signed, signature) = jwt.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let (_, claims) = signed.split_once('.').filter(|_| key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, &signature))?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

fn error_response(status: StatusCode, name: &str, message: &str) -> Response {
    json_response(status, &json!({ "error": { "code": status.as_u16(), "message": message, "status": name } }))
}
