//! From a request to its answer: guard, place, local token, call, and what is made of the answer.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, REFERER};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};

use super::admin_api::discovery;
use super::body::{Answered, Asked, Moving, Unheld};
use super::link_rewriter::Links;
use super::outcome::{Length as _, Outcome, Platform};
use super::path::{self, Place, place};
use super::response::{self, Shape, no_method, refuse};
use super::upstream_call::Call;
use super::{Gateway, Inner, token_making};
use crate::credential_watch::Availability;
use crate::gateway::local_token::Which;
use crate::http::guard::{Guard, GuardRejection};
use crate::http::server::{Caller, ListenerMetrics, Peer, ResponseCounter, ResponseFuture};

impl Gateway {
    /// The service of one listener, bound to `address` (`None` for a unix socket), for
    /// [`crate::http::server::Listener::serve`].
    pub fn service(
        &self,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
    ) -> impl Fn(Peer, Request<Incoming>) -> ResponseFuture<Answered> + Clone + Send + 'static {
        let door =
            Arc::new((self.guard(address, listener_metrics.clone()), ResponseCounter::new(listener_metrics), address));
        let inner = Arc::clone(&self.0);
        move |peer, request| inner.answer(&door, &peer, request)
    }
}

/// What is done for a request that is let in.
enum Way<'a> {
    /// It is told where the platform's services are.
    Discover,
    /// It is told something of the gateway itself.
    Tell(&'a str),
    /// It goes to the platform: whose it is, and what it calls.
    Forward(String, PathAndQuery),
}

impl Inner {
    /// Decides by the head alone. Only what is forwarded costs a future.
    fn answer(
        self: &Arc<Self>,
        door: &Arc<(Guard, ResponseCounter, Option<SocketAddr>)>,
        peer: &Peer,
        mut request: Request<Incoming>,
    ) -> ResponseFuture<Answered> {
        drop_own_referer(request.headers_mut());
        let (guard, answers, _) = &**door;
        let now = |answer: Response<Answered>| {
            answers.count(answer.status());
            ResponseFuture::ready(answer)
        };
        let (client, target) = match self.way(guard, peer, &request) {
            Ok(Way::Forward(client, target)) => (client, target),
            Ok(Way::Discover) => return now(discovery(request.method())),
            Ok(Way::Tell(name)) => return now(self.own(name, &request, here(request.headers()).as_deref())),
            Err(refusal) => return now(*refusal),
        };
        let (parts, body) = request.into_parts();
        let (here, merges) = (here(&parts.headers), self.merges(&parts.method, &target, &parts.headers));
        let call = Call::new(Caller::new(*peer, door.2), parts.method, target, parts.headers);
        let (inner, door) = (Arc::clone(self), Arc::clone(door));
        ResponseFuture::waiting(async move {
            let answer = inner.forward(&client, &call, here.as_deref(), merges, body).await;
            door.1.count(answer.status());
            answer
        })
    }

