//! Streams token lists: memory is bounded by one page.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::try_unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use keyward_telemetry::error_chain::format_chain;

use super::view::view_with_links;
use crate::api::error::ApiError;
use crate::api::json::to_json;
use crate::api::request::{ApiRequest, NamespaceScope};
use crate::api::response::{ApiResponse, BodyInterrupted, ReadResult};
use crate::api::state::ApiState;
use crate::api::watched_keys::WatchedKeys;
use crate::service::acl_service::AclService;
use crate::service::error::ServiceError;
use crate::service::lists::Omitted;
use crate::service::record_keys;
use crate::service::tokens::{ListedToken, TokenFilter, TokenPages};
use crate::store::{Freshness, StoreError};

pub(crate) async fn list(state: &ApiState, request: &ApiRequest, freshness: Freshness) -> Result<ReadResult, ApiError> {
    let caller = request.authenticate(state, freshness).await?;
    let scope = request.scope(&caller, None)?;
    let filter = parse_filter(request, &scope)?;
    let kinds = WatchedKeys::policies_and_roles(scope.single())
        .into_iter()
        .chain([record_keys::kind_prefix("token", scope.single())]);
    let (index, watch) = WatchedKeys::load(state, kinds, freshness).await?.into_parts();
    let mut pages = TokenPages::open(&state.service, caller, scope.single(), filter, freshness).await?;
    // A store failure before the first byte still becomes a status, and an unreadable record a header.
    let next_page = pages.next(&state.service).await?;
    let service = Arc::clone(&state.service);
    let omitted = pages.omitted;
    let pretty = request.pretty();
    let position = ListPosition::Start;
    let stream = TokenListStream { service, next_page, pages, omitted, pretty, position };
    let frames = try_unfold(stream, async |mut stream: TokenListStream| match stream.next().await {
        Ok(bytes) => Ok(bytes.map(|bytes| (Frame::data(bytes), stream))),
        Err(error) => {
            tracing::error!(event = "acl.list.broken", error = format_chain(&error), "interrupted the token list");
            Err(BodyInterrupted)
        }
    });
    let mut response = ApiResponse::stream(StreamBody::new(frames).boxed_unsync());
    response.omitted = omitted;
    Ok(ReadResult { response, index, watch, until: None })
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

/// Token list that is being sent, one page of the store at a time.
struct TokenListStream {
    service: Arc<AclService>,
    /// Page that is read but not sent.
    next_page: Option<Vec<ListedToken>>,
    pages: TokenPages,
    /// Omissions that the headers, sent first, have announced.
    omitted: Omitted,
    pretty: bool,
    position: ListPosition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListPosition {
    Start,
    Items,
    End,
}

impl TokenListStream {
    /// Encodes the next page; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        let mut text = Vec::new();
        while text.is_empty() && self.position != ListPosition::End {
            let page = match self.next_page.take() {
                Some(page) => Some(page),
                None => self.pages.next(&self.service).await?,
            };
            // The headers have announced a complete list. The next list announces the unreadable record.
            if let Some(key) = self.pages.unreadable.as_ref().filter(|_| !self.omitted.unreadable) {
                return Err(StoreError::Unreadable { key: key.as_str().to_owned() }.into());
            }
            let Some(page) = page else {
                self.write_end(&mut text);
                break;
            };
            for listed in page {
                self.write_separator(&mut text);
                let view = view_with_links(&listed.token, listed.secret.reveal(), listed.policies, listed.roles);
                let token = to_json(&view, self.pretty).map_err(ServiceError::Encode)?;
                // JSON strings contain no raw line breaks, so each one is layout and can be indented.
                for (number, line) in token.trim_ascii_end().split(|byte| *byte == b'\n').enumerate() {
                    if number > 0 {
                        push_indented_line_break(&mut text);
                    }
                    text.extend_from_slice(line);
                }
            }
        }
        Ok(Some(text.into()).filter(|text: &Bytes| !text.is_empty()))
    }

    fn write_separator(&mut self, text: &mut Vec<u8>) {
        text.push(if self.position == ListPosition::Start { b'[' } else { b',' });
        if self.pretty {
            push_indented_line_break(text);
        }
        self.position = ListPosition::Items;
    }

    fn write_end(&mut self, text: &mut Vec<u8>) {
        let end: &[u8] = match (self.position, self.pretty) {
            (ListPosition::End, _) => b"",
            (ListPosition::Start, true) => b"[]\n",
            (ListPosition::Start, false) => b"[]",
            (ListPosition::Items, true) => b"\n]\n",
            (ListPosition::Items, false) => b"]",
        };
        text.extend_from_slice(end);
        self.position = ListPosition::End;
    }
}

fn push_indented_line_break(text: &mut Vec<u8>) {
    text.extend_from_slice(b"\n    ");
}
