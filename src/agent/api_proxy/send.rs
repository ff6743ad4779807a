//! One call of the server: its token, its answer, and once more where the token was no longer good.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, request};
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::Inner;
use super::answer::{self, ProxyBody, refuse, wait};
use super::listener_metrics::ProxyListener;
use super::redact_token;
use super::request_headers::WRAP_TTL;
use super::screen::FilteredBody;
use super::server_dialect::Call;
use super::session_token::{TokenHeader, TokenUnavailable};
use super::token_recovery::{Recovery, Refusal};
use crate::agent::token::{Generation, Token};
use crate::error_chain::format_chain;
use crate::http::reverse_proxy::{
    ForwardError, ReplayBuffer, RequestBody, RequestHead, TeeBody, is_direct, remove_all,
};

/// A request that is ready to be sent.
pub(super) struct PreparedRequest {
    call: Call,
    head: RequestHead,
    body: RequestBody,
    /// What there is of its body for another time.
    copy: ReplayBody,
    /// The session's token, where it is put on.
    token: Option<TokenHeader>,
    limit: Duration,
}

impl Inner {
    /// The session's token, if it is put on and there is one now.
    pub(super) fn current_header(&self, call: Call) -> Result<Option<TokenHeader>, TokenUnavailable> {
        if call.with_session { self.session_token.current().map(Some) } else { Ok(None) }
    }

    /// Makes a request ready to be sent. From here on its parts are not needed: held, they would have its caller's connection
    /// read into another place.
    ///
    /// # Errors
    /// It is not sent: what its caller is told.
    pub(super) fn prepare(
        &self,
        call: Call,
        parts: &request::Parts,
        body: CallerBody,
        token: Option<TokenHeader>,
    ) -> Result<PreparedRequest, Box<Response<ProxyBody>>> {
        if call.returns_token && parts.headers.contains_key(WRAP_TTL) {
            return Err(Box::new(refuse(StatusCode::FORBIDDEN, WRAPPED_LOOKUP)));
        }
        let limit =
            if self.dialect.waits(parts.uri.query()) { BLOCKING_QUERY_TIMEOUT } else { self.options.response_timeout };
        let (body, copy) = if token.is_some() { self.tee_body(body) } else { (body.once(), ReplayBody::None) };
        match self.dialect.head(parts, call, token.as_ref(), &body) {
            Some(head) => Ok(PreparedRequest { call, head, body, copy, token, limit }),
            None => Err(Box::new(refuse(StatusCode::BAD_REQUEST, "the request names no path"))),
        }
    }

    /// Passes a request on with its body, and gives the answer, and the login whose token it was got with.
    pub(super) async fn prepare_and_forward(
        &self,
        listener: &ProxyListener,
        call: Call,
        parts: request::Parts,
        body: CallerBody,
    ) -> (Response<ProxyBody>, Option<Generation>) {
        let token = if call.with_session {
            match self.present().await {
                Ok(token) => Some(token),
                Err(absent) => return (answer::absent(&absent), None),
            }
        } else {
            None
        };
        let prepared = self.prepare(call, &parts, body, token);
        drop(parts);
        match prepared {
            Ok(prepared) => self.forward(listener, prepared).await,
            Err(answer) => (*answer, None),
        }
    }

    /// Passes a request on that is ready.
    pub(super) async fn forward(
        &self,
        listener: &ProxyListener,
        prepared: PreparedRequest,
    ) -> (Response<ProxyBody>, Option<Generation>) {
        let PreparedRequest { call, mut head, body, copy, token, limit } = prepared;
        let searched = |token: &TokenHeader| (!call.returns_token).then(|| Arc::clone(&token.token));
        let searched_token = token.as_ref().and_then(searched);
        let first = match self.send(listener, call, &head, body, limit, searched_token.as_ref()).await {
            Ok(answer) => answer,
            Err(answer) => return (*answer, None),
        };
        let Some(token) = token else { return (first.map(Either::Left), None) };
        let generation = Some(token.generation());
        if first.status() != StatusCode::FORBIDDEN {
            return (shown(call, &token, first.map(Either::Left)).await, generation);
        }
        // Rare: in a box, so that other calls take no room for it.
        Box::pin(async move {
            let refusal = Refusal::read(first).await;
            if !copy.is_there() {
                // Its caller is told at once, and the session's keeper looks all the same.
                if self.session_token.current().is_ok_and(|current| current.generation() == token.generation()) {
                    self.ring(refusal.says_dead);
                }
                return (refusal.answer, generation);
            }
            let fresh = match self.recover(&token, refusal.says_dead).await {
                Recovery::Same => return (refusal.answer, generation),
                Recovery::TokenUnavailable(absent) => return (answer::absent(&absent), None),
                Recovery::Token(fresh) => fresh,
            };
            let Some(body) = copy.again() else { return (refusal.answer, generation) };
            drop(refusal);
            listener.replays.inc();
            self.dialect.set_token(&mut head, &fresh);
            let token = searched(&fresh);
            match self.send(listener, call, &head, body, limit, token.as_ref()).await {
                Ok(answer) => (shown(call, &fresh, answer.map(Either::Left)).await, Some(fresh.generation())),
                Err(answer) => (*answer, None),
            }
        })
        .await
    }

