//! Sends requests to the server: with the session's token, and once more with a newer one where the server refused it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Response, StatusCode, request};
use http_body_util::Either;
use hyper::ext::ReasonPhrase;
use keyward_http::body_buffer::BufferBudget;
use keyward_http::reverse_proxy::{
    ForwardError, Forwarder, RequestBody, RequestHead, ResponseBody, UpstreamOutcome, UpstreamRecorder, is_direct,
    remove_all,
};
use keyward_machine::clock::Clock;
use keyward_telemetry::audit::AuditedRequest;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::outage::SharedOutage;
use tokio::time::Instant;

use super::leak_filter::{FilteredBody, LeakFilter};
use super::listener::ProxyListener;
use super::redact_token::redact;
use super::request_body::{CallerBody, ReplayBody};
use super::request_headers::WRAP_TTL;
use super::response::{NoFreeConnection, ProxyBody, error_response, is_redirect, retry_later, token_unavailable};
use super::server_dialect::{ForwardOptions, ServerDialect};
use super::session_token::{TokenHeader, TokenUnavailable};
use super::token_recovery::{ForbiddenResponse, Recovery, TokenRecovery};
use super::token_search::TokenFinder;
use crate::token::Generation;

/// A request whose head and body are ready for the server.
pub(super) struct PreparedRequest {
    options: ForwardOptions,
    head: RequestHead,
    body: RequestBody,
    replay: ReplayBody,
    /// The session's token, if the request carries it.
    token: Option<TokenHeader>,
    /// The request is a blocking query, whose response waits for a change.
    is_blocking: bool,
    /// The request as its audit records it; `None` without an audit.
    audited: Option<AuditedRequest>,
}

/// A response, and the login whose token it was requested with.
pub(super) type TokenResponse = (Response<ProxyBody>, Option<Generation>);

/// Sends requests to one session's server.
#[derive(Debug)]
pub(super) struct RequestSender {
    pub(super) dialect: ServerDialect,
    /// The session's token.
    pub(super) tokens: Arc<TokenRecovery>,
    forwarder: Forwarder,
    recorder: UpstreamRecorder,
    leak_filter: Arc<LeakFilter>,
    response_timeout: Duration,
    /// Memory for request bodies that may be sent twice.
    replay_budget: BufferBudget,
    /// Requests get no response. Each change is logged once.
    outage: SharedOutage,
    clock: Clock,
    /// Component of the listener, which warns during an outage.
    component: Option<Arc<HealthHandle>>,
    /// A request has timed out since the server last responded.
    is_unresponsive: AtomicBool,
}

impl RequestSender {
    pub(super) fn new(
        dialect: ServerDialect,
        tokens: Arc<TokenRecovery>,
        forwarder: Forwarder,
        recorder: UpstreamRecorder,
        leak_filter: LeakFilter,
        response_timeout: Duration,
        clock: Clock,
        component: Option<Arc<HealthHandle>>,
    ) -> Self {
        Self {
            dialect,
            tokens,
            forwarder,
            recorder,
            leak_filter: Arc::new(leak_filter),
            response_timeout,
            replay_budget: BufferBudget::new(REPLAY_BUDGET),
            outage: SharedOutage::default(),
            clock,
            component,
            is_unresponsive: AtomicBool::new(false),
        }
    }

    /// Returns true from a timeout until the next response.
    pub(super) fn is_unresponsive(&self) -> bool {
        self.is_unresponsive.load(Ordering::Relaxed)
    }

    /// Time to the head of a response.
    pub(super) const fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Returns the session's token if the request carries it, without waiting for a login.
    pub(super) fn current_token(options: &ForwardOptions) -> Result<Option<TokenHeader>, TokenUnavailable> {
        if options.with_session { options.tokens.current_token().map(Some) } else { Ok(None) }
    }

