//! Forwards a call of a caller: body, API history, platform, rewriting of the response.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode};
use keyward_http::body_buffer::BufferBudget;
use keyward_http::server::IncomingBody;

use super::body::{self, BufferError, CallerBody, GatewayBody};
use super::deprecation::Deprecations;
use super::local_response::{self, error_response};
use super::page_merge::PageFetcher;
use super::response_rewriter::ResponseRewriter;
use super::unlock::{self, UNLOCK_RETRIES};
use super::upstream_call::{CallOutcome, ErrorResponse, UpstreamCall};

/// Forwards calls to the platform.
#[derive(Debug)]
pub(super) struct CallForwarder {
    /// Memory for bodies that may have to be sent again.
    buffers: BufferBudget,
    deprecations: Deprecations,
    pages: PageFetcher,
    rewriter: Arc<ResponseRewriter>,
}

impl CallForwarder {
    pub(super) fn new(deprecations: Deprecations, pages: PageFetcher, rewriter: Arc<ResponseRewriter>) -> Self {
        Self { buffers: BufferBudget::new(body::BUFFER_BUDGET), deprecations, pages, rewriter }
    }

    /// Returns true if a call is answered with all pages of its list in one.
    pub(super) fn merges_pages(&self, method: &Method, target: &PathAndQuery, headers: &HeaderMap) -> bool {
        self.pages.wants_merged(method, target, headers)
    }

    /// Forwards a call of a client, named as in the usage counters, and rewrites the response for `origin`, the gateway's
    /// own as the caller sees it.
    pub(super) async fn forward(
        &self,
        client: &str,
        call: &UpstreamCall,
        origin: Option<&str>,
        merge_pages: bool,
        body: IncomingBody,
    ) -> Response<GatewayBody> {
        let body = match CallerBody::receive(body, &self.buffers).await {
            Ok(body) => body,
            Err(BufferError::Timeout) => {
                return error_response(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
            }
            Err(BufferError::Broken) => {
                return error_response(StatusCode::BAD_REQUEST, "the body is incomplete");
            }
        };
        let assessment = match self.deprecations.assess(call, &body, client) {
            Ok(assessment) => assessment,
            Err(errors) => return local_response::error_responses(&errors),
        };
        // Rare cases are boxed: otherwise each call's future would reserve space for them.
        let outcome = match &assessment.deprecated {
            None if merge_pages => Box::pin(self.pages.fetch(call, origin)).await,
            None if unlock::is_unlock(call) => Box::pin(self.unlock(call, body)).await,
            None => self.deprecations.send_unchanged(call, body).await,
            // No list that is merged has a replacement.
            Some(deprecated) if merge_pages => {
                let merged = Box::pin(self.pages.fetch(call, origin)).await;
                self.deprecations.annotate(call, deprecated, None, client, merged)
            }
            Some(deprecated) => Box::pin(self.deprecations.call_or_replace(call, body, deprecated, client)).await,
        };
        let mut response = match outcome {
            Ok(CallOutcome { replacement, response }) => {
                let call = replacement.as_ref().unwrap_or(call);
                if let Some(audited) = &call.audited {
                    audited.note(|note| note.upstream_status = Some(response.status().as_u16()));
                }
                tracing::debug!(
                    event = "gateway.forwarded",
                    client,
                    method = call.method.as_str(),
                    status = response.status().as_u16(),
                    "a call was forwarded"
                );
                self.rewriter.rewrite(call, origin, response).await
            }
            Err(response) => *response,
        };
        if !assessment.headers.is_empty() {
            response.headers_mut().extend(assessment.headers);
        }
        response
    }

    /// Unlocks a workspace, again and again for some seconds while the platform still processes its state.
    async fn unlock(&self, call: &UpstreamCall, mut body: CallerBody) -> Result<CallOutcome, ErrorResponse> {
        for delay in UNLOCK_RETRIES {
            let Some(again) = body.replay() else { break };
            let outcome = self.deprecations.send_unchanged(call, body).await?.buffer().await?;
            if !unlock::is_state_pending(&outcome) {
                return Ok(outcome);
            }
            drop(outcome);
            tokio::time::sleep(delay).await;
            body = again;
        }
        self.deprecations.send_unchanged(call, body).await
    }
}