    fn tee_body(&self, body: CallerBody) -> (RequestBody, ReplayBody) {
        let body = match body {
            CallerBody::Buffered(bytes) => {
                return (RequestBody::Buffered(Full::new(bytes.clone())), ReplayBody::Buffered(bytes));
            }
            CallerBody::Partial(bytes, rest) => return (RequestBody::Prefixed(bytes, rest), ReplayBody::None),
            CallerBody::Streaming(body) => body,
        };
        if body.is_end_stream() {
            return (RequestBody::empty(), ReplayBody::Buffered(Bytes::new()));
        }
        if body.size_hint().lower() > MAX_REPLAY_BODY as u64 {
            return (RequestBody::Streamed(body), ReplayBody::None);
        }
        let (body, teed) = TeeBody::new(body, MAX_REPLAY_BODY, &self.buffers);
        (RequestBody::Teed(body), ReplayBody::Teed(teed))
    }

    /// Sends a request and gives the server's answer, or what the caller is told in its place. An answer that repeats `token`
    /// is not passed on.
    async fn send(
        &self,
        listener: &ProxyListener,
        call: Call,
        head: &RequestHead,
        body: RequestBody,
        limit: Duration,
        token: Option<&Arc<Token>>,
    ) -> Result<Response<FilteredBody>, Box<Response<ProxyBody>>> {
        let started = Instant::now();
        match self.forwarder.send(call.caller, head, body, limit).await {
            Ok(mut answer) => {
                listener.spent.observe(started.elapsed().as_secs_f64());
                if self.unresponsive.load(Ordering::Relaxed) {
                    self.unresponsive.store(false, Ordering::Relaxed);
                }
                if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(
                        event = "proxy.upstream.back",
                        server = self.dialect.name,
                        "the server answers again"
                    );
                }
                if answer::is_redirect(answer.status()) {
                    let why = format!(
                        "{} leads elsewhere, where a client would take its token; give the address of the server that \
                         answers",
                        self.dialect.server()
                    );
                    return Err(Box::new(wait(StatusCode::BAD_GATEWAY, &why, RETRY_AFTER)));
                }
                remove_all(answer.headers_mut(), is_direct);
                match token {
                    None => Ok(answer.map(FilteredBody::unscreened)),
                    Some(token) => self.leak_filter.screened(answer, token).map_err(|leak| {
                        let why = format!("{}: {leak}", self.dialect.server());
                        Box::new(refuse(StatusCode::BAD_GATEWAY, &why))
                    }),
                }
            }
            Err(error) => Err(Box::new(self.failed(&error))),
        }
    }

    fn failed(&self, error: &ForwardError) -> Response<ProxyBody> {
        let cause = format_chain(error);
        if matches!(error, ForwardError::RequestBody(_)) {
            return refuse(error.status(), &cause);
        }
        if matches!(error, ForwardError::ResponseTimeout(_) | ForwardError::ConnectTimeout { .. }) {
            self.unresponsive.store(true, Ordering::Relaxed);
        }
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "proxy.upstream.failed",
                server = self.dialect.name,
                cause,
                "the server does not answer; callers are told so"
            );
        }
        wait(error.status(), &format!("{} does not answer: {cause}", self.dialect.server()), RETRY_AFTER)
    }
}

/// A request's body.
#[derive(Debug)]
pub(super) enum CallerBody {
    /// As it comes from the caller.
    Streaming(Incoming),
    /// It is here as a whole.
    Buffered(Bytes),
    /// The part that was read, and the rest as it comes.
    Partial(Vec<Bytes>, Incoming),
}

impl CallerBody {
    fn once(self) -> RequestBody {
        match self {
            Self::Streaming(body) => RequestBody::Streamed(body),
            Self::Buffered(bytes) => RequestBody::Buffered(Full::new(bytes)),
            Self::Partial(bytes, rest) => RequestBody::Prefixed(bytes, rest),
        }
    }
}

/// What there is of a body to be sent once more.
enum ReplayBody {
    /// All of it, perhaps nothing.
    Buffered(Bytes),
    /// It is not kept.
    None,
    Teed(ReplayBuffer),
}

impl ReplayBody {
    fn is_there(&self) -> bool {
        match self {
            Self::Buffered(_) => true,
            Self::None => false,
            Self::Teed(body) => body.is_whole(),
        }
    }

    fn again(self) -> Option<RequestBody> {
        match self {
            Self::Buffered(bytes) => Some(RequestBody::Buffered(Full::new(bytes))),
            Self::None => None,
            Self::Teed(body) => body.into_whole().map(|bytes| RequestBody::Buffered(Full::new(bytes))),
        }
    }
}

/// The largest body that is kept to be sent once more, in bytes.
const MAX_REPLAY_BODY: usize = 1024 * 1024;

/// The longest that a server may hold a blocking query back, and what it may add.
const BLOCKING_QUERY_TIMEOUT: Duration = Duration::from_mins(11);

/// When to ask again where the server does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(2);

async fn shown(call: Call, token: &TokenHeader, answer: Response<ProxyBody>) -> Response<ProxyBody> {
    if call.returns_token { redact_token::redact(answer, &token.token).await } else { answer }
}

const WRAPPED_LOOKUP: &str = "the session's token is not looked up into a wrapped answer";
