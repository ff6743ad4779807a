//! Handlers of `/v1/acl/auth-method` and `/v1/acl/auth-methods`.

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::{ApiError, record_not_found};
use super::json::JsonFields;
use super::request::{ApiRequest, DEFAULT_PARTITION, take_namespace};
use super::request_context::RequestContext;
use super::response::{ApiResponse, Change, ReadResult, WriteResult};
use super::state::ApiState;
use super::views::{READ_ONLY, parse_duration};
use crate::model::auth_method::{AuthMethodRecord, Locality};
use crate::model::go_duration::GoDuration;
use crate::service::auth_methods::AuthMethodDraft;
use crate::service::record_keys;
use crate::service::typed_store::Stored;
use crate::store::Freshness;

/// JSON view of an auth method.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct AuthMethodView<'a> {
    name: &'a str,
    #[serde(rename = "Type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    display_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(rename = "MaxTokenTTL", skip_serializing_if = "Option::is_none")]
    max_token_ttl: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_locality: Option<&'static str>,
    /// Absent in lists, as in Consul.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a Map<String, Value>>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

fn view(method: &Stored<AuthMethodRecord>, with_config: bool) -> AuthMethodView<'_> {
    let record = &method.value;
    AuthMethodView {
        name: &record.name,
        kind: record.kind.as_str(),
        display_name: &record.display_name,
        description: &record.description,
        max_token_ttl: record.max_token_ttl.map(|ttl| GoDuration::from_duration(ttl).to_string()),
        token_locality: record.locality.map(Locality::as_str),
        config: with_config.then_some(&record.config),
        namespace: record.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: method.created.0,
        modify_index: method.modified.0,
    }
}

/// Parses a body into the draft and the namespace.
fn parse_draft(mut fields: JsonFields) -> Result<(AuthMethodDraft, Option<String>), ApiError> {
    let namespace = take_namespace(&mut fields)?;
    let max_token_ttl = parse_duration(&mut fields, "MaxTokenTTL")?;
    let config = fields.map("Config")?.unwrap_or_default();
    let mut text = |name| fields.string(name).map(Option::unwrap_or_default);
    let draft = AuthMethodDraft {
        name: text("Name")?,
        kind: text("Type")?,
        display_name: text("DisplayName")?,
        description: text("Description")?,
        max_token_ttl,
        locality: text("TokenLocality")?,
        config,
    };
    fields.ignore(READ_ONLY);
    fields.finish()?;
    Ok((draft, namespace))
}

pub(super) async fn create(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_namespace) = parse_draft(request.json_body("AuthMethod").await?)?;
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let method = state.service.auth_methods().create(&context.caller, &context.namespace, &draft).await?;
    let view = view(&method, true);
    context.into_change(request, &view, draft.name)
}

pub(super) async fn update(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (mut draft, body_namespace) = parse_draft(request.json_body("AuthMethod").await?)?;
    let name = path_name(request)?;
    if draft.name.is_empty() {
        draft.name = name.to_owned();
    } else if draft.name != name {
        return Err(ApiError::PathBodyMismatch { field: "Auth Method Name".to_owned() });
    }
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let method = state.service.auth_methods().update(&context.caller, &context.namespace, &draft).await?;
    let view = view(&method, true);
    context.into_change(request, &view, draft.name)
}

pub(super) async fn delete(state: &ApiState, request: &ApiRequest) -> Result<WriteResult, ApiError> {
    let name = path_name(request)?;
    let context = RequestContext::for_write(state, request, None).await?;
    let deleted = state.service.auth_methods().delete(&context.caller, &context.namespace, name).await?;
    context.into_deletion(request, deleted, name)
}

fn path_name(request: &ApiRequest) -> Result<&str, ApiError> {
    match request.subject.as_str() {
        "" => Err(ApiError::MissingSubject { kind: "auth method", field: "Name" }),
        name => Ok(name),
    }
}

pub(super) async fn read(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let name = path_name(request)?;
    let context = RequestContext::for_read(state, request, freshness).await?;
    let watch = record_keys::auth_method(&context.namespace, name).as_str().to_owned();
    let index = state.service.typed_store().revision(&watch, freshness).await?;
    let response = match state.service.auth_methods().get(&context.caller, &context.namespace, name, freshness).await? {
        Some(method) => ApiResponse::json(&view(&method, true), request.pretty())?,
        None => record_not_found("auth method"),
    };
    Ok(ReadResult { response, index, watch: vec![watch], until: None })
}

pub(super) async fn list(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let caller = request.authenticate(state, freshness).await?;
    let scope = request.scope(&caller, None)?;
    let watch = record_keys::kind_prefix("auth-method", scope.single());
    let list = state.service.auth_methods().list(&caller, scope.single(), freshness).await?;
    let methods: Vec<_> = list.entries.iter().map(|method| view(method, false)).collect();
    let mut response = ApiResponse::json(&methods, request.pretty())?;
    response.omitted = list.omitted;
    Ok(ReadResult { response, index: list.revision, watch: vec![watch], until: None })
}
