//! One call to the platform: rate limit, token, and a retry after 429 or a rejected token.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};

use super::body::{CallerBody, GatewayBody};
use super::rate_limiter::RequestClass;
use super::response::{self, retry_later};
use super::{Inner, path};
use crate::credential_watch::Availability;
use crate::error_chain::format_chain;
use crate::gateway::platform_token::PlatformToken;
use crate::http::body_buffer::{BodyBuffer, collect};
use crate::http::reverse_proxy::{ForwardError, RequestBody, RequestHead, RequestLine, ResponseBody, remove_all};
use crate::http::server::Caller;

/// A request to the platform, without body and token.
#[derive(Debug, Clone)]
pub(super) struct UpstreamCall {
    /// Caller that the upstream connection is used for.
    pub(super) caller: Caller,
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
}

/// Request header that asks for all pages of a list in one response, with the value `true`.
pub(super) const MERGE_PAGES_HEADER: HeaderName = HeaderName::from_static("keyward-merge-pages");

/// Returns true for headers meant for the gateway. `Host` and `Authorization` are replaced instead.
fn is_gateway_header(name: &str) -> bool {
    matches!(name, "accept-encoding" | "expect" | "x-vault-token" | "x-vault-request" | "keyward-merge-pages")
}

/// Response of the gateway in place of the platform's.
pub(super) type ErrorResponse = Box<Response<GatewayBody>>;

impl UpstreamCall {
    /// Removes headers meant for the gateway. Requests identity, as links in an encoded response could not be
    /// rewritten; a missing `Accept-Encoding` would allow any encoding (RFC 9110, 12.5.3). `Expect` is met by the
    /// gateway, which reads the body when it forwards it.
    pub(super) fn new(caller: Caller, method: Method, target: PathAndQuery, mut headers: HeaderMap) -> Self {
        remove_all(&mut headers, is_gateway_header);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Self { caller, method, target, headers }
    }

    fn class(&self) -> RequestClass {
        let mut segments = self.target.path().strip_prefix("/api/v2/").unwrap_or_default().split('/');
        let shape = (segments.next(), segments.next(), segments.next(), segments.next());
        match shape {
            (Some("organizations" | "workspaces"), Some(_), Some(list), None)
                if self.method == Method::GET && path::percent_decode(list) == "runs" =>
            {
                RequestClass::RunList
            }
            _ => RequestClass::Other,
        }
    }

    /// Builds the request head with a token, for a body.
    fn head(&self, inner: &Inner, token: &PlatformToken, body: &RequestBody) -> RequestHead {
        let line = RequestLine { method: &self.method, prefix: "", target: &self.target, host: &inner.host };
        let mut head = RequestHead::new(line, &self.headers, |name| *name != AUTHORIZATION, body);
        head.append_header(&AUTHORIZATION, &token.bearer());
        head
    }
}

impl Inner {
    /// Calls the platform.
    ///
    /// # Errors
    /// The response for the caller if the platform could not be called.
    pub(super) async fn call_platform(
        &self,
        call: &UpstreamCall,
        body: CallerBody,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let token = self.token()?;
        let replay = body.replay();
        let mut response = self.send(call, &token, body.into_request_body()).await?;
        if response.status() == StatusCode::TOO_MANY_REQUESTS
            && let Some(body) =
                replay.as_ref().filter(|_| self.retries_soon(response.headers())).and_then(CallerBody::replay)
        {
            // A call refused with 429 did nothing. Its slot comes after the pause that the response asked for.
            drop(response);
            response = Box::pin(self.send(call, &token, body.into_request_body())).await?;
        }
        if response.status() == StatusCode::UNAUTHORIZED {
            drop(response);
            return Box::pin(self.call_with_new_token(call, token, replay)).await;
        }
        self.record_acceptance(&token);
        Ok(response)
    }

    pub(super) async fn send(
        &self,
        call: &UpstreamCall,
        token: &PlatformToken,
        body: RequestBody,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        self.limiter.acquire(call.class()).await.map_err(|wait| {
            Box::new(retry_later(
                StatusCode::TOO_MANY_REQUESTS,
                "too many requests wait for the platform's rate limit",
                wait,
            ))
        })?;
        let head = call.head(self, token, &body);
        match self.forwarder.send(call.caller, &head, body, self.options.response_timeout).await {
            Ok(response) => {
                self.record_response(&response);
                Ok(response)
            }
            Err(error) => Err(Box::new(self.connection_failed(&error))),
        }
    }

    /// Returns true if a 429 asks for a wait short enough to be spent here.
    fn retries_soon(&self, headers: &HeaderMap) -> bool {
        let wait = response::rate_limit_reset(headers, self.dependencies.clock.now().wall);
        self.limiter.is_enabled() && wait.is_some_and(|wait| wait <= MAX_RETRY_WAIT)
    }

    /// Fetches a document of a bounded size; `None` if there is none.
    pub(super) async fn fetch_document(&self, target: &str, headers: &HeaderMap, limit: usize) -> Option<Bytes> {
        let call = UpstreamCall::new(Caller::ourselves(), Method::GET, target.parse().ok()?, headers.clone());
        let response = self.call_platform(&call, CallerBody::empty()).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        collect(response.into_body(), limit).await.ok().map(BodyBuffer::into_bytes)
    }

    fn record_response(&self, response: &Response<ResponseBody>) {
        if self.upstream_health.record_success() {
            tracing::info!(event = "gateway.upstream.recovered", upstream = self.origin, "the platform responds again");
        }
        let (status, headers) = (response.status(), response.headers());
        self.learn_server(headers);
        // The limit of a rejected token says nothing about that of a valid one.
        if status != StatusCode::UNAUTHORIZED {
            self.limiter.update_limit(response::rate_limit(headers));
        }
        if status == StatusCode::TOO_MANY_REQUESTS
            && let Some(wait) = response::rate_limit_reset(headers, self.dependencies.clock.now().wall)
        {
            self.limiter.pause(wait);
        }
    }

    fn connection_failed(&self, error: &ForwardError) -> Response<GatewayBody> {
        let cause = format_chain(error);
        if matches!(error, ForwardError::RequestBody(_)) {
            return response::error_response(error.status(), &cause);
        }
        if self.upstream_health.record_failure() {
            tracing::warn!(
                event = "gateway.upstream.failed",
                upstream = self.origin,
                cause,
                "the platform does not respond; calls fail"
            );
        }
        retry_later(error.status(), format!("the platform at {} does not respond: {cause}", self.origin), RETRY_AFTER)
    }

    /// Returns the current platform token.
    pub(super) fn token(&self) -> Result<Arc<PlatformToken>, ErrorResponse> {
        self.dependencies.source.watch.with(|reading| match &reading.availability {
            Availability::Available(token) => Ok(Arc::clone(token)),
            Availability::Unavailable { reason, retry_after } => {
                Err(Box::new(retry_later(StatusCode::SERVICE_UNAVAILABLE, reason.to_string(), *retry_after)))
            }
        })
    }
}

/// Longest wait after a 429 that is spent here; longer ones are left to the caller. The platform mostly counts by the
/// second.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);

/// `Retry-After` while the platform does not respond.
const RETRY_AFTER: Duration = Duration::from_secs(2);
