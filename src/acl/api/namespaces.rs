//! `/v1/namespace...`.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;

use super::error::{ApiError, namespace_not_found};
use super::json::{JsonArray, JsonFields};
use super::list_response::{ListResponse, ListSource};
use super::request::{ApiRequest, DEFAULT_PARTITION, take_partition};
use super::response::{ApiResponse, Change, ReadResult, WriteResult};
use super::state::ApiState;
use super::views::{self, LinkView, READ_ONLY};
use super::watched_keys::WatchedKeys;
use crate::model::names::NamespaceName;
use crate::model::namespace::{DefaultLinks, NamespaceDefaults, NamespaceRecord, NewNamespace};
use crate::model::timestamp::Timestamp;
use crate::service::acl_service::AclService;
use crate::service::caller::Caller;
use crate::service::error::ServiceError;
use crate::service::links::LinkKind;
use crate::service::lists::RecordPages;
use crate::service::record_keys;
use crate::service::typed_store::Stored;
use crate::store::Freshness;

/// JSON view of a namespace, without empty fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct NamespaceView<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(rename = "ACLs", skip_serializing_if = "Option::is_none")]
    acls: Option<DefaultsView>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    meta: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<Timestamp>,
    partition: &'static str,
    create_index: u64,
    modify_index: u64,
}

/// JSON view of a namespace's defaults. Both lists are always present: the Terraform provider for Consul needs them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct DefaultsView {
    policy_defaults: Vec<LinkView>,
    role_defaults: Vec<LinkView>,
}

/// Builds the view of a namespace, with the current names of its defaults.
async fn view<'a>(
    service: &AclService,
    namespace: &'a Stored<NamespaceRecord>,
    freshness: Freshness,
) -> Result<NamespaceView<'a>, ServiceError> {
    let record = &namespace.value;
    let acls = match &record.defaults {
        Some(defaults) => Some(defaults_view(service, defaults, freshness).await?),
        None => None,
    };
    Ok(NamespaceView {
        name: record.name.as_str(),
        description: &record.description,
        acls,
        meta: &record.meta,
        deleted_at: record.deleted_at,
        partition: DEFAULT_PARTITION,
        create_index: namespace.created.0,
        modify_index: namespace.modified.0,
    })
}

async fn defaults_view(
    service: &AclService,
    defaults: &DefaultLinks,
    freshness: Freshness,
) -> Result<DefaultsView, ServiceError> {
    let home = NamespaceName::default_namespace();
    let policies = service.links().load(&home, LinkKind::Policy, &defaults.policies, freshness).await?;
    let roles = service.links().load(&home, LinkKind::Role, &defaults.roles, freshness).await?;
    Ok(DefaultsView { policy_defaults: views::link_views(policies), role_defaults: views::link_views(roles) })
}

/// Parses a body; the name may be empty.
fn parse_draft(mut fields: JsonFields) -> Result<NewNamespace, ApiError> {
    let name = fields.string("Name")?.unwrap_or_default();
    take_partition(&mut fields)?;
    let mut draft = NewNamespace {
        name,
        description: fields.string("Description")?.unwrap_or_default(),
        meta: fields.string_map("Meta")?,
        acls: None,
    };
    if let Some(mut acls) = fields.object("ACLs")? {
        draft.acls = Some(NamespaceDefaults {
            policy_defaults: views::parse_link_list(&mut acls, "PolicyDefaults")?,
            role_defaults: views::parse_link_list(&mut acls, "RoleDefaults")?,
        });
        acls.finish()?;
    }
    fields.ignore(READ_ONLY);
    fields.ignore(&["DeletedAt"]);
    fields.finish()?;
    Ok(draft)
}

pub(super) async fn create(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let draft = parse_draft(request.json_body("Namespace").await?)?;
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let created = state.service.namespaces().create(&caller, &draft).await?;
    let response =
        ApiResponse::json(&view(&state.service, &created, Freshness::Linearizable).await?, request.pretty())?;
    let subject = created.value.name.to_string();
    let namespace = created.value.name.clone();
    Ok(Change { response, by: caller.accessor(), subject, namespace })
}

