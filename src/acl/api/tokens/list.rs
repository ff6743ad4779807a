//! Lists of tokens.

use super::view::view_with_links;
use crate::api::error::ApiError;
use crate::api::json::JsonArray;
use crate::api::list_response::{ListResponse, ListSource};
use crate::api::request::{ApiRequest, NamespaceScope};
use crate::api::response::ReadResult;
use crate::api::state::ApiState;
use crate::api::watched_keys::WatchedKeys;
use crate::model::timestamp::Timestamp;
use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::lists::RecordPages;
use crate::service::record_keys;
use crate::service::tokens::{TokenFilter, TokenPages};
use crate::store::Freshness;

pub(crate) async fn list(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let caller = request.authenticate(state, freshness).await?;
    let scope = request.scope(&caller, None)?;
    let filter = parse_filter(request, &scope)?;
    let kinds = WatchedKeys::policies_and_roles(scope.single())
        .into_iter()
        .chain([record_keys::kind_prefix("token", scope.single())]);
    let (index, watch) = WatchedKeys::load(state, kinds, freshness).await?.into_parts();
    let pages = TokenPages::open(&state.service, caller, scope.single(), filter, freshness).await?;
    let list = ListResponse::begin(&state.service, TokenList { pages, first_end: None }, request.pretty()).await?;
    let until = list.source.first_end;
    Ok(ReadResult { response: list.into_response(), index, watch, until })
}

/// Tokens of a list.
struct TokenList {
    pages: TokenPages,
    /// Expiration of the first token that expires, among those encoded.
    first_end: Option<Timestamp>,
}

impl ListSource for TokenList {
    fn pages(&self) -> &RecordPages {
        &self.pages.pages
    }

    async fn encode_page(&mut self, service: &AclService, array: &mut JsonArray) -> Result<bool, ServiceError> {
        let Some(page) = self.pages.next(service).await? else { return Ok(false) };
        for listed in page {
            let end = listed.token.value.immutable().expiration_time;
            self.first_end = self.first_end.into_iter().chain(end).min();
            let view = view_with_links(&listed.token, &listed.secret, listed.policies, listed.roles);
            array.push(&view).map_err(ServiceError::Encode)?;
        }
        Ok(true)
    }
}

/// Parses the filter in the query.
fn parse_filter(request: &ApiRequest, scope: &NamespaceScope) -> Result<TokenFilter, ApiError> {
    let query = &request.query;
    // Nothing links what is no UUID, so the list is empty instead of an error.
    let policy = query.get("policy")?.map(|id| TokenFilter::Policy(id.parse().ok()));
    let role = query.get("role")?.map(|id| TokenFilter::Role(id.parse().ok()));
    let service = query.get("servicename")?.map(|name| TokenFilter::Service(name.to_owned()));
    let method = match query.get("authmethod")? {
        Some(name) => {
            let namespace = match query.get("authmethod-ns")? {
                Some(name) => Some(ApiRequest::parse_namespace(name)?),
                None => scope.single().cloned(),
            };
            Some(TokenFilter::Method { name: name.to_owned(), namespace })
        }
        None => None,
    };
    let mut filters = [policy, role, service, method].into_iter().flatten();
    let filter = filters.next().unwrap_or(TokenFilter::All);
    if filters.next().is_some() {
        return Err(ApiError::FilterConflict);
    }
    Ok(filter)
}
