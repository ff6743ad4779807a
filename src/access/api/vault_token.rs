//! `/v1/auth/token/{lookup,revoke,renew}-self`, in Vault's wire.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::Rooms;
use super::caller::caller;
use super::error::{ApiError, Door, NO_STORE};
use crate::access::model::id::Id;

pub(super) async fn lookup_self(State(rooms): State<Rooms>, headers: HeaderMap, uri: Uri) -> Response {
    look_up(&rooms, &headers, &uri).await.unwrap_or_else(|error| error.at(Door::Vault))
}

async fn look_up(rooms: &Rooms, headers: &HeaderMap, uri: &Uri) -> Result<Response, ApiError> {
    let (live, secret) = caller(rooms, headers, uri, Door::Vault).await?;
    let mut policies = Vec::new();
    for id in &live.record.links.policies {
        policies.extend(rooms.policies.name(*id).await?);
    }
    let birth = live.record.birth();
    let login = birth.login.as_ref();
    let lived = birth.expiration_time.map_or(0, |end| end.since(birth.create_time).as_secs());
    let data = json!({
        "accessor": birth.accessor_id,
        "creation_time": birth.create_time.unix_seconds(),
        "creation_ttl": lived,
        "display_name": login.map_or("token".to_owned(), |login| format!("{}-{}", login.auth_method, login.role)),
        "entity_id": "",
        "expire_time": birth.expiration_time,
        "explicit_max_ttl": lived,
        "id": secret.reveal(),
        "issue_time": birth.create_time,
        "meta": login.map(|login| &login.facts),
        "num_uses": 0,
        "orphan": true,
        "path": login.map_or("auth/token/create".to_owned(), |login| format!("auth/{}/login", login.auth_method)),
        "policies": policies,
        "renewable": false,
        "ttl": live.record.remaining(live.read).map_or(0, |left| left.as_secs()),
        "type": "service",
    });
    let answer = json!({
        "request_id": Id::random(),
        "lease_id": "",
        "renewable": false,
        "lease_duration": 0,
        "data": data,
        "wrap_info": null,
        "warnings": null,
        "auth": null,
    });
    let mut answer = Json(answer).into_response();
    answer.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(answer)
}

pub(super) async fn revoke_self(State(rooms): State<Rooms>, headers: HeaderMap, uri: Uri) -> Response {
    revoke(&rooms, &headers, &uri).await.unwrap_or_else(|error| error.at(Door::Vault))
}

async fn revoke(rooms: &Rooms, headers: &HeaderMap, uri: &Uri) -> Result<Response, ApiError> {
    let (live, _) = caller(rooms, headers, uri, Door::Vault).await?;
    rooms.tokens.revoke(&live.record).await?;
    let accessor = live.record.birth().accessor_id;
    tracing::info!(event = "access.token.revoked", %accessor, "a token was revoked by its holder");
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn renew_self(State(rooms): State<Rooms>, headers: HeaderMap, uri: Uri) -> Response {
    match caller(&rooms, &headers, &uri, Door::Vault).await {
        Ok(_) => ApiError::NotRenewable.at(Door::Vault),
        Err(error) => error.at(Door::Vault),
    }
}
