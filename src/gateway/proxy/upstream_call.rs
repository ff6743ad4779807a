//! One call to the platform: its turn, its token, and once more where the platform took too many or refused the token.

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

/// What is asked of the platform, without its body and its token.
#[derive(Debug, Clone)]
pub(super) struct UpstreamCall {
    /// The caller, for whom a connection to the upstream is taken.
    pub(super) caller: Caller,
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
}

/// With `true` in it, a call asks for all pages of such a list in one.
pub(super) const MERGE_PAGES_HEADER: HeaderName = HeaderName::from_static("keyward-merge-pages");

/// Headers that are for the gateway, beside `Host` and `Authorization`, in whose place its own are put.
fn is_gateway_header(name: &str) -> bool {
    matches!(name, "accept-encoding" | "expect" | "x-vault-token" | "x-vault-request" | "keyward-merge-pages")
}

/// What a caller is told in place of the platform's answer.
pub(super) type ErrorResponse = Box<Response<GatewayBody>>;

impl UpstreamCall {
    /// Takes off what belongs to the way here. An encoded answer could not be read for links, so that identity is asked for: no
    /// `Accept-Encoding` means any encoding (RFC 9110, 12.5.3). An expectation is met here: the body is asked for when it is
    /// sent on.
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

    /// Its head as it is sent with that token, for that body.
    fn head(&self, inner: &Inner, token: &PlatformToken, body: &RequestBody) -> RequestHead {
        let line = RequestLine { method: &self.method, prefix: "", target: &self.target, host: &inner.host };
        let mut head = RequestHead::new(line, &self.headers, |name| *name != AUTHORIZATION, body);
        head.put(&AUTHORIZATION, &token.bearer());
        head
    }
}

impl Inner {
    /// Calls the platform.
    ///
    /// # Errors
    /// It could not be called, or did not answer: what the caller is told.
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
            // Nothing was done either. Its turn comes after the pause that the answer has told.
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
                "the gateway holds too many requests back for this platform",
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

    /// Whether a refusal because of too many requests tells that they are taken again soon, and is waited for.
    fn retries_soon(&self, headers: &HeaderMap) -> bool {
        let wait = response::rate_limit_reset(headers, self.dependencies.clock.now().wall);
        self.limiter.is_enabled() && wait.is_some_and(|wait| wait <= MAX_RETRY_WAIT)
    }

    /// A document of the platform's of a bounded size, by its path; `None` where there is none.
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
            tracing::info!(event = "gateway.upstream.back", upstream = self.origin, "the platform answers again");
        }
        let (status, headers) = (response.status(), response.headers());
        self.learn_server(headers);
        // A refused token says nothing of the limit of a good one.
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
                "the platform does not answer; callers are told so"
            );
        }
        retry_later(error.status(), format!("the platform at {} does not answer: {cause}", self.origin), RETRY_AFTER)
    }

    /// The current platform token.
    pub(super) fn token(&self) -> Result<Arc<PlatformToken>, ErrorResponse> {
        self.dependencies.source.watch.with(|reading| match &reading.availability {
            Availability::Available(token) => Ok(Arc::clone(token)),
            Availability::Unavailable { reason, retry_after } => {
                Err(Box::new(retry_later(StatusCode::SERVICE_UNAVAILABLE, reason.to_string(), *retry_after)))
            }
        })
    }
}

/// The longest wait for the platform to take requests again that is spent here and not by the caller. The platform counts by the
/// second; what it counts by the minute is the caller's to wait for.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);

/// When to ask again where the platform does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(2);
