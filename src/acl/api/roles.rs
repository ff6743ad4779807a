//! Handlers of `/v1/acl/role` and `/v1/acl/roles`.

use serde::Serialize;

use super::error::{ApiError, record_not_found};
use super::json::JsonFields;
use super::request::{ApiRequest, DEFAULT_PARTITION, RecordKind, take_namespace};
use super::request_context::RequestContext;
use super::response::{ApiResponse, Change, ReadResult, WriteResult};
use super::state::ApiState;
use super::views::{self, LinkView, READ_ONLY};
use super::watched_keys::WatchedKeys;
use crate::model::id::Id;
use crate::model::links::{NodeIdentity, ServiceIdentity, TemplatedPolicy};
use crate::model::role::RoleRecord;
use crate::service::links::LinkKind;
use crate::service::record_keys;
use crate::service::roles::RoleDraft;
use crate::service::typed_store::Stored;
use crate::store::Freshness;

/// JSON view of a role, without empty lists.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RoleView<'a> {
    #[serde(rename = "ID")]
    id: Id,
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<LinkView>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    service_identities: &'a [ServiceIdentity],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    node_identities: &'a [NodeIdentity],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    templated_policies: &'a [TemplatedPolicy],
    hash: String,
    namespace: &'a str,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

/// Builds the view of a role, with the current names of its policies.
pub(super) async fn view<'a>(
    state: &ApiState,
    role: &'a Stored<RoleRecord>,
    freshness: Freshness,
) -> Result<RoleView<'a>, ApiError> {
    let record = &role.value;
    let policies =
        state.service.links().load(&record.namespace, LinkKind::Policy, &record.links.policies, freshness).await?;
    Ok(RoleView {
        id: record.id,
        name: &record.name,
        description: &record.description,
        policies: views::link_views(policies),
        service_identities: &record.links.service_identities,
        node_identities: &record.links.node_identities,
        templated_policies: &record.links.templated_policies,
        hash: record.content_hash(),
        namespace: record.namespace.as_str(),
        partition: DEFAULT_PARTITION,
        create_index: role.created.0,
        modify_index: role.modified.0,
    })
}

/// Parses a body into the draft, the id and the namespace.
fn parse_draft(mut fields: JsonFields) -> Result<(RoleDraft, Option<String>, Option<String>), ApiError> {
    let id = fields.string("ID")?.filter(|id| !id.is_empty());
    let namespace = take_namespace(&mut fields)?;
    let draft = RoleDraft {
        name: fields.string("Name")?.unwrap_or_default(),
        description: fields.string("Description")?.unwrap_or_default(),
        links: views::parse_links(&mut fields)?,
    };
    fields.ignore(READ_ONLY);
    fields.finish()?;
    Ok((draft, id, namespace))
}

const KIND: RecordKind = RecordKind { name: "role", title: "Role" };

pub(super) async fn create(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, id, body_namespace) = parse_draft(request.json_body("Role").await?)?;
    KIND.refuse_id(id.as_deref())?;
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let role = state.service.roles().create(&context.caller, &context.namespace, &draft).await?;
    let view = view(state, &role, Freshness::Linearizable).await?;
    context.into_change(request, &view, role.value.id)
}

pub(super) async fn update(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_id, body_namespace) = parse_draft(request.json_body("Role").await?)?;
    let id = request.id_matching_body(KIND, body_id.as_deref())?;
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let role = state.service.roles().update(&context.caller, &context.namespace, id, &draft).await?;
    let view = view(state, &role, Freshness::Linearizable).await?;
    context.into_change(request, &view, id)
}

pub(super) async fn delete(state: &ApiState, request: &ApiRequest) -> Result<WriteResult, ApiError> {
    let id = request.id_from_path(KIND.name)?;
    let context = RequestContext::for_write(state, request, None).await?;
    let deleted = state.service.roles().delete(&context.caller, &context.namespace, id).await?;
    context.into_deletion(request, deleted, id)
}

pub(super) async fn read(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let id = request.id_from_path(KIND.name)?;
    let context = RequestContext::for_read(state, request, freshness).await?;
    let kinds = [
        record_keys::kind_prefix("policy", Some(&context.namespace)),
        record_keys::role(&context.namespace, id).as_str().to_owned(),
    ];
    let watched = WatchedKeys::load(state, kinds, freshness).await?;
    let role = state.service.roles().get(&context.caller, &context.namespace, id, freshness).await?;
    read_result(state, request, role, watched, freshness).await
}

pub(super) async fn read_by_name(
    state: &ApiState,
    request: &ApiRequest,
    freshness: Freshness,
) -> Result<ReadResult, ApiError> {
    if request.subject.is_empty() {
        return Err(ApiError::MissingSubject { kind: "role", field: "Name" });
    }
    let context = RequestContext::for_read(state, request, freshness).await?;
    // Any role may be renamed to or from this name.
    let kinds = ["policy", "role"].map(|kind| record_keys::kind_prefix(kind, Some(&context.namespace)));
    let watched = WatchedKeys::load(state, kinds, freshness).await?;
    let role =
        state.service.roles().get_by_name(&context.caller, &context.namespace, &request.subject, freshness).await?;
    read_result(state, request, role, watched, freshness).await
}

async fn read_result(
    state: &ApiState,
    request: &ApiRequest,
    role: Option<Stored<RoleRecord>>,
    watched: WatchedKeys,
    freshness: Freshness,
) -> Result<ReadResult, ApiError> {
    let links = role.as_ref().is_some_and(|role| !role.value.links.policies.is_empty());
    let (index, watch) = watched.retain_kind_if("policy", links).into_parts();
    let response = match role {
        Some(role) => ApiResponse::json(&view(state, &role, freshness).await?, request.pretty())?,
        None => record_not_found("role"),
    };
    Ok(ReadResult { response, index, watch, until: None })
}

pub(super) async fn list(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let policy = request.query.get("policy")?.map(str::to_owned);
    let caller = request.authenticate(state, freshness).await?;
    let scope = request.scope(&caller, None)?;
    let kinds = ["policy", "role"].map(|kind| record_keys::kind_prefix(kind, scope.single()));
    let watched = WatchedKeys::load(state, kinds, freshness).await?;
    let list = state.service.roles().list(&caller, scope.single(), policy.as_deref(), freshness).await?;
    let mut roles = Vec::with_capacity(list.entries.len());
    for role in &list.entries {
        roles.push(view(state, role, freshness).await?);
    }
    let mut response = ApiResponse::json(&roles, request.pretty())?;
    response.omitted = list.omitted;
    let links = list.entries.iter().any(|role| !role.value.links.policies.is_empty());
    let (index, watch) = watched.retain_kind_if("policy", links).into_parts();
    Ok(ReadResult { response, index, watch, until: None })
}
