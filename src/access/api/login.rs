//! `POST /v1/auth/MOUNT/login`, in Vault's wire.

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse as _, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

use super::error::{ApiError, Door, NO_STORE};
use super::{Rooms, body, caller};
use crate::access::model::cloud::Stated;
use crate::access::model::id::Id;
use crate::access::service::login::{Granted, Request};

const WRAP_HEADER: HeaderName = HeaderName::from_static("x-vault-wrap-ttl");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginBody {
    role: Option<String>,
    jwt: Option<UnverifiedJwt>,
    subscription_id: Option<String>,
    resource_group_name: Option<String>,
    vm_name: Option<String>,
    vmss_name: Option<String>,
    resource_id: Option<String>,
}

/// Takes the text over as a secret.
#[derive(Deserialize)]
#[serde(from = "String")]
struct UnverifiedJwt(SecretString);

impl From<String> for UnverifiedJwt {
    fn from(text: String) -> Self {
        Self(SecretString::from(text))
    }
}

pub(super) async fn login(
    State(rooms): State<Rooms>,
    mount: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // A mount that is no text is the name of none.
    let Ok(Path(mount)) = mount else { return ApiError::NoRoute.at(Door::Vault) };
    log_in(&rooms, &mount, &headers, body).await.unwrap_or_else(|error| error.at(Door::Vault))
}

async fn log_in(rooms: &Rooms, mount: &str, headers: &HeaderMap, body: Body) -> Result<Response, ApiError> {
    caller::default_namespace(headers)?;
    // Who asks for a wrapped token must not get a bare one.
    if headers.contains_key(WRAP_HEADER) {
        return Err(ApiError::Wrapping);
    }
    let body: LoginBody = body::json(body).await.map_err(ApiError::Body)?;
    let request = Request {
        role: body.role,
        unverified_jwt: body.jwt.map(|UnverifiedJwt(jwt)| jwt).filter(|jwt| !jwt.expose_secret().is_empty()),
        unverified_fields: Stated {
            vm_name: body.vm_name,
            vmss_name: body.vmss_name,
            resource_group_name: body.resource_group_name,
            subscription_id: body.subscription_id,
            resource_id: body.resource_id,
        },
    };
    let granted = rooms.methods.login(mount, request).await.map_err(ApiError::Login)?;
    let mut answer = Json(answer(&granted)).into_response();
    answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(answer)
}

fn answer(granted: &Granted) -> serde_json::Value {
    let Granted { token, secret, policies } = granted;
    let birth = token.record.birth();
    let mut metadata = birth.login.as_ref().map(|login| login.facts.clone()).unwrap_or_default();
    metadata.extend(birth.login.as_ref().map(|login| ("role".to_owned(), login.role.clone())));
    json!({
        "request_id": Id::random(),
        "lease_id": "",
        "renewable": false,
        "lease_duration": 0,
        "data": null,
        "wrap_info": null,
        "warnings": null,
        "auth": {
            "client_token": secret.reveal(),
            "accessor": birth.accessor_id,
            "policies": policies,
            "token_policies": policies,
            "metadata": metadata,
            "lease_duration": token.record.remaining(token.read).map_or(0, |left| left.as_secs()),
            "renewable": false,
            "entity_id": "",
            "token_type": "service",
            "orphan": true,
            "num_uses": 0,
        },
    })
}
