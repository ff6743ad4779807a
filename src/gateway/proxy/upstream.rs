//! Calls the platform: rate limit, token, and a retry after 429 or a rejected token.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, Method, Response, StatusCode};
use keyward_http::body_buffer::{BodyBuffer, collect};
use keyward_http::reverse_proxy::{
    ForwardError, Forwarder, RequestBody, ResponseBody, UpstreamOutcome, UpstreamRecorder,
};
use keyward_http::server::CallerGroup;
use keyward_machine::clock::Clock;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::LatencyHistogram;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::body::{CallerBody, GatewayBody};
use super::local_response::{self, retry_later};
use super::path::path_class;
use super::platform_info::{PlatformInfo, UpstreamHealth};
use super::rate_limiter::RateLimiter;
use super::response_headers;
use super::token_state::{TokenCheck, TokenState};
use super::upstream_call::{ACCOUNT_DETAILS, ErrorResponse, UpstreamCall};
use crate::platform_token::PlatformToken;

/// The platform as a server that is called.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) forwarder: Forwarder,
    /// The platform's origin as the `Host` of requests.
    pub(super) host: HeaderValue,
    /// Time limit for a response head.
    pub(super) response_timeout: Duration,
    pub(super) limiter: RateLimiter,
    pub(super) tokens: Arc<TokenState>,
    pub(super) platform: Arc<PlatformInfo>,
    /// Reachability of the platform.
    pub(super) health: UpstreamHealth,
    /// Component `gateway/platform`, which warns while the platform does not respond.
    pub(super) component: Arc<HealthHandle>,
    pub(super) clock: Clock,
    /// Calls made once more with a newer token.
    pub(super) replays: Counter,
    /// Waits for the rate limit.
    pub(super) queue_seconds: LatencyHistogram,
    /// Counts the calls by class of path.
    pub(super) recorder: UpstreamRecorder,
}

impl Upstream {
    /// Calls the platform.
    pub(super) async fn call(
        &self,
        call: &UpstreamCall,
        body: CallerBody,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let token = self.tokens.current()?;
        // Before the first try: a body that has been sent cannot be read again.
        let replay = body.replay();
        let mut response = self.send(call, &token, body.into_request_body()).await?;
        if response.status() == StatusCode::TOO_MANY_REQUESTS
            && let Some(body) =
                replay.as_ref().filter(|_| self.retries_soon(response.headers())).and_then(CallerBody::replay)
        {
            // A call refused with 429 did nothing. Its slot comes after the pause that the response requested.
            drop(response);
            response = Box::pin(self.send(call, &token, body.into_request_body())).await?;
        }
        if response.status() == StatusCode::UNAUTHORIZED {
            return Box::pin(self.handle_unauthorized(call, token, response, replay)).await;
        }
        self.tokens.record_acceptance(&token);
        Ok(response)
    }

    /// Returns a 401 if the platform accepts the token otherwise: then it is about the call's content (Terraform Enterprise
    /// responds so to wrong SMTP credentials, after it has sent a test mail). Otherwise repeats the call with a new token,
    /// as soon as there is one. That is safe for every method: a call with a rejected token did nothing.
    ///
    /// # Errors
    /// The response for the caller (never 401) if there is no new token in time, or the call cannot wait.
    async fn handle_unauthorized(
        &self,
        call: &UpstreamCall,
        mut token: Arc<PlatformToken>,
        mut response: Response<ResponseBody>,
        body: Option<CallerBody>,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let deadline = Instant::now() + self.tokens.max_wait;
        loop {
            match self.check_token(&token).await {
                Some(true) => {
                    self.tokens.record_acceptance(&token);
                    return Ok(response);
                }
                // Coalesced: the source refreshes once, however many callers request it.
                Some(false) if self.tokens.record_rejection(&token) => {
                    self.tokens.source.refresh_signal.request();
                }
                None if self.tokens.is_current(&token) => return Err(self.tokens.unchecked()),
                // Another token has come meanwhile.
                Some(false) | None => {}
            }
            drop(response);
            let deadline = deadline.min(self.tokens.wait_end(&token));
            let Some(body) = body.as_ref().and_then(CallerBody::replay) else {
                return Err(self.tokens.unavailable("its body is too large to be sent again"));
            };
            token = self.tokens.refresh(&token, deadline).await?;
            self.replays.inc();
            response = self.send(call, &token, body.into_request_body()).await?;
            if response.status() != StatusCode::UNAUTHORIZED {
                self.tokens.record_acceptance(&token);
                return Ok(response);
            }
        }
    }

    /// Returns true if the platform accepts a token, with which a call has just got 401; `None` if the check of the token
    /// got no usable response. Calls that got 401 before a check began share the check.
    async fn check_token(&self, token: &Arc<PlatformToken>) -> Option<bool> {
        let unauthorized = Instant::now();
        let mut last = self.tokens.last_check.lock().await;
        if let Some(check) = last.as_ref().filter(|check| check.token.is_same(token)) {
            // While the rejection lasts, a further call needs no check.
            let is_known = check.accepted == Some(false) && self.tokens.rejected_since().is_some();
            if is_known || check.started >= unauthorized {
                return check.accepted;
            }
        }
        let started = Instant::now();
        let mut accepted = self.try_token(token).await;
        for delay in CHECK_RETRIES {
            if accepted.is_none() && self.tokens.is_current(token) {
                tokio::time::sleep(delay).await;
                accepted = self.try_token(token).await;
            }
        }
        *last = Some(TokenCheck { token: Arc::clone(token), started, accepted });
        drop(last);
        accepted
    }