    /// Prepares a request. `parts` can be dropped afterwards: they hold the received head.
    pub(super) fn prepare(
        &self,
        options: ForwardOptions,
        parts: &request::Parts,
        body: CallerBody,
        token: Option<TokenHeader>,
    ) -> Result<PreparedRequest, Box<Response<ProxyBody>>> {
        // In a wrapped response the token could not be redacted.
        if options.returns_token && parts.headers.contains_key(WRAP_TTL) {
            return Err(Box::new(error_response(StatusCode::FORBIDDEN, WRAPPED_TOKEN)));
        }
        let is_blocking = self.dialect.is_blocking_query(parts.uri.query());
        // Only a request with the session's token may be sent again, with the token of a newer login.
        let (body, replay) = if token.is_some() {
            body.with_replay(&self.replay_budget)
        } else {
            (body.into_upstream(), ReplayBody::Unavailable)
        };
        let ForwardOptions { has_listener_key, is_root_path, .. } = options;
        match self.dialect.request_head(parts, has_listener_key, is_root_path, token.as_ref(), &body) {
            Some(head) => {
                let audited = AuditedRequest::from_extensions(&parts.extensions).cloned();
                if let (Some(audited), Some(token)) = (&audited, &token) {
                    audited.set_accessor(token.token.accessor.as_deref());
                }
                Ok(PreparedRequest { options, head, body, replay, token, is_blocking, audited })
            }
            None => Err(Box::new(error_response(StatusCode::BAD_REQUEST, "the request target has no path"))),
        }
    }

    /// Waits for a token if the request carries one, then prepares and forwards it.
    pub(super) async fn prepare_and_forward(
        &self,
        listener: &ProxyListener,
        options: ForwardOptions,
        parts: request::Parts,
        body: CallerBody,
    ) -> TokenResponse {
        let token = if options.with_session {
            match options.tokens.wait_for_token().await {
                Ok(token) => Some(token),
                Err(cause) => return (token_unavailable(&cause), None),
            }
        } else {
            None
        };
        let prepared = self.prepare(options, &parts, body, token);
        drop(parts);
        match prepared {
            Ok(prepared) => self.forward(listener, prepared).await,
            Err(response) => (*response, None),
        }
    }

    /// Forwards a prepared request; after a 403, once more with a newer token.
    pub(super) async fn forward(&self, listener: &ProxyListener, prepared: PreparedRequest) -> TokenResponse {
        let PreparedRequest { options, mut head, body, replay, token, is_blocking, audited } = prepared;
        // A look-up or a renewal returns the token by intent; it is redacted instead.
        let returns_token = options.returns_token;
        let filtered = move |token: &TokenHeader| (!returns_token).then(|| Arc::clone(&token.finder));
        let filter = token.as_ref().and_then(filtered);
        let first = self.send(&options, &head, body, is_blocking, audited.as_ref()).await;
        let first = match first.and_then(|response| self.filter(response, filter.as_ref())) {
            Ok(response) => response,
            Err(response) => return (*response, None),
        };
        let Some(token) = token else { return (first.map(Either::Left), None) };
        let generation = Some(token.generation());
        if first.status() != StatusCode::FORBIDDEN {
            let response = first.map(Either::Left);
            if returns_token {
                // Boxed for the same reason as below.
                return (Box::pin(redact(response, &token)).await, generation);
            }
            return (response, generation);
        }
        // Boxed as it is rare: inline it would enlarge the future of every request.
        Box::pin(async move {
            let forbidden = ForbiddenResponse::read(first, returns_token).await;
            if !replay.is_complete() {
                // The caller gets the 403 at once; the session checks its token all the same.
                options.tokens.report_refusal(&token, forbidden.token_is_dead);
                return (forbidden.response, generation);
            }
            let newer = match options.tokens.recover(&token, forbidden.token_is_dead).await {
                Recovery::Unchanged => return (forbidden.response, generation),
                Recovery::Unavailable(cause) => return (token_unavailable(&cause), None),
                Recovery::Replaced(newer) => newer,
            };
            let Some(body) = replay.into_upstream() else { return (forbidden.response, generation) };
            drop(forbidden);
            listener.replays.inc();
            self.dialect.set_token(&mut head, &newer);
            let filter = filtered(&newer);
            if let Some(audited) = &audited {
                audited.set_accessor(newer.token.accessor.as_deref());
            }
            let second = self.send(&options, &head, body, is_blocking, audited.as_ref()).await;
            match second.and_then(|response| self.filter(response, filter.as_ref())) {
                Ok(response) => {
                    let response = response.map(Either::Left);
                    let response = if returns_token { redact(response, &newer).await } else { response };
                    (response, Some(newer.generation()))
                }
                Err(response) => (*response, None),
            }
        })
        .await
    }

