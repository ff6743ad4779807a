//! Handlers of `/v1/acl/binding-rule` and `/v1/acl/binding-rules`.

use serde::Serialize;
use serde_json::{Map, Value};

use super::error::{ApiError, record_not_found};
use super::json::JsonFields;
use super::request::{ApiRequest, DEFAULT_PARTITION, RecordKind, take_namespace};
use super::request_context::RequestContext;
use super::response::{ApiResponse, Change, ReadResult, WriteResult};
use super::state::ApiState;
use super::views::READ_ONLY;
use crate::model::binding_rule::BindingRuleRecord;
use crate::model::id::Id;
use crate::service::binding_rules::BindingRuleDraft;
use crate::service::record_keys;
use crate::service::typed_store::Stored;
use crate::store::Freshness;

/// JSON view of a binding rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BindingRuleView<'a> {
    #[serde(rename = "ID")]
    id: Id,
    description: &'a str,
    auth_method: &'a str,
    selector: &'a str,
    bind_type: &'static str,
    bind_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bind_vars: Option<&'a Map<String, Value>>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

fn view(rule: &Stored<BindingRuleRecord>) -> BindingRuleView<'_> {
    let record = &rule.value;
    BindingRuleView {
        id: record.id,
        description: &record.description,
        auth_method: &record.auth_method,
        selector: &record.selector,
        bind_type: record.bind.kind.as_str(),
        bind_name: &record.bind.name,
        bind_vars: record.bind.vars.as_ref(),
        namespace: record.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: rule.created.0,
        modify_index: rule.modified.0,
    }
}

/// Parses a body into the draft, the id and the namespace.
fn parse_draft(mut fields: JsonFields) -> Result<(BindingRuleDraft, Option<String>, Option<String>), ApiError> {
    let namespace = take_namespace(&mut fields)?;
    let bind_vars = fields.map("BindVars")?;
    let mut text = |name| fields.string(name).map(Option::unwrap_or_default);
    let id = Some(text("ID")?).filter(|id| !id.is_empty());
    let draft = BindingRuleDraft {
        description: text("Description")?,
        auth_method: text("AuthMethod")?,
        selector: text("Selector")?,
        bind_type: text("BindType")?,
        bind_name: text("BindName")?,
        bind_vars,
    };
    fields.ignore(READ_ONLY);
    fields.finish()?;
    Ok((draft, id, namespace))
}

const KIND: RecordKind = RecordKind { name: "binding rule", title: "Binding Rule" };

pub(super) async fn create(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, id, body_namespace) = parse_draft(request.json_body("BindingRule").await?)?;
    KIND.refuse_id(id.as_deref())?;
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let rule = state.service.binding_rules().create(&context.caller, &context.namespace, &draft).await?;
    let view = view(&rule);
    context.into_change(request, &view, rule.value.id)
}

pub(super) async fn update(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_id, body_namespace) = parse_draft(request.json_body("BindingRule").await?)?;
    let id = request.id_matching_body(KIND, body_id.as_deref())?;
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let rule = state.service.binding_rules().update(&context.caller, &context.namespace, id, &draft).await?;
    let view = view(&rule);
    context.into_change(request, &view, id)
}

pub(super) async fn delete(state: &ApiState, request: &ApiRequest) -> Result<WriteResult, ApiError> {
    let id = request.id_from_path(KIND.name)?;
    let context = RequestContext::for_write(state, request, None).await?;
    let deleted = state.service.binding_rules().delete(&context.caller, &context.namespace, id).await?;
    context.into_deletion(request, deleted, id)
}

pub(super) async fn read(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let id = request.id_from_path(KIND.name)?;
    let context = RequestContext::for_read(state, request, freshness).await?;
    let watch = record_keys::binding_rule(&context.namespace, id).as_str().to_owned();
    let index = state.service.typed_store().revision(&watch, freshness).await?;
    let response = match state.service.binding_rules().get(&context.caller, &context.namespace, id, freshness).await? {
        Some(rule) => ApiResponse::json(&view(&rule), request.pretty())?,
        None => record_not_found("binding rule"),
    };
    Ok(ReadResult { response, index, watch: vec![watch], until: None })
}

pub(super) async fn list(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let method = request.query.get("authmethod")?;
    let caller = request.authenticate(state, freshness).await?;
    let scope = request.scope(&caller, None)?;
    let watch = record_keys::kind_prefix("binding-rule", scope.single());
    let list = state.service.binding_rules().list(&caller, scope.single(), method, freshness).await?;
    let rules: Vec<_> = list.entries.iter().map(view).collect();
    let mut response = ApiResponse::json(&rules, request.pretty())?;
    response.omitted = list.omitted;
    Ok(ReadResult { response, index: list.revision, watch: vec![watch], until: None })
}
