//! Handlers that create, read, list, update and delete records: once for all kinds. A kind adds its JSON by [`ApiRecord`].

use std::borrow::Cow;
use std::fmt::Display;
use std::marker::PhantomData;

use serde::Serialize;

use super::error::{ApiError, record_not_found};
use super::json::{JsonArray, JsonFields};
use super::list_response::{ListResponse, ListSource};
use super::request::{ApiRequest, NamespaceScope, take_namespace};
use super::request_context::RequestContext;
use super::response::{ApiResponse, Change, ReadResult, WriteResult};
use super::state::ApiState;
use super::views::{LinkView, READ_ONLY, link_views};
use super::watched_keys::WatchedKeys;
use crate::model::id::Id;
use crate::model::names::NamespaceName;
use crate::model::policy::PolicyRecord;
use crate::service::acl_service::AclService;
use crate::service::caller::Caller;
use crate::service::error::ServiceError;
use crate::service::links::{LinkCache, LinkKind};
use crate::service::lists::RecordPages;
use crate::service::record_keys;
use crate::service::records::RecordKind;
use crate::service::typed_store::Stored;
use crate::store::Freshness;

/// Kind of record that the API serves.
pub(super) trait ApiRecord: RecordKind<Id: PathId> {
    /// Name of the kind at the start of an error.
    const TITLE: &'static str;
    /// Name of the kind in errors of bodies.
    const BODY: &'static str;
    /// Parameter that filters a list.
    const FILTER: Option<&'static str> = None;
    /// True if records can link policies, whose names the view shows.
    const LINKS_POLICIES: bool = false;
    /// JSON view.
    type View<'a>: Serialize;

    /// Returns the policies that the record links.
    fn linked_policies(&self) -> &[Id] {
        &[]
    }

    /// Builds the view of a record and of the policies that it links.
    fn view(record: &Stored<Self>, form: ViewForm, policies: Vec<LinkView>) -> Self::View<'_>;

    /// Returns true if a list ends with [`ApiRecord::list_more`].
    fn lists_more(_request: &ApiRequest, _caller: &Caller, _scope: &NamespaceScope) -> Result<bool, ApiError> {
        Ok(false)
    }

    /// Returns the views of records that are not in the store.
    fn list_more(_state: &ApiState) -> Vec<Self::View<'_>> {
        Vec::new()
    }

    /// Takes the id, if it is there, and the fields of a draft from a body.
    fn parse_draft(fields: &mut JsonFields) -> Result<(Option<String>, Self::Draft), ApiError>;
}

/// Form of a view: in Consul, a list lacks some fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViewForm {
    Single,
    Listed,
}

/// Id or name of a record as a path and a body write it.
pub(super) trait PathId: ToOwned + Display {
    /// Name of the field.
    const FIELD: &'static str;
    /// The server assigns it: the body of a create must not have it.
    const IS_ASSIGNED: bool;

    /// Parses the variable part of the path; `kind` is the record's kind in errors.
    fn from_path<'a>(request: &'a ApiRequest, kind: &'static str) -> Result<Cow<'a, Self>, ApiError>;

    /// Returns whether a body repeats it.
    fn is_repeated(&self, text: &str) -> bool;
}

impl PathId for Id {
    const FIELD: &'static str = "ID";
    const IS_ASSIGNED: bool = true;

    fn from_path<'a>(request: &'a ApiRequest, kind: &'static str) -> Result<Cow<'a, Self>, ApiError> {
        request.id_from_path(kind).map(Cow::Owned)
    }

    fn is_repeated(&self, text: &str) -> bool {
        text.parse() == Ok(*self)
    }
}

impl PathId for str {
    const FIELD: &'static str = "Name";
    const IS_ASSIGNED: bool = false;

    fn from_path<'a>(request: &'a ApiRequest, kind: &'static str) -> Result<Cow<'a, Self>, ApiError> {
        request.name_from_path(kind).map(Cow::Borrowed)
    }

    fn is_repeated(&self, text: &str) -> bool {
        text == self
    }
}

/// Reads the body into the draft, the id and the namespace.
async fn read_draft<K: ApiRecord>(
    request: &mut ApiRequest,
) -> Result<(K::Draft, Option<String>, Option<String>), ApiError> {
    let mut fields = request.json_body(K::BODY).await?;
    let namespace = take_namespace(&mut fields)?;
    let (id, draft) = K::parse_draft(&mut fields)?;
    fields.ignore(READ_ONLY);
    fields.finish()?;
    Ok((draft, id.filter(|id| !id.is_empty()), namespace))
}

fn id_mismatch<K: ApiRecord>() -> ApiError {
    ApiError::PathBodyMismatch { field: format!("{} {}", K::TITLE, K::Id::FIELD) }
}

pub(super) async fn create<K: ApiRecord>(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_id, body_namespace) = read_draft::<K>(request).await?;
    if K::Id::IS_ASSIGNED && body_id.is_some() {
        return Err(id_mismatch::<K>());
    }
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let record = state.service.records.create::<K>(&context.caller, &context.namespace, &draft).await?;
    into_change(state, request, context, &record).await
}