    /// Sends a request once.
    async fn send(
        &self,
        options: &ForwardOptions,
        head: &RequestHead,
        body: RequestBody,
        is_blocking: bool,
        audited: Option<&AuditedRequest>,
    ) -> Result<Response<ResponseBody>, Box<Response<ProxyBody>>> {
        let timeout = if is_blocking { BLOCKING_QUERY_TIMEOUT } else { self.response_timeout };
        // The time of a blocking query is that to the next change, and says nothing about the server.
        let started = (!is_blocking).then(Instant::now);
        let elapsed = move || started.map(|started| started.elapsed());
        match self.forwarder.send(options.caller, head, body, timeout).await {
            Ok(mut response) => {
                if let Some(audited) = audited {
                    audited.note(|note| note.upstream_status = Some(response.status().as_u16()));
                }
                let outcome = UpstreamOutcome::Response(response.status());
                self.recorder.record(options.path_class.index(), outcome, elapsed());
                self.record_success();
                if is_redirect(response.status()) {
                    let message = format!(
                        "{} redirects, and a redirect would carry the token to another host; configure the address of the \
                         active server",
                        self.dialect.describe_server()
                    );
                    return Err(Box::new(retry_later(StatusCode::BAD_GATEWAY, &message, RETRY_AFTER)));
                }
                remove_all(response.headers_mut(), is_direct);
                // A server may repeat the token in its own words for a status too. The caller gets the usual ones.
                response.extensions_mut().remove::<ReasonPhrase>();
                Ok(response)
            }
            Err(error) => {
                self.recorder.record_error(options.path_class.index(), &error, elapsed());
                Err(Box::new(self.record_failure(&error)))
            }
        }
    }

    /// Keeps a response that contains `token` from the caller.
    ///
    /// # Errors
    /// The head contains it: the response that replaces the server's.
    fn filter(
        &self,
        response: Response<ResponseBody>,
        token: Option<&Arc<TokenFinder>>,
    ) -> Result<Response<FilteredBody>, Box<Response<ProxyBody>>> {
        let Some(token) = token else { return Ok(response.map(FilteredBody::unfiltered)) };
        self.leak_filter.filter(response, token).map_err(|leak| {
            let message = format!("{}: {leak}", self.dialect.describe_server());
            Box::new(error_response(StatusCode::BAD_GATEWAY, &message))
        })
    }

    fn record_success(&self) {
        if self.is_unresponsive.load(Ordering::Relaxed) {
            self.is_unresponsive.store(false, Ordering::Relaxed);
        }
        if let Some(lasted_seconds) = self.outage.record_success(&self.clock) {
            self.component.iter().for_each(|component| component.clear_warning());
            let server = &self.dialect.name;
            tracing::info!(event = "proxy.upstream.recovered", server, lasted_seconds, "the server responds again");
        }
    }

    fn record_failure(&self, error: &ForwardError) -> Response<ProxyBody> {
        let text = format_chain(error);
        // The caller's body failed, which says nothing about the server.
        if matches!(error, ForwardError::RequestBody(_)) {
            return error_response(error.status(), &text);
        }
        let server = self.dialect.describe_server();
        if matches!(error, ForwardError::Busy(_) | ForwardError::ShareBusy(_)) {
            // The callers use all connections: no outage of the server.
            let message = format!("no connection to {server} is free: {text}");
            let mut response = retry_later(error.status(), &message, RETRY_AFTER);
            response.extensions_mut().insert(NoFreeConnection);
            return response;
        }
        let message = format!("{server} does not respond: {text}");
        if matches!(error, ForwardError::ResponseTimeout(_) | ForwardError::ConnectTimeout { .. }) {
            self.is_unresponsive.store(true, Ordering::Relaxed);
        }
        if self.outage.record_failure(&self.clock) {
            self.component.iter().for_each(|component| component.warn(ErrorCode::ServerUnreachable, message.as_str()));
            tracing::warn!(
                event = "proxy.upstream.failed",
                server = self.dialect.name,
                error = text,
                "the server does not respond; callers get 502 or 504"
            );
        }
        retry_later(error.status(), &message, RETRY_AFTER)
    }
}

/// Memory for the request bodies of all callers that may be sent twice, in bytes.
const REPLAY_BUDGET: usize = 16 * 1024 * 1024;

/// The longest that Consul holds a blocking query: 10 minutes and up to a sixteenth more.
const BLOCKING_QUERY_TIMEOUT: Duration = Duration::from_mins(11);

/// `Retry-After` where the server does not respond.
const RETRY_AFTER: Duration = Duration::from_secs(2);

const WRAPPED_TOKEN: &str =
    "a response with the session's token cannot be response-wrapped; send the request without X-Vault-Wrap-TTL";