pub(super) async fn update(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let draft = parse_draft(request.json_body("Namespace").await?)?;
    let name = path_name(request)?;
    if !draft.name.is_empty() && draft.name.parse() != Ok(name.clone()) {
        return Err(ApiError::PathBodyMismatch { field: "Namespace Name".to_owned() });
    }
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let namespace = state.service.namespaces().update(&caller, &name, &draft).await?;
    let response =
        ApiResponse::json(&view(&state.service, &namespace, Freshness::Linearizable).await?, request.pretty())?;
    Ok(Change { response, by: caller.accessor(), subject: name.to_string(), namespace: name })
}

/// Marks a namespace for deletion; the response has no body.
pub(super) async fn delete(state: &ApiState, request: &ApiRequest) -> Result<WriteResult, ApiError> {
    let name = path_name(request)?;
    let caller = request.authenticate(state, Freshness::Linearizable).await?;
    let marked = state.service.namespaces().delete(&caller, &name).await?;
    // No body, unlike the other deletions, which answer with a bool.
    let response = ApiResponse::empty(StatusCode::OK);
    if !marked {
        return Ok(WriteResult::Unchanged(response));
    }
    Ok(WriteResult::Changed(Change { response, by: caller.accessor(), subject: name.to_string(), namespace: name }))
}

fn path_name(request: &ApiRequest) -> Result<NamespaceName, ApiError> {
    ApiRequest::parse_namespace(request.name_from_path("namespace")?)
}

pub(super) async fn read(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let name = path_name(request)?;
    let caller = request.authenticate(state, freshness).await?;
    let kinds = default_link_kinds().into_iter().chain([record_keys::namespace(&name).as_str().to_owned()]);
    let watched = WatchedKeys::load(state, kinds, freshness).await?;
    let namespace = state.service.namespaces().get_visible(&caller, &name, freshness).await?;
    let mut linked = LinkedKinds::default();
    if let Some(namespace) = &namespace {
        linked.add(&namespace.value);
    }
    let (index, watch) = linked.retain_in(watched).into_parts();
    let response = match namespace {
        Some(namespace) => ApiResponse::json(&view(&state.service, &namespace, freshness).await?, request.pretty())?,
        None => namespace_not_found(&name),
    };
    Ok(ReadResult { response, index, watch, until: None })
}

/// Returns the key prefixes of the records that a namespace's defaults can link.
fn default_link_kinds() -> [String; 2] {
    WatchedKeys::policies_and_roles(Some(&NamespaceName::default_namespace()))
}

/// Kinds of records that the defaults of namespaces link.
#[derive(Debug, Clone, Copy, Default)]
struct LinkedKinds {
    policies: bool,
    roles: bool,
}

impl LinkedKinds {
    fn add(&mut self, namespace: &NamespaceRecord) {
        if let Some(defaults) = &namespace.defaults {
            self.policies |= !defaults.policies.is_empty();
            self.roles |= !defaults.roles.is_empty();
        }
    }

    fn retain_in(self, watched: WatchedKeys) -> WatchedKeys {
        watched.retain_kind_if("policy", self.policies).retain_kind_if("role", self.roles)
    }
}

pub(super) async fn list(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let caller = request.authenticate(state, freshness).await?;
    let kinds = default_link_kinds().into_iter().chain(["namespace/".to_owned()]);
    let watched = WatchedKeys::load(state, kinds, freshness).await?;
    let pages = state.service.namespaces().open_list(&caller, freshness).await?;
    let source = NamespaceList { pages, caller, linked: LinkedKinds::default() };
    let list = ListResponse::begin(&state.service, source, request.pretty()).await?;
    // The rest of a long list may link some.
    let linked = if list.is_complete { list.source.linked } else { LinkedKinds { policies: true, roles: true } };
    let (index, watch) = linked.retain_in(watched).into_parts();
    Ok(ReadResult { response: list.into_response(), index, watch, until: None })
}

/// Namespaces of a list.
struct NamespaceList {
    pages: RecordPages,
    caller: Arc<Caller>,
    linked: LinkedKinds,
}

impl ListSource for NamespaceList {
    fn pages(&self) -> &RecordPages {
        &self.pages
    }

    async fn encode_page(&mut self, service: &AclService, array: &mut JsonArray) -> Result<bool, ServiceError> {
        let page = service.namespaces().next_visible(&mut self.pages, &self.caller).await?;
        let Some(page) = page else { return Ok(false) };
        for namespace in &page {
            self.linked.add(&namespace.value);
            let view = view(service, namespace, self.pages.freshness()).await?;
            array.push(&view).map_err(ServiceError::Encode)?;
        }
        Ok(true)
    }
}
