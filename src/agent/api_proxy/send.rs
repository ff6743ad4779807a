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
use super::answer::{self, Answered, refuse, wait};
use super::listener_metrics::Door;
use super::redact_token;
use super::request_headers::WRAP_TTL;
use super::screen::Screened;
use super::server_dialect::Call;
use super::session_token::{Absent, Worn};
use super::token_recovery::{Fresh, Refusal};
use crate::agent::token::{Generation, Token};
use crate::error_chain::format_chain;
use crate::http::reverse_proxy::{
    ForwardError, ReplayBuffer, RequestBody, RequestHead, TeeBody, is_direct, remove_all,
};

/// A request that is ready to be sent.
pub(super) struct Ready {
    call: Call,
    head: RequestHead,
    body: RequestBody,
    /// What there is of its body for another time.
    copy: Copy,
    /// The session's token, where it is put on.
    worn: Option<Worn>,
    limit: Duration,
}

impl Inner {
    /// The session's token, if it is put on and there is one now.
    pub(super) fn worn_now(&self, call: Call) -> Result<Option<Worn>, Absent> {
        if call.with_session { self.credential.current().map(Some) } else { Ok(None) }
    }

    /// Makes a request ready to be sent. From here on its parts are not needed: held, they would have its caller's connection
    /// read into another place.
    ///
    /// # Errors
    /// It is not sent: what its caller is told.
    pub(super) fn ready(
        &self,
        call: Call,
        parts: &request::Parts,
        body: Asked,
        worn: Option<Worn>,
    ) -> Result<Ready, Box<Response<Answered>>> {
        if call.shows_token && parts.headers.contains_key(WRAP_TTL) {
            return Err(Box::new(refuse(StatusCode::FORBIDDEN, WRAPPED_LOOKUP)));
        }
        let limit = if self.wire.waits(parts.uri.query()) { LONGEST_WAIT } else { self.options.answer_timeout };
        let (body, copy) = if worn.is_some() { self.copied(body) } else { (body.once(), Copy::None) };
        match self.wire.head(parts, call, worn.as_ref(), &body) {
            Some(head) => Ok(Ready { call, head, body, copy, worn, limit }),
            None => Err(Box::new(refuse(StatusCode::BAD_REQUEST, "the request names no path"))),
        }
    }

    /// Passes a request on with its body, and gives the answer, and the login whose token it was got with.
    pub(super) async fn pass(
        &self,
        door: &Door,
        call: Call,
        parts: request::Parts,
        body: Asked,
    ) -> (Response<Answered>, Option<Generation>) {
        let worn = if call.with_session {
            match self.present().await {
                Ok(worn) => Some(worn),
                Err(absent) => return (answer::absent(&absent), None),
            }
        } else {
            None
        };
        let ready = self.ready(call, &parts, body, worn);
        drop(parts);
        match ready {
            Ok(ready) => self.passed(door, ready).await,
            Err(answer) => (*answer, None),
        }
    }

    /// Passes a request on that is ready.
    pub(super) async fn passed(&self, door: &Door, ready: Ready) -> (Response<Answered>, Option<Generation>) {
        let Ready { call, mut head, body, copy, worn, limit } = ready;
        let searched = |worn: &Worn| (!call.shows_token).then(|| Arc::clone(&worn.token));
        let token = worn.as_ref().and_then(searched);
        let first = match self.send(door, call, &head, body, limit, token.as_ref()).await {
            Ok(answer) => answer,
            Err(answer) => return (*answer, None),
        };
        let Some(worn) = worn else { return (first.map(Either::Left), None) };
        let generation = Some(worn.generation());
        if first.status() != StatusCode::FORBIDDEN {
            return (shown(call, &worn, first.map(Either::Left)).await, generation);
        }
        // Rare: in a box, so that other calls take no room for it.
        Box::pin(async move {
            let refusal = Refusal::read(first).await;
            if !copy.is_there() {
                // Its caller is told at once, and the session's keeper looks all the same.
                if self.credential.current().is_ok_and(|current| current.generation() == worn.generation()) {
                    self.ring(refusal.says_dead);
                }
                return (refusal.answer, generation);
            }
            let fresh = match self.fresher(&worn, refusal.says_dead).await {
                Fresh::Same => return (refusal.answer, generation),
                Fresh::Absent(absent) => return (answer::absent(&absent), None),
                Fresh::Token(fresh) => fresh,
            };
            let Some(body) = copy.again() else { return (refusal.answer, generation) };
            drop(refusal);
            door.replays.inc();
            self.wire.wear(&mut head, &fresh);
            let token = searched(&fresh);
            match self.send(door, call, &head, body, limit, token.as_ref()).await {
                Ok(answer) => (shown(call, &fresh, answer.map(Either::Left)).await, Some(fresh.generation())),
                Err(answer) => (*answer, None),
            }
        })
        .await
    }

