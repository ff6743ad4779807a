//! Handlers of `/v1/auth/token/{lookup,revoke,renew}-self` in Vault's wire format.

use http::{Response, StatusCode};
use serde_json::json;

use super::{VaultRequest, authenticate};
use crate::api::error::ApiError;
use crate::api::response::{ApiResponse, ResponseBody};
use crate::api::state::ApiState;
use crate::model::id::Id;
use crate::service::links::LinkKind;
use crate::store::Freshness;

pub(crate) async fn look_up(state: &ApiState, request: VaultRequest) -> Result<Response<ResponseBody>, ApiError> {
    let (live, secret) = authenticate(state, &request.head).await?;
    let token = &live.token.value;
    let immutable = token.immutable();
    let links = &token.links.policies;
    let linked =
        state.service.links().load(&immutable.namespace, LinkKind::Policy, links, Freshness::Linearizable).await?;
    let policies: Vec<String> = linked.into_iter().map(|link| link.name).collect();
    let login = immutable.login.as_ref();
    let ttl = immutable.expiration_time.map_or(0, |end| end.since(immutable.create_time).as_secs());
    let data = json!({
        "accessor": immutable.accessor_id,
        "creation_time": immutable.create_time.unix_seconds(),
        "creation_ttl": ttl,
        "display_name": login.map_or("token".to_owned(), |login| match &login.role {
            Some(role) => format!("{}-{role}", login.auth_method),
            None => login.auth_method.clone(),
        }),
        "entity_id": "",
        "expire_time": immutable.expiration_time,
        "explicit_max_ttl": ttl,
        "id": secret.reveal(),
        "issue_time": immutable.create_time,
        "meta": login.map(|login| &login.facts),
        "num_uses": 0,
        "orphan": true,
        // Vault's path of tokens that no login created.
        "path": login.map_or("auth/token/create".to_owned(), |login| format!("auth/{}/login", login.auth_method)),
        "policies": policies,
        "renewable": false,
        "ttl": token.remaining(live.read_at).map_or(0, |remaining| remaining.as_secs()),
        "type": "service",
    });
    let response = json!({
        "request_id": Id::random(),
        "lease_id": "",
        "renewable": false,
        "lease_duration": 0,
        "data": data,
        "wrap_info": null,
        "warnings": null,
        "auth": null,
    });
    super::json(&response)
}

pub(crate) async fn revoke(state: &ApiState, request: VaultRequest) -> Result<Response<ResponseBody>, ApiError> {
    let (live, _) = authenticate(state, &request.head).await?;
    state.service.token_records().destroy(&live.token.value).await?;
    let accessor = live.token.value.immutable().accessor_id.to_string();
    tracing::info!(event = "acl.token.revoked", accessor, "a token was revoked by its holder");
    Ok(ApiResponse::empty(StatusCode::NO_CONTENT).into_http())
}

pub(crate) async fn renew(state: &ApiState, request: VaultRequest) -> Result<Response<ResponseBody>, ApiError> {
    authenticate(state, &request.head).await?;
    Err(ApiError::NotRenewable)
}
