//! Handlers of `/v1/acl/policy` and `/v1/acl/policies`.

use std::borrow::Cow;

use serde::Serialize;

use super::error::{ApiError, record_not_found};
use super::json::JsonFields;
use super::request::{ApiRequest, DEFAULT_PARTITION, RecordKind, take_namespace};
use super::request_context::RequestContext;
use super::response::{ApiResponse, Change, ReadResult, WriteResult};
use super::state::ApiState;
use super::views::READ_ONLY;
use crate::model::names::NamespaceName;
use crate::model::policy::PolicyRecord;
use crate::model::templated::SyntheticPolicy;
use crate::service::policies::PolicyDraft;
use crate::service::record_keys;
use crate::service::typed_store::Stored;
use crate::store::{Freshness, Revision};

/// JSON view of a policy. In lists `Rules` is absent and `Datacenters` is `null` for all, as in Consul.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PolicyView<'a> {
    #[serde(rename = "ID")]
    id: String,
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a str>,
    #[serde(skip_serializing_if = "Datacenters::is_omitted")]
    datacenters: Datacenters<'a>,
    hash: Cow<'a, str>,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Datacenters<'a> {
    Some(&'a [String]),
    Null(()),
    Omitted,
}

impl Datacenters<'_> {
    fn is_omitted(&self) -> bool {
        matches!(self, Self::Omitted)
    }
}

pub(super) fn view(policy: &Stored<PolicyRecord>, in_list: bool) -> PolicyView<'_> {
    let record = &policy.value;
    PolicyView {
        id: record.id.to_string(),
        name: &record.name,
        description: &record.description,
        rules: (!in_list).then_some(&record.rules),
        datacenters: match (record.datacenters.is_empty(), in_list) {
            (false, _) => Datacenters::Some(&record.datacenters),
            (true, true) => Datacenters::Null(()),
            (true, false) => Datacenters::Omitted,
        },
        hash: record.content_hash().into(),
        namespace: record.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: policy.created.0,
        modify_index: policy.modified.0,
    }
}

/// Builds the view of a policy generated for a token in `namespace`; it has no record.
pub(super) fn synthetic_view<'a>(policy: &'a SyntheticPolicy, namespace: &'a NamespaceName) -> PolicyView<'a> {
    PolicyView {
        id: policy.id.clone(),
        name: &policy.name,
        description: &policy.description,
        rules: Some(&policy.rules),
        datacenters: match policy.datacenters.as_slice() {
            [] => Datacenters::Omitted,
            some => Datacenters::Some(some),
        },
        hash: (&policy.hash).into(),
        namespace: namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: 0,
        modify_index: 0,
    }
}

fn parse_draft(mut fields: JsonFields) -> Result<(PolicyDraft, Option<String>, Option<String>), ApiError> {
    let id = fields.string("ID")?.filter(|id| !id.is_empty());
    let namespace = take_namespace(&mut fields)?;
    let draft = PolicyDraft {
        name: fields.string("Name")?.unwrap_or_default(),
        description: fields.string("Description")?.unwrap_or_default(),
        rules: fields.string("Rules")?.unwrap_or_default(),
        datacenters: fields.strings("Datacenters")?,
    };
    fields.ignore(READ_ONLY);
    fields.finish()?;
    Ok((draft, id, namespace))
}

const KIND: RecordKind = RecordKind { name: "policy", title: "Policy" };

pub(super) async fn create(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, id, body_namespace) = parse_draft(request.json_body("Policy").await?)?;
    KIND.refuse_id(id.as_deref())?;
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let policy = state.service.policies().create(&context.caller, &context.namespace, &draft).await?;
    let view = view(&policy, false);
    context.into_change(request, &view, policy.value.id)
}

pub(super) async fn update(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_id, body_namespace) = parse_draft(request.json_body("Policy").await?)?;
    let id = request.id_matching_body(KIND, body_id.as_deref())?;
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let policy = state.service.policies().update(&context.caller, &context.namespace, id, &draft).await?;
    let view = view(&policy, false);
    context.into_change(request, &view, id)
}

pub(super) async fn delete(state: &ApiState, request: &ApiRequest) -> Result<WriteResult, ApiError> {
    let id = request.id_from_path(KIND.name)?;
    let context = RequestContext::for_write(state, request, None).await?;
    let deleted = state.service.policies().delete(&context.caller, &context.namespace, id).await?;
    context.into_deletion(request, deleted, id)
}

pub(super) async fn read(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let id = request.id_from_path(KIND.name)?;
    let context = RequestContext::for_read(state, request, freshness).await?;
    let watch = record_keys::policy(&context.namespace, id).as_str().to_owned();
    // Before the read: a change in between then ends the next wait at once.
    let index = state.service.typed_store().revision(&watch, freshness).await?;
    let policy = state.service.policies().get(&context.caller, &context.namespace, id, freshness).await?;
    read_result(request, policy.as_ref(), index, watch)
}

pub(super) async fn read_by_name(
    state: &ApiState,
    request: &ApiRequest,
    freshness: Freshness,
) -> Result<ReadResult, ApiError> {
    if request.subject.is_empty() {
        return Err(ApiError::MissingSubject { kind: "policy", field: "Name" });
    }
    let context = RequestContext::for_read(state, request, freshness).await?;
    let watch = record_keys::kind_prefix("policy", Some(&context.namespace));
    let index = state.service.typed_store().revision(&watch, freshness).await?;
    let policy =
        state.service.policies().get_by_name(&context.caller, &context.namespace, &request.subject, freshness).await?;
    read_result(request, policy.as_ref(), index, watch)
}

fn read_result(
    request: &ApiRequest,
    policy: Option<&Stored<PolicyRecord>>,
    index: Revision,
    watch: String,
) -> Result<ReadResult, ApiError> {
    let response = match policy {
        Some(policy) => ApiResponse::json(&view(policy, false), request.pretty())?,
        None => record_not_found("policy"),
    };
    Ok(ReadResult { response, index, watch: vec![watch], until: None })
}

pub(super) async fn list(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let caller = request.authenticate(state, freshness).await?;
    let scope = request.scope(&caller, None)?;
    let watch = record_keys::kind_prefix("policy", scope.single());
    let list = state.service.policies().list(&caller, scope.single(), freshness).await?;
    let policies: Vec<PolicyView<'_>> = list.entries.iter().map(|policy| view(policy, true)).collect();
    let mut response = ApiResponse::json(&policies, request.pretty())?;
    response.omitted = list.omitted;
    Ok(ReadResult { response, index: list.revision, watch: vec![watch], until: None })
}
