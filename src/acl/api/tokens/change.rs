//! Handlers that create, clone, update and delete tokens.

use super::accessor_from_path;
use super::draft::parse_draft;
use super::view::view;
use crate::api::error::ApiError;
use crate::api::request::ApiRequest;
use crate::api::request_context::RequestContext;
use crate::api::response::{Change, WriteResult};
use crate::api::state::ApiState;
use crate::model::id::Id;
use crate::service::tokens::CreatedToken;
use crate::store::Freshness;

pub(crate) async fn create(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_namespace) = parse_draft(request.json_body("Token").await?)?;
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let created = state.service.tokens().create(&context.caller, &context.namespace, &draft).await?;
    token_change(state, request, context, &created).await
}

pub(crate) async fn clone(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_namespace) = parse_draft(request.json_body("Token").await?)?;
    let source = accessor_from_path(request)?;
    // Source and clone are in one namespace: the body's if neither the query nor a header names one.
    let fallback_namespace = if request.names_namespace() { None } else { body_namespace.as_deref() };
    let context = RequestContext::for_write(state, request, fallback_namespace).await?;
    if body_namespace.is_some_and(|body_namespace| body_namespace.parse() != Ok(context.namespace.clone())) {
        return Err(ApiError::CloneNamespace(context.namespace));
    }
    let created =
        state.service.tokens().create_clone(&context.caller, &context.namespace, source, &draft.description).await?;
    token_change(state, request, context, &created).await
}

async fn token_change(
    state: &ApiState,
    request: &ApiRequest,
    context: RequestContext,
    created: &CreatedToken,
) -> Result<Change, ApiError> {
    let token = &created.live.token;
    let view = view(state, token, created.secret.reveal(), Freshness::Linearizable).await?;
    context.into_change(request, &view, token.value.immutable().accessor_id)
}

pub(crate) async fn update(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_namespace) = parse_draft(request.json_body("Token").await?)?;
    let accessor = accessor_from_path(request)?;
    if draft.accessor.as_ref().is_some_and(|body_namespace| body_namespace.parse() != Ok(accessor)) {
        return Err(ApiError::PathBodyMismatch { field: "Token Accessor ID".to_owned() });
    }
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let token = state.service.tokens().update(&context.caller, &context.namespace, accessor, &draft).await?;
    let secret = state.service.tokens().unseal_secret(&token.value).await?;
    let view = view(state, &token, &secret, Freshness::Linearizable).await?;
    context.into_change(request, &view, accessor)
}

pub(crate) async fn delete(state: &ApiState, request: &ApiRequest) -> Result<WriteResult, ApiError> {
    let accessor: Id = accessor_from_path(request)?;
    let context = RequestContext::for_write(state, request, None).await?;
    let deleted = state.service.tokens().delete(&context.caller, &context.namespace, accessor).await?;
    context.into_deletion(request, deleted, accessor)
}
