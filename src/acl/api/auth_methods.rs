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
use crate::model::auth_method::{AuthMethodRecord, Locality, MethodType, NamespaceRule};
use crate::model::go_duration::GoDuration;
use crate::model::names::NamespaceName;
use crate::service::auth_methods::AuthMethodDraft;
use crate::service::caller::Privilege;
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    namespace_rules: Vec<NamespaceRuleView<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    token_name_format: &'a str,
    /// Absent in lists, as in Consul.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a Map<String, Value>>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

/// JSON view of an auth method of the configuration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct ConfiguredMethodView<'a> {
    name: &'a str,
    #[serde(rename = "Type")]
    kind: &'static str,
    description: String,
    configured: bool,
    roles: Vec<&'a str>,
    namespace: NamespaceName,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ListedMethod<'a> {
    Stored(AuthMethodView<'a>),
    Configured(ConfiguredMethodView<'a>),
}

/// JSON view of a namespace rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct NamespaceRuleView<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    selector: &'a str,
    bind_namespace: &'a str,
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
        namespace_rules: record
            .namespace_rules
            .iter()
            .map(|rule| NamespaceRuleView { selector: &rule.selector, bind_namespace: &rule.bind_namespace })
            .collect(),
        token_name_format: &record.token_name_format,
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
    let namespace_rules = fields.objects("NamespaceRules", |rule| {
        Ok(NamespaceRule {
            selector: rule.string("Selector")?.unwrap_or_default(),
            bind_namespace: rule.string("BindNamespace")?.unwrap_or_default(),
        })
    })?;
    let mut text = |name| fields.string(name).map(Option::unwrap_or_default);
    let draft = AuthMethodDraft {
        name: text("Name")?,
        kind: text("Type")?,
        display_name: text("DisplayName")?,
        description: text("Description")?,
        max_token_ttl,
        locality: text("TokenLocality")?,
        namespace_rules,
        token_name_format: text("TokenNameFormat")?,
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
    let mut methods: Vec<_> = list.entries.iter().map(|method| ListedMethod::Stored(view(method, false))).collect();
    // Clients of Consul do not ask for these: they would read, change or delete them, which only the configuration can.
    let default_namespace = NamespaceName::default_namespace();
    if request.query.parse_flag("configured")?
        && scope.single().is_none_or(NamespaceName::is_default)
        && caller.has(Privilege::AclRead, &default_namespace)
    {
        methods.extend(state.methods.configured().map(|(name, roles)| {
            ListedMethod::Configured(ConfiguredMethodView {
                name,
                kind: MethodType::Cloud.as_str(),
                description: format!(
                    "acl.method.{name} of the configuration, with the login roles {}",
                    roles.join(", ")
                ),
                configured: true,
                roles,
                namespace: default_namespace.clone(),
            })
        }));
    }
    let mut response = ApiResponse::json(&methods, request.pretty())?;
    response.omitted = list.omitted;
    Ok(ReadResult { response, index: list.revision, watch: vec![watch], until: None })
}