    fn copied(&self, body: Asked) -> (RequestBody, Copy) {
        let body = match body {
            Asked::Held(bytes) => return (RequestBody::Buffered(Full::new(bytes.clone())), Copy::Held(bytes)),
            Asked::Begun(bytes, rest) => return (RequestBody::Prefixed(bytes, rest), Copy::None),
            Asked::Coming(body) => body,
        };
        if body.is_end_stream() {
            return (RequestBody::empty(), Copy::Held(Bytes::new()));
        }
        if body.size_hint().lower() > COPIED as u64 {
            return (RequestBody::Streamed(body), Copy::None);
        }
        let (body, copied) = TeeBody::new(body, COPIED, &self.buffers);
        (RequestBody::Teed(body), Copy::Of(copied))
    }

    /// Sends a request and gives the server's answer, or what the caller is told in its place. An answer that repeats `token`
    /// is not passed on.
    async fn send(
        &self,
        door: &Door,
        call: Call,
        head: &RequestHead,
        body: RequestBody,
        limit: Duration,
        token: Option<&Arc<Token>>,
    ) -> Result<Response<Screened>, Box<Response<Answered>>> {
        let started = Instant::now();
        match self.forwarder.send(call.caller, head, body, limit).await {
            Ok(mut answer) => {
                door.spent.observe(started.elapsed().as_secs_f64());
                if self.unresponsive.load(Ordering::Relaxed) {
                    self.unresponsive.store(false, Ordering::Relaxed);
                }
                if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(event = "proxy.upstream.back", server = self.wire.name, "the server answers again");
                }
                if answer::leads_away(answer.status()) {
                    let why = format!(
                        "{} leads elsewhere, where a client would take its token; give the address of the server that \
                         answers",
                        self.wire.server()
                    );
                    return Err(Box::new(wait(StatusCode::BAD_GATEWAY, &why, SOON)));
                }
                remove_all(answer.headers_mut(), is_direct);
                match token {
                    None => Ok(answer.map(Screened::unscreened)),
                    Some(token) => self.screen.screened(answer, token).map_err(|leak| {
                        let why = format!("{}: {leak}", self.wire.server());
                        Box::new(refuse(StatusCode::BAD_GATEWAY, &why))
                    }),
                }
            }
            Err(error) => Err(Box::new(self.failed(&error))),
        }
    }

    fn failed(&self, error: &ForwardError) -> Response<Answered> {
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
                server = self.wire.name,
                cause,
                "the server does not answer; callers are told so"
            );
        }
        wait(error.status(), &format!("{} does not answer: {cause}", self.wire.server()), SOON)
    }
}

/// A request's body.
#[derive(Debug)]
pub(super) enum Asked {
    /// As it comes from the caller.
    Coming(Incoming),
    /// It is here as a whole.
    Held(Bytes),
    /// The part that was read, and the rest as it comes.
    Begun(Vec<Bytes>, Incoming),
}

impl Asked {
    fn once(self) -> RequestBody {
        match self {
            Self::Coming(body) => RequestBody::Streamed(body),
            Self::Held(bytes) => RequestBody::Buffered(Full::new(bytes)),
            Self::Begun(bytes, rest) => RequestBody::Prefixed(bytes, rest),
        }
    }
}

/// What there is of a body to be sent once more.
enum Copy {
    /// All of it, perhaps nothing.
    Held(Bytes),
    /// It is not kept.
    None,
    Of(ReplayBuffer),
}

impl Copy {
    fn is_there(&self) -> bool {
        match self {
            Self::Held(_) => true,
            Self::None => false,
            Self::Of(copied) => copied.is_whole(),
        }
    }

    fn again(self) -> Option<RequestBody> {
        match self {
            Self::Held(bytes) => Some(RequestBody::Buffered(Full::new(bytes))),
            Self::None => None,
            Self::Of(copied) => copied.into_whole().map(|bytes| RequestBody::Buffered(Full::new(bytes))),
        }
    }
}

/// The largest body that is kept to be sent once more, in bytes.
const COPIED: usize = 1024 * 1024;

/// The longest that a server may hold a blocking query back, and what it may add.
const LONGEST_WAIT: Duration = Duration::from_mins(11);

/// When to ask again where the server does not answer.
const SOON: Duration = Duration::from_secs(2);

async fn shown(call: Call, worn: &Worn, answer: Response<Answered>) -> Response<Answered> {
    if call.shows_token { redact_token::taken_out(answer, &worn.token).await } else { answer }
}

const WRAPPED_LOOKUP: &str = "the session's token is not looked up into a wrapped answer";
