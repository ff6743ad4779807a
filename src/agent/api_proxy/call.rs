//! One call of the server: its token, its answer, and once more where the token was no longer good.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::ACCEPT_ENCODING;
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::answer::{self, Answered, refuse, wait};
use super::heal::{Fresh, Refusal};
use super::own_token;
use super::serve::Door;
use super::wire::WRAP_TTL;
use super::{Inner, credential::Worn};
use crate::http::forward::{Copied, Downstream, ForwardError, Head, Upstream};
use crate::words::chain;

/// How a request is passed on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// Whether the session's token is put on it.
    pub(super) with_session: bool,
    /// Whether the server's answer tells the token that it came with.
    pub(super) shows_token: bool,
}

impl Inner {
    pub(super) async fn pass(&self, door: &Door, call: Call, request: Request<Incoming>) -> Response<Answered> {
        let (mut parts, body) = request.into_parts();
        let Some(target) = self.wire.target(&parts.uri) else {
            return refuse(StatusCode::BAD_REQUEST, "the request names no path");
        };
        let worn = match call.with_session.then(|| self.credential.current()) {
            None => None,
            Some(Ok(worn)) => Some(worn),
            Some(Err(absent)) => return answer::absent(&absent),
        };
        if call.shows_token {
            if parts.headers.contains_key(WRAP_TTL) {
                return refuse(StatusCode::FORBIDDEN, "the session's token is not looked up into a wrapped answer");
            }
            parts.headers.remove(ACCEPT_ENCODING);
        }
        let query = parts.uri.query();
        let limit = if self.wire.waits(query) { LONGEST_WAIT } else { self.options.answer_timeout };
        self.wire.dress(&mut parts.headers, query, worn.as_ref(), door.keyed);
        parts.uri = target;
        let Some(worn) = worn else {
            let body = Upstream::Streamed(body);
            let head = Head::new(parts, &body);
            return self.send(door, &head, body, limit).await.map_or_else(|answer| *answer, finished);
        };
        let (body, copy) = self.copied(body);
        let mut head = Head::new(parts, &body);
        let first = match self.send(door, &head, body, limit).await {
            Ok(answer) => answer,
            Err(answer) => return *answer,
        };
        if first.status() != StatusCode::FORBIDDEN {
            return shown(call, &worn, first.map(Either::Left)).await;
        }
        let refusal = Refusal::read(first).await;
        let fresh = match self.fresher(&worn, refusal.says_dead).await {
            Fresh::Same => return refusal.answer,
            Fresh::Absent(absent) => return answer::absent(&absent),
            Fresh::Token(fresh) => fresh,
        };
        let Some(body) = copy.again() else { return refusal.answer };
        drop(refusal);
        door.replays.inc();
        self.wire.wear(head.headers_mut(), &fresh);
        match self.send(door, &head, body, limit).await {
            Ok(answer) => shown(call, &fresh, answer.map(Either::Left)).await,
            Err(answer) => *answer,
        }
    }

    fn copied(&self, body: Incoming) -> (Upstream, Copy) {
        if body.is_end_stream() {
            return (Upstream::empty(), Copy::Nothing);
        }
        if body.size_hint().lower() > COPIED as u64 {
            return (Upstream::Streamed(body), Copy::None);
        }
        let (body, copied) = self.room.keep(body, COPIED);
        (Upstream::Copied(body), Copy::Of(copied))
    }

    /// Sends a request and gives the server's answer, or what the caller is told in its place.
    async fn send(
        &self,
        door: &Door,
        head: &Head,
        body: Upstream,
        limit: Duration,
    ) -> Result<Response<Downstream>, Box<Response<Answered>>> {
        let started = Instant::now();
        match self.forwarder.send_head(head, body, limit).await {
            Ok(mut answer) => {
                door.spent.observe(started.elapsed().as_secs_f64());
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
                answer::fit(answer.headers_mut());
                Ok(answer)
            }
            Err(error) => Err(Box::new(self.failed(&error))),
        }
    }

    fn failed(&self, error: &ForwardError) -> Response<Answered> {
        let cause = chain(error);
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

/// What there is of a body to be sent once more.
enum Copy {
    /// It has none, which can be sent again.
    Nothing,
    /// It is not kept.
    None,
    Of(Copied),
}

impl Copy {
    fn again(self) -> Option<Upstream> {
        match self {
            Self::Nothing => Some(Upstream::empty()),
            Self::None => None,
            Self::Of(copied) => copied.whole().map(|bytes| Upstream::Whole(Full::new(bytes))),
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
    if call.shows_token { own_token::taken_out(answer, &worn.token).await } else { answer }
}

fn finished(answer: Response<Downstream>) -> Response<Answered> {
    answer.map(Either::Left)
}