    /// Makes a call that every valid token may make. Returns `None` if the response says nothing about the token.
    async fn try_token(&self, token: &PlatformToken) -> Option<bool> {
        // Outside the rate limit: calls in its queue would fail until the check's turn.
        let sent = self.send_unlimited(&UpstreamCall::own(ACCOUNT_DETAILS), token, RequestBody::empty()).await;
        match sent.map(|response| response.status()) {
            Ok(StatusCode::UNAUTHORIZED) => Some(false),
            Ok(status) if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => None,
            // Also 403 and 404: the platform knows who calls.
            Ok(_) => Some(true),
            Err(_) => None,
        }
    }

    /// Sends a call with a token once its slot of the rate limit has come.
    pub(super) async fn send(
        &self,
        call: &UpstreamCall,
        token: &PlatformToken,
        body: RequestBody,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let waited = self.limiter.acquire(call.class()).await.map_err(|wait| {
            Box::new(retry_later(
                StatusCode::TOO_MANY_REQUESTS,
                "too many requests wait for the platform's rate limit",
                wait,
            ))
        })?;
        if !waited.is_zero() {
            self.queue_seconds.observe(waited.as_secs_f64());
        }
        self.send_unlimited(call, token, body).await
    }

    /// Sends a call with a token at once, whatever the rate limit.
    async fn send_unlimited(
        &self,
        call: &UpstreamCall,
        token: &PlatformToken,
        body: RequestBody,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let head = call.head(&self.host, token, &body);
        let started = Instant::now();
        let class = path_class(call.target.path());
        match self.forwarder.send(call.caller, &head, body, self.response_timeout).await {
            Ok(response) => {
                self.recorder.record(class, UpstreamOutcome::Response(response.status()), started.elapsed());
                self.record_response(call, &response);
                Ok(response)
            }
            Err(error) => {
                self.recorder.record_error(class, &error, started.elapsed());
                Err(Box::new(self.connection_failed(&error)))
            }
        }
    }

    /// Returns true if a 429 asks for a wait short enough to be spent here.
    fn retries_soon(&self, headers: &HeaderMap) -> bool {
        let wait = response_headers::rate_limit_reset(headers, self.clock.now().wall);
        self.limiter.is_enabled() && wait.is_some_and(|wait| wait <= MAX_RETRY_WAIT)
    }

    /// Fetches a document of a bounded size; `None` if there is none.
    pub(super) async fn fetch_document(&self, target: &str, headers: &HeaderMap, limit: usize) -> Option<Bytes> {
        let call = UpstreamCall::new(CallerGroup::own_process(), Method::GET, target.parse().ok()?, headers.clone());
        let response = self.call(&call, CallerBody::empty()).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        collect(response.into_body(), limit).await.ok().map(BodyBuffer::into_bytes)
    }

    fn record_response(&self, call: &UpstreamCall, response: &Response<ResponseBody>) {
        if let Some(lasted_seconds) = self.health.record_success(&self.clock) {
            self.component.clear_warning();
            let upstream = &self.platform.origin;
            tracing::info!(
                event = "gateway.upstream.recovered",
                upstream,
                lasted_seconds,
                "the platform responds again"
            );
        }
        let status = response.status();
        let headers = response.headers();
        self.platform.learn(headers);
        // The limit of a rejected token says nothing about that of a valid one, and a load balancer reports none.
        if status != StatusCode::UNAUTHORIZED && !status.is_server_error() {
            self.limiter.update_limit(response_headers::rate_limit(headers));
        }
        if status == StatusCode::TOO_MANY_REQUESTS
            && let Some(wait) = response_headers::rate_limit_reset(headers, self.clock.now().wall)
        {
            self.limiter.pause(call.class(), wait);
        }
    }

    fn connection_failed(&self, error: &ForwardError) -> Response<GatewayBody> {
        let text = format_chain(error);
        if matches!(error, ForwardError::RequestBody(_)) {
            return local_response::error_response(error.status(), &text);
        }
        if self.health.record_failure(&self.clock) {
            self.component.warn(ErrorCode::PlatformUnreachable, format!("the platform does not respond: {text}"));
            tracing::warn!(
                event = "gateway.upstream.failed",
                code = ErrorCode::PlatformUnreachable.as_str(),
                upstream = self.platform.origin,
                error = text,
                "the platform does not respond; calls fail"
            );
        }
        retry_later(
            error.status(),
            format!("the platform at {} does not respond: {text}", self.platform.origin),
            RETRY_AFTER,
        )
    }
}

/// Waits before a check of the token is repeated that got no usable response.
const CHECK_RETRIES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// Longest wait after a 429 that is spent here; longer ones are left to the caller. The platform mostly counts by the
/// second.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);

/// `Retry-After` while the platform does not respond.
const RETRY_AFTER: Duration = Duration::from_secs(2);
