//! Merges the pages of a list into one response, for lists that once came complete.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Body as _;
use keyward_http::body_buffer::collect;
use keyward_http::reverse_proxy::remove_all;

use super::body::CallerBody;
use super::local_response::error_response;
use super::response_headers::set_length;
use super::response_rewriter::ResponseRewriter;
use super::upstream::Upstream;
use super::upstream_call::{CallOutcome, ErrorResponse, MERGE_PAGES_HEADER, PlatformBody, UpstreamCall};
use crate::actions::{self, pages};

/// Fetches the pages of lists.
#[derive(Debug)]
pub(super) struct PageFetcher {
    upstream: Arc<Upstream>,
    rewriter: Arc<ResponseRewriter>,
    /// True if lists are merged for every caller.
    always: bool,
}

impl PageFetcher {
    pub(super) const fn new(upstream: Arc<Upstream>, rewriter: Arc<ResponseRewriter>, always: bool) -> Self {
        Self { upstream, rewriter, always }
    }

    /// Returns true if a call is answered with all pages in one: it lists such a resource, asks for no page, and either
    /// its header or the configuration asks for merging.
    pub(super) fn wants_merged(&self, method: &Method, target: &PathAndQuery, headers: &HeaderMap) -> bool {
        let requested = || headers.get(&MERGE_PAGES_HEADER).is_some_and(|value| value.as_bytes() == b"true");
        let call = actions::ApiCall { method, path: target.path(), query: target.query().unwrap_or_default() };
        (self.always || requested()) && pages::is_mergeable(call)
    }

    /// Fetches all pages of a list, by number or by `next` links. A failed page becomes the response: a list is never
    /// shortened.
    pub(super) async fn fetch(
        &self,
        call: &UpstreamCall,
        gateway_origin: Option<&str>,
    ) -> Result<CallOutcome, ErrorResponse> {
        let address = format!("{}{}", gateway_origin.unwrap_or_default(), call.target);
        let bad = |why: String| Box::new(error_response(StatusCode::BAD_GATEWAY, why));
        let list = self.rewriter.platform_url(call);
        let mut merger = pages::PageMerger::default();
        let mut query = pages::page_query(call.as_api_call(), 1);
        let mut headers = call.headers.clone();
        // Conditions hold for a page, not for the list: a 304 for one page would become the response.
        remove_all(&mut headers, |name| name.starts_with("if-"));
        loop {
            let target = format!("{}?{query}", call.target.path()).parse();
            let target = target.map_err(|_| bad("the list's pages cannot be requested".to_owned()))?;
            let page_call = UpstreamCall {
                caller: call.caller,
                method: Method::GET,
                target,
                headers: headers.clone(),
                audited: call.audited.clone(),
            };
            let response = self.upstream.call(&page_call, CallerBody::empty()).await?;
            if response.status() != StatusCode::OK {
                return Ok(CallOutcome { replacement: None, response: response.map(PlatformBody::Streamed) });
            }
            let length = response.body().size_hint().exact();
            if let Some(rejection) = self.rewriter.reject_encoded(&response, length) {
                return Err(rejection);
            }
            let (mut parts, body) = response.into_parts();
            let body = collect(body, pages::MAX_BYTES).await;
            let body = body.map_err(|_| bad("a page of the list is too large, or broke off".to_owned()))?.into_bytes();
            match merger.add_page(&body).map_err(|error| bad(error.to_string()))? {
                pages::NextPage::Number(next) => query = pages::page_query(call.as_api_call(), next),
                pages::NextPage::Link(link) => {
                    query = pages::query_from_link(&link, &list)
                        .ok_or_else(|| bad(pages::MergeError::NoNextPage.to_string()))?;
                }
                pages::NextPage::Done => {
                    let document = merger.into_document(&address);
                    remove_all(&mut parts.headers, |name| matches!(name, "etag" | "last-modified"));
                    set_length(&mut parts.headers, Some(document.len()));
                    let response = Response::from_parts(parts, PlatformBody::Buffered(document));
                    return Ok(CallOutcome { replacement: None, response });
                }
            }
        }
    }
}
