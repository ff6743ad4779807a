//! Handlers that read a token.

use super::view::view;
use super::{accessor_from_path, expanded};
use crate::api::error::{ApiError, record_not_found};
use crate::api::request::ApiRequest;
use crate::api::request_context::RequestContext;
use crate::api::response::{ApiResponse, ReadResult};
use crate::api::state::ApiState;
use crate::api::watched_keys::WatchedKeys;
use crate::service::record_keys;
use crate::service::tokens::ExpandedToken;
use crate::store::Freshness;

/// Reads the caller's own token. Needs no privilege, and shows the secret: the caller has it already.
pub(crate) async fn read_self(
    state: &ApiState,
    request: &ApiRequest,
    freshness: Freshness,
) -> Result<ReadResult, ApiError> {
    let secret = request.secret.as_ref().ok_or(ApiError::UnknownToken)?;
    // Loaded before the read: a change in between is then newer.
    let kinds = WatchedKeys::policies_and_roles(None).into_iter().chain([record_keys::kind_prefix("token", None)]);
    let watched = WatchedKeys::load(state, kinds, freshness).await?;
    let live =
        state.service.authenticator().live_token_by_secret(secret, freshness).await?.ok_or(ApiError::UnknownToken)?;
    request.audit_accessor(live.accessor());
    let token = &live.token.value;
    let immutable = token.immutable();
    let watched = watched
        .retain_kind_if("policy", !token.links.policies.is_empty())
        .retain_kind_if("role", !token.roles.is_empty());
    let (index, mut watch) = watched.into_parts();
    // Watches only this token instead of all tokens.
    watch.pop();
    watch.push(record_keys::token(&immutable.namespace, immutable.accessor_id).as_str().to_owned());
    let until = immutable.expiration_time;
    let view = view(state, &live.token, secret.reveal(), freshness).await?;
    Ok(ReadResult { response: ApiResponse::json(&view, request.pretty())?, index, watch, until })
}

pub(crate) async fn read(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let accessor = accessor_from_path(request)?;
    let expanded = request.query.parse_flag("expanded")?;
    let context = RequestContext::for_read(state, request, freshness).await?;
    let token_key = record_keys::token(&context.namespace, accessor).as_str().to_owned();
    // An expanded read also shows the namespace's defaults, which are policies and roles of `default`.
    let linked = WatchedKeys::policies_and_roles(Some(&context.namespace).filter(|_| !expanded));
    let defaults = expanded.then(|| record_keys::namespace(&context.namespace).as_str().to_owned());
    let watched = WatchedKeys::load(state, linked.into_iter().chain(defaults).chain([token_key]), freshness).await?;
    let Some(token) = state.service.tokens().get(&context.caller, &context.namespace, accessor, freshness).await?
    else {
        let response = record_not_found("token");
        let (index, watch) = watched
            .retain_kind_if("policy", false)
            .retain_kind_if("role", false)
            .retain_kind_if("namespace", false)
            .into_parts();
        return Ok(ReadResult { response, index, watch, until: None });
    };
    let links_policies = expanded || !token.value.links.policies.is_empty();
    let links_roles = expanded || !token.value.roles.is_empty();
    let (index, watch) =
        watched.retain_kind_if("policy", links_policies).retain_kind_if("role", links_roles).into_parts();
    let secret = state.service.tokens().visible_secret(&context.caller, &token.value).await?;
    let view = view(state, &token, &secret, freshness).await?;
    let response = if expanded {
        let all = ExpandedToken::load(&state.service, &token.value, freshness).await?;
        let home = &token.value.immutable().namespace;
        ApiResponse::json(&expanded::view(state, view, home, &all, freshness).await?, request.pretty())?
    } else {
        ApiResponse::json(&view, request.pretty())?
    };
    Ok(ReadResult { response, index, watch, until: token.value.immutable().expiration_time })
}
