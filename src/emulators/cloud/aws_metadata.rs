//! Metadata service of EC2, version 2 only
//! (docs.aws.amazon.com, "Use the Instance Metadata Service to access instance metadata").
//!
//! A real one also drops responses that would pass another host, unless the machine's hop limit allows it; loopback has no hops.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{Path, State as AxumState};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, put};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::State;
use super::aws_account::AwsNames;
use super::faults::FaultTarget;
use super::serve::json_response;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/latest/api/token", put(open_session))
        .route("/latest/meta-data/iam/security-credentials/", get(role))
        .route("/latest/meta-data/iam/security-credentials/{role}", get(credentials))
        .route("/latest/meta-data/iam/info", get(info))
        .route("/latest/meta-data/instance-id", get(instance_id))
        .route("/latest/meta-data/placement/region", get(region))
        .route("/latest/dynamic/instance-identity/document", get(document))
}

async fn open_session(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Metadata).await {
        return *failure;
    }
    // Keeps out requests that a misconfigured proxy forwards.
    if headers.contains_key("x-forwarded-for") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let life = headers.get(TTL).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let Some(life) = life.filter(|life| (1..=MAX_SESSION).contains(life)) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    match state.aws.open_session(state.clock.now().wall, Duration::from_secs(life)) {
        Some(token) => ([(TTL, life.to_string())], token).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn role(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap) -> Response {
    text(&state, &headers, AwsNames::ROLE).await
}

async fn instance_id(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap) -> Response {
    text(&state, &headers, AwsNames::INSTANCE).await
}

async fn region(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap) -> Response {
    text(&state, &headers, AwsNames::REGION).await
}

async fn credentials(
    AxumState(state): AxumState<Arc<State>>,
    Path(role): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Metadata).await {
        return *failure;
    }
    if let Err(refusal) = check_session(&state, &headers) {
        return *refusal;
    }
    if role != AwsNames::ROLE {
        return StatusCode::NOT_FOUND.into_response();
    }
    let life = state.faults.settings().token_life.unwrap_or(CREDENTIAL_LIFE);
    let Some(made) = state.aws.credentials(state.clock.now().wall, life) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let body = json!({
        "Code": "Success", "LastUpdated": rfc3339(made.issued), "Type": "AWS-HMAC", "AccessKeyId": made.access_key_id,
        "SecretAccessKey": made.secret_access_key.expose_secret(), "Token": made.session_token.expose_secret(),
        "Expiration": rfc3339(made.expires),
    });
    json_response(StatusCode::OK, &body)
}

async fn info(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap) -> Response {
    let profile = format!("arn:aws:iam::{}:instance-profile/{}", AwsNames::ACCOUNT, AwsNames::ROLE);
    let body = json!({
        "Code": "Success", "LastUpdated": rfc3339(state.clock.now().wall), "InstanceProfileArn": profile,
        "InstanceProfileId": "AIPA1234567890EXAMPLE",
    });
    instance_document(&state, &headers, &body).await
}

async fn document(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap) -> Response {
    let body = json!({
        "accountId": AwsNames::ACCOUNT, "architecture": "x86_64", "availabilityZone": format!("{}a", AwsNames::REGION),
        "imageId": "ami-0123456789abcdef0", "instanceId": AwsNames::INSTANCE, "instanceType": "emulated",
        "pendingTime": "2026-01-01T00:00:00Z", "privateIp": "10.0.0.4", "region": AwsNames::REGION, "version": "2017-09-30",
    });
    instance_document(&state, &headers, &body).await
}

async fn instance_document(state: &State, headers: &HeaderMap, body: &Value) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Instance).await {
        return *failure;
    }
    if state.faults.settings().block_instance {
        return StatusCode::NOT_FOUND.into_response();
    }
    check_session(state, headers).map_or_else(|refusal| *refusal, |()| json_response(StatusCode::OK, body))
}

async fn text(state: &State, headers: &HeaderMap, text: &'static str) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Instance).await {
        return *failure;
    }
    check_session(state, headers).map_or_else(|refusal| *refusal, |()| text.into_response())
}

/// Refuses requests of version 1, which have no session.
fn check_session(state: &State, headers: &HeaderMap) -> Result<(), Box<Response>> {
    let token = headers.get("x-aws-ec2-metadata-token").and_then(|token| token.to_str().ok()).unwrap_or_default();
    if state.aws.is_session(token, state.clock.now().wall) {
        return Ok(());
    }
    Err(Box::new(StatusCode::UNAUTHORIZED.into_response()))
}

const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
/// Longest life of a session: six hours.
const MAX_SESSION: u64 = 21_600;
/// Life of a role's credentials, about as on a real machine.
const CREDENTIAL_LIFE: Duration = Duration::from_hours(6);

fn rfc3339(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time).replace_nanosecond(0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_default()
}
