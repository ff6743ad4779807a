//! Merges the pages of a list into one response, for lists that once came complete.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use keyward_http::body_buffer::{BodyBuffer, BufferBudget};
use keyward_http::reverse_proxy::{ResponseBody, remove_all};

use super::body::CallerBody;
use super::local_response::{error_response, retry_later};
use super::response_headers::set_length;
use super::response_rewriter::ResponseRewriter;
use super::upstream::Upstream;
use super::upstream_call::{CallOutcome, ErrorResponse, MERGE_PAGES_HEADER, PlatformBody, UpstreamCall};
use crate::actions;
use crate::actions::pages::{self, MergeError};

/// Fetches the pages of lists.
#[derive(Debug)]
pub(super) struct PageFetcher {
    upstream: Arc<Upstream>,
    rewriter: Arc<ResponseRewriter>,
    /// True if lists are merged for every caller.
    always: bool,
    /// Memory for the pages of all calls.
    budget: BufferBudget,
}

impl PageFetcher {
    pub(super) fn new(upstream: Arc<Upstream>, rewriter: Arc<ResponseRewriter>, always: bool) -> Self {
        Self { upstream, rewriter, always, budget: BufferBudget::new(pages::MERGE_BUDGET) }
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
        let mut merger = pages::PageMerger::new(&self.budget);
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
            let page = self.receive(body, gateway_origin).await?;
            match merger.add_page(page.as_slice()).map_err(merge_error)? {
                pages::NextPage::Number(next) => query = pages::page_query(call.as_api_call(), next),
                pages::NextPage::Link(link) => {
                    query = pages::query_from_link(&link, &list).ok_or_else(|| merge_error(MergeError::NoNextPage))?;
                }
                pages::NextPage::Done => {
                    drop(page);
                    let document = merger.into_document(&address).map_err(merge_error)?;
                    remove_all(&mut parts.headers, |name| matches!(name, "etag" | "last-modified"));
                    set_length(&mut parts.headers, Some(document.len()));
                    let response = Response::from_parts(parts, PlatformBody::Merged(document));
                    return Ok(CallOutcome { replacement: None, response });
                }
            }
        }
    }
    /// Reads a page, with its links rewritten to the gateway: the merged document is not copied again for that.
    async fn receive(&self, mut body: ResponseBody, origin: Option<&str>) -> Result<BodyBuffer, ErrorResponse> {
        let mut page = self.budget.buffer(pages::MAX_BYTES);
        let mut rewriter = origin.map(|origin| self.rewriter.link_rewriter(origin));
        let mut rewritten = Vec::new();
        let full = |full| merge_error(MergeError::from(full));
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| Box::new(error_response(StatusCode::BAD_GATEWAY, "a page of the list broke off")))?;
            let Ok(chunk) = frame.into_data() else { continue };
            match &mut rewriter {
                None => page.push(&chunk).map_err(full)?,
                Some(rewriter) => {
                    rewriter.rewrite(&chunk, &mut rewritten);
                    page.push(&rewritten).map_err(full)?;
                    rewritten.clear();
                }
            }
        }
        if let Some(mut rewriter) = rewriter {
            rewriter.finish(&mut rewritten);
            page.push(&rewritten).map_err(full)?;
        }
        Ok(page)
    }
}

fn merge_error(error: MergeError) -> ErrorResponse {
    Box::new(match error {
        MergeError::Busy => retry_later(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), RETRY_AFTER),
        _ => error_response(StatusCode::BAD_GATEWAY, error.to_string()),
    })
}

/// `Retry-After` while other calls use up the memory for merging.
const RETRY_AFTER: Duration = Duration::from_secs(2);