pub(super) async fn update<K: ApiRecord>(state: &ApiState, request: &mut ApiRequest) -> Result<Change, ApiError> {
    let (draft, body_id, body_namespace) = read_draft::<K>(request).await?;
    let id = K::Id::from_path(request, K::NAME)?;
    if body_id.is_some_and(|body_id| !id.is_repeated(&body_id)) {
        return Err(id_mismatch::<K>());
    }
    let context = RequestContext::for_write(state, request, body_namespace.as_deref()).await?;
    let record = state.service.records.update::<K>(&context.caller, &context.namespace, &id, &draft).await?;
    into_change(state, request, context, &record).await
}

async fn into_change<K: ApiRecord>(
    state: &ApiState,
    request: &ApiRequest,
    context: RequestContext,
    record: &Stored<K>,
) -> Result<Change, ApiError> {
    let view = load_view(state, record, Freshness::Linearizable).await?;
    context.into_change(request, &view, record.value.id())
}

pub(super) async fn delete<K: ApiRecord<Id = Id>>(
    state: &ApiState,
    request: &ApiRequest,
) -> Result<WriteResult, ApiError> {
    let id = request.id_from_path(K::NAME)?;
    let context = RequestContext::for_write(state, request, None).await?;
    let deleted = state.service.records.delete::<K>(&context.caller, &context.namespace, id).await?;
    context.into_deletion(request, deleted, id)
}

pub(super) async fn read<K: ApiRecord>(
    state: &ApiState,
    request: &ApiRequest,
    freshness: Freshness,
) -> Result<ReadResult, ApiError> {
    let id = &*K::Id::from_path(request, K::NAME)?;
    let context = RequestContext::for_read(state, request, freshness).await?;
    let namespace = &context.namespace;
    let watch = format!("{}{id}", record_keys::kind_prefix(K::KEY, Some(namespace)));
    let watched = WatchedKeys::load_with(state, watch, policy_keys::<K>(Some(namespace)), freshness).await?;
    let record = state.service.records.get::<K>(&context.caller, namespace, id, freshness).await?;
    read_result(state, request, record, watched, freshness).await
}

pub(super) async fn read_by_name<K: ApiRecord<Id = Id>>(
    state: &ApiState,
    request: &ApiRequest,
    freshness: Freshness,
) -> Result<ReadResult, ApiError> {
    let name = request.name_from_path(K::NAME)?;
    let context = RequestContext::for_read(state, request, freshness).await?;
    let namespace = &context.namespace;
    // Any record may be renamed to or from this name.
    let watch = record_keys::kind_prefix(K::KEY, Some(namespace));
    let watched = WatchedKeys::load_with(state, watch, policy_keys::<K>(Some(namespace)), freshness).await?;
    let record = state.service.records.get_by_name::<K>(&context.caller, namespace, name, freshness).await?;
    read_result(state, request, record, watched, freshness).await
}

/// Returns the key prefix of the policies, if a view can show them.
fn policy_keys<K: ApiRecord>(namespace: Option<&NamespaceName>) -> Option<String> {
    K::LINKS_POLICIES.then(|| record_keys::kind_prefix(PolicyRecord::KEY, namespace))
}

/// Builds the view of a record, with the current names of the policies that it links.
pub(super) async fn load_view<'a, K: ApiRecord>(
    state: &ApiState,
    record: &'a Stored<K>,
    freshness: Freshness,
) -> Result<K::View<'a>, ApiError> {
    let value = &record.value;
    let policies = value.linked_policies();
    let policies = state.service.links().load(value.namespace(), LinkKind::Policy, policies, freshness).await?;
    Ok(K::view(record, ViewForm::Single, link_views(policies)))
}

async fn read_result<K: ApiRecord>(
    state: &ApiState,
    request: &ApiRequest,
    record: Option<Stored<K>>,
    watched: WatchedKeys,
    freshness: Freshness,
) -> Result<ReadResult, ApiError> {
    let links_policies = record.as_ref().is_some_and(|record| !record.value.linked_policies().is_empty());
    let (index, watch) = retain_policies::<K>(watched, links_policies).into_parts();
    let response = match &record {
        Some(record) => ApiResponse::json(&load_view(state, record, freshness).await?, request.pretty())?,
        None => record_not_found(K::NAME),
    };
    Ok(ReadResult { response, index, watch, until: None })
}

/// Keeps the key prefix of the policies if a record that is shown links any.
fn retain_policies<K: ApiRecord>(watched: WatchedKeys, are_linked: bool) -> WatchedKeys {
    if K::LINKS_POLICIES { watched.retain_kind_if(PolicyRecord::KEY, are_linked) } else { watched }
}