    /// What is done for a request.
    ///
    /// # Errors
    /// It is not let in, or not served: what its caller is told.
    fn way<'a>(
        &self,
        guard: &Guard,
        peer: &Peer,
        request: &'a Request<Incoming>,
    ) -> Result<Way<'a>, Box<Response<Answered>>> {
        let refused = |status, why: &str| Err(Box::new(refuse(status, why)));
        if let Err(GuardRejection { status, message, .. }) = guard.admit(peer, request) {
            return refused(status, &message);
        }
        let place = match place(request.uri().path()) {
            Place::Discovery => return Ok(Way::Discover),
            Place::Ambiguous(why) => return refused(StatusCode::BAD_REQUEST, why),
            other => other,
        };
        let Some(which) = self.presented(request.headers()) else {
            return refused(StatusCode::UNAUTHORIZED, LOCAL_TOKEN);
        };
        let client = self.parts.record.note(request.headers(), which, self.parts.clock.now().wall);
        if place == Place::Api
            && let Err(refusal) = token_making::check(request.method(), request.uri().path(), &self.options.exempt)
        {
            return Err(Box::new(response::refused(&[refusal])));
        }
        match place {
            Place::State if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                Err(Box::new(no_method("states are read at this path", "GET, HEAD")))
            }
            Place::Api if !SERVED.contains(request.method()) => {
                let served = "GET, HEAD, POST, PUT, PATCH, DELETE";
                Err(Box::new(no_method("the platform's API has no such method", served)))
            }
            Place::Api | Place::State => match request.uri().path_and_query() {
                Some(target) => Ok(Way::Forward(client, target.clone())),
                None => refused(StatusCode::BAD_REQUEST, "the request names no path"),
            },
            Place::Own(name) => Ok(Way::Tell(name)),
            _ => refused(
                StatusCode::NOT_FOUND,
                "the gateway serves /api/v2/, /api/registry/, /api/meta/ip-ranges and the states of /api/state-versions/ of \
                 the platform, and /v1/platform/",
            ),
        }
    }

    /// Which local token a caller presents, if it is one.
    fn presented(&self, headers: &HeaderMap) -> Option<Which> {
        let value = headers.get(AUTHORIZATION)?.as_bytes();
        let (scheme, token) = value.split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return None;
        }
        let now = self.parts.clock.now().wall;
        self.parts.local.with(|reading| match &reading.availability {
            Availability::Available(accepted) => accepted.which(token.trim_ascii(), now),
            Availability::Unavailable { .. } => None,
        })
    }

    async fn forward(
        &self,
        client: &str,
        call: &Call,
        here: Option<&str>,
        merges: bool,
        body: Incoming,
    ) -> Response<Answered> {
        let body = match Asked::take(body, &self.buffers).await {
            Ok(body) => body,
            Err(Unheld::Late) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            Err(Unheld::Broken) => return refuse(StatusCode::BAD_REQUEST, "the body did not arrive whole"),
        };
        let judged = match self.judge(call, &body, client) {
            Ok(judged) => judged,
            Err(refusals) => return response::refused(&refusals),
        };
        // What is rare is in boxes: each call would carry the room for it.
        let outcome = match &judged.deprecated {
            None if merges => Box::pin(self.merged(call, here)).await,
            None => self.sent(call, body).await,
            // Of the lists that are merged none has a replacement.
            Some(deprecated) if merges => {
                let merged = Box::pin(self.merged(call, here)).await;
                self.told(call, deprecated, None, client, merged)
            }
            Some(deprecated) => Box::pin(self.replaced(call, body, deprecated, client)).await,
        };
        let mut answer = match outcome {
            Ok(Outcome { other, answer }) => {
                let call = other.as_ref().unwrap_or(call);
                tracing::debug!(
                    event = "gateway.forwarded",
                    client,
                    method = call.method.as_str(),
                    status = answer.status().as_u16(),
                    "a call was forwarded"
                );
                self.pass_on(call, here, answer).await
            }
            Err(answer) => *answer,
        };
        if !judged.headers.is_empty() {
            answer.headers_mut().extend(judged.headers);
        }
        answer
    }

    /// Makes the platform's answer fit for a caller of the gateway.
    async fn pass_on(&self, call: &Call, here: Option<&str>, answer: Response<Platform>) -> Response<Answered> {
        let is_file = path::is_file(call.target.path());
        if call.method != Method::HEAD
            && !is_file
            && let Some(refused) = self.refuse_encoded(&answer)
        {
            return *refused;
        }
        let (mut parts, body) = answer.into_parts();
        response::fit(parts.status, &mut parts.headers, || self.asked(call), self.parts.clock.now().wall);
        let shape = if is_file { Shape::Other } else { response::shape(parts.status, &parts.headers, body.length()) };
        let moves = here.filter(|_| !matches!(shape, Shape::Other | Shape::Encoded) && call.method != Method::HEAD);
        let body = match (body, moves) {
            (Platform::Streamed(body), None) => Answered::Streamed(body),
            (Platform::Whole(body), None) => Answered::Whole(Full::new(body)),
            (Platform::Whole(body), Some(here)) => {
                let (mut links, mut moved) = (Links::new(&self.links, here), Vec::new());
                links.pass(&body, &mut moved);
                links.end(&mut moved);
                response::set_length(&mut parts.headers, Some(moved.len()));
                Answered::Whole(Full::new(moved.into()))
            }
            (Platform::Streamed(mut body), Some(here)) => {
                let mut links = Links::new(&self.links, here);
                if shape == Shape::Document {
                    response::set_length(&mut parts.headers, None);
                    Answered::Moved(Box::new(Moving::new(body, links)))
                } else {
                    let mut moved = Vec::new();
                    while let Some(frame) = body.frame().await {
                        match frame.map(Frame::into_data) {
                            Ok(Ok(piece)) => links.pass(&piece, &mut moved),
                            // What has a length has no trailers.
                            Ok(Err(_)) => {}
                            Err(_) => return refuse(StatusCode::BAD_GATEWAY, "the platform's answer broke off"),
                        }
                    }
                    links.end(&mut moved);
                    response::set_length(&mut parts.headers, Some(moved.len()));
                    Answered::Whole(Full::new(Bytes::from(moved)))
                }
            }
        };
        Response::from_parts(parts, body)
    }
}

/// The gateway's origin as this caller sees it; its `Host` was checked by the guard and is a name of this listener.
fn here(headers: &HeaderMap) -> Option<String> {
    headers.get(HOST).and_then(|host| host.to_str().ok()).map(|host| ["http://", host].concat())
}

/// Takes off a `Referer` of the gateway's own: a client that follows a redirect sends it (Go's net/http does). Any other comes from a
/// web page, which the guard refuses.
fn drop_own_referer(headers: &mut HeaderMap) {
    let mut all = headers.get_all(REFERER).iter();
    let (Some(referer), None) = (all.next(), all.next()) else { return };
    let own = here(headers).is_some_and(|here| {
        let rest = referer.as_bytes().strip_prefix(here.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    });
    if own {
        headers.remove(REFERER);
    }
}

/// The methods that the platform's API has.
const SERVED: [Method; 6] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

const LOCAL_TOKEN: &str = "the gateway's local token is missing or is another: bring it in Authorization: Bearer; \
`keyward gateway tokens` says where it is kept. The platform's own token is not taken here";