pub(super) async fn list<K: ApiRecord>(
    state: &ApiState,
    request: &ApiRequest,
    freshness: Freshness,
) -> Result<ReadResult, ApiError> {
    let filter = K::FILTER.map_or(Ok(None), |name| request.query.get(name))?.map(str::to_owned);
    let caller = request.authenticate(state, freshness).await?;
    let scope = request.scope(&caller, None)?;
    let watched = WatchedKeys::load(state, policy_keys::<K>(scope.single()), freshness).await?;
    let pages = state.service.open_list(&caller, K::KEY, scope.single(), freshness).await?;
    let watched = watched.with(record_keys::kind_prefix(K::KEY, scope.single()), pages.revision);
    let more = K::lists_more(request, &caller, &scope)?.then(|| state.clone());
    let links = LinkCache::default();
    let source = KindList { pages, filter, links, links_policies: false, more, kind: PhantomData::<fn() -> K> };
    let list = ListResponse::begin(&state.service, source, request.pretty()).await?;
    // The rest of a long list may link some.
    let links_policies = list.source.links_policies || !list.is_complete;
    let (index, watch) = retain_policies::<K>(watched, links_policies).into_parts();
    Ok(ReadResult { response: list.into_response(), index, watch, until: None })
}

/// Records of one kind.
struct KindList<K> {
    pages: RecordPages,
    filter: Option<String>,
    links: LinkCache,
    /// One of the records that are encoded links a policy.
    links_policies: bool,
    /// State for [`ApiRecord::list_more`], if it is to be called at the end.
    more: Option<ApiState>,
    kind: PhantomData<fn() -> K>,
}

impl<K: ApiRecord> ListSource for KindList<K> {
    fn pages(&self) -> &RecordPages {
        &self.pages
    }

    async fn encode_page(&mut self, service: &AclService, array: &mut JsonArray) -> Result<bool, ServiceError> {
        let page = self.pages.next_selected::<K>(service, self.filter.as_deref()).await?;
        let Some(page) = page else {
            for view in self.more.iter().flat_map(K::list_more) {
                array.push(&view).map_err(ServiceError::Encode)?;
            }
            return Ok(false);
        };
        let freshness = self.pages.freshness();
        for record in &page {
            let policies = record.value.linked_policies();
            self.links_policies |= !policies.is_empty();
            let (resolver, namespace) = (service.links(), record.value.namespace());
            let policies = self.links.load(resolver, namespace, LinkKind::Policy, policies, freshness).await?;
            array.push(&K::view(record, ViewForm::Listed, link_views(policies))).map_err(ServiceError::Encode)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;
    use keyward_machine::clock::Clock;
    use tokio::task::JoinSet;

    use super::*;
    use crate::model::authorize::DefaultPolicy;
    use crate::model::links::Links;
    use crate::model::role::RoleRecord;
    use crate::service::seal::Sealer;
    use crate::service::typed_store::PAGE;
    use crate::store::{Batch, Embedded, Store, Write};

    #[tokio::test]
    async fn another_request_is_answered_between_the_pages_of_a_long_list() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Embedded::open(&folder.path().join("store"), "dc1").unwrap());
        let namespace = NamespaceName::default_namespace();
        let writes = (0..4 * PAGE).map(|number| {
            let role = RoleRecord {
                id: Id::random(),
                name: format!("role-{number}"),
                namespace: namespace.clone(),
                description: "x".repeat(200),
                links: Links::default(),
            };
            Write::Put(record_keys::role(&namespace, role.id), serde_json::to_vec(&role).unwrap())
        });
        let writes: Vec<_> = writes.collect();
        for writes in writes.chunks(Batch::MAX_OPERATIONS) {
            store.commit(Batch { checks: vec![], writes: writes.to_vec() }).await.unwrap();
        }
        let sealer = Sealer::open(&folder.path().join("seal.key"), &*store).await.unwrap();
        let service = Arc::new(AclService::new(store, sealer, "dc1".to_owned(), DefaultPolicy::Deny, Clock::System));
        service.create_builtins().await.unwrap();
        let secret = service.bootstrap(None, None).await.unwrap().secret;
        let caller = service.authenticator().authenticate(Some(&secret), Freshness::Linearizable).await.unwrap();

        let answered = Arc::new(AtomicUsize::new(0));
        let mut requests = JoinSet::new();
        let (served, counter) = (Arc::clone(&service), Arc::clone(&answered));
        requests.spawn(async move {
            loop {
                served.authenticator().authenticate(Some(&secret), Freshness::Linearizable).await.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let pages =
            service.open_list(&caller, RoleRecord::KEY, Some(&namespace), Freshness::Linearizable).await.unwrap();
        let links = LinkCache::default();
        let kind = PhantomData::<fn() -> RoleRecord>;
        let source = KindList { pages, filter: None, links, links_policies: false, more: None, kind };
        let list = ListResponse::begin(&service, source, false).await.unwrap();
        let mut body = list.into_response().body;
        let (mut pieces, mut text, mut before) = (0, Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let now = answered.load(Ordering::Relaxed);
            let piece = frame.unwrap().into_data().unwrap();
            // The end alone takes no page.
            assert!(now > before || piece == "]", "no request was answered before piece {pieces}");
            (pieces, before) = (pieces + 1, now);
            text.extend(piece);
        }
        let roles: Vec<serde_json::Value> = serde_json::from_slice(&text).unwrap();
        assert_eq!((pieces, roles.len()), (5, 4 * PAGE));
    }
}
