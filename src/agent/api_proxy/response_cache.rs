//! Requests whose answers are kept: given again while they are good, asked for once by all who ask at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, TRAILER};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, request, response};
use http_body_util::{BodyExt as _, Collected, Either, Full};
use hyper::body::{Body as _, Incoming};

use super::Inner;
use super::answer::{Answered, broken_off};
use super::listener_metrics::Door;
use super::path::ApiPath;
use super::request_body;
use super::request_headers::Brought;
use super::rules::{Operation, Rule};
use super::send::Asked;
use super::server_dialect::Call;
use crate::agent::secrets::Persist;
use crate::agent::secrets::cache::{Cache, Found, Joined, Kept, Key, Kind, Landed, Lead, Whole, Whose, told};
use crate::agent::server_client::is_outage;
use crate::http::reverse_proxy::BufferedBody;

/// Which answers are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// How many, and for how long.
    pub kept: crate::agent::secrets::cache::Options,
    /// Paths of values that stay until someone changes them.
    pub values: Vec<Rule>,
    /// Paths where credentials and tokens are issued for a time.
    pub leases: Vec<Rule>,
    /// Where they are kept over a restart, if they are.
    pub persist: Option<Persist>,
}

/// A listener's cache.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) cache: Cache,
    pub(super) options: CacheOptions,
}

impl Keeping {
    /// What a path answers with, if that is kept.
    pub(super) fn kind(&self, operation: Operation, path: &ApiPath<'_>, brought: &Brought<'_>) -> Option<Kind> {
        if brought.alone || operation.is_head() || path.behind_namespaces().any(|end| end.starts_with("cubbyhole/")) {
            return None;
        }
        let about = |rules: &[Rule]| rules.iter().any(|rule| rule.is_about_path(operation, path));
        if operation.reads() && about(&self.options.values) {
            return Some(Kind::Plain);
        }
        (!operation.lists() && about(&self.options.leases)).then_some(Kind::Leased)
    }
}

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");

/// The largest body of a request that is looked at, in bytes.
pub(super) const ASKED: usize = 64 * 1024;

/// The largest answer that is kept, in bytes.
const ANSWERED: usize = 1024 * 1024;

/// Request to the server on behalf of the cache.
pub(super) struct Refresh {
    pub(super) call: Call,
    pub(super) kind: Kind,
    pub(super) key: Key,
}

impl Inner {
    /// What is there for a request that has no body and takes what there is. Nothing is copied and nothing is waited for.
    pub(super) fn at_hand(
        &self,
        door: &Door,
        call: Call,
        keeping: &Keeping,
        (path, brought): (&str, &Brought<'_>),
        request: &Request<Incoming>,
    ) -> Option<Response<Answered>> {
        if !request.body().is_end_stream() || brought.cache_control {
            return None;
        }
        let key = self.key(call, brought, (request.method(), path, request.uri().query()), b"");
        let found = keeping.cache.look(&key).filter(|found| keeping.cache.is_fresh(found))?;
        door.hits.inc();
        Some(given(&found, "HIT"))
    }

    /// Answers a request whose answer is kept.
    pub(super) async fn cached(
        self: &Arc<Self>,
        door: &Arc<Door>,
        call: Call,
        keeping: (&Arc<Keeping>, Kind),
        path: &str,
        mut parts: request::Parts,
        body: Incoming,
    ) -> Response<Answered> {
        let (keeping, kind) = keeping;
        let body = match request_body::read(body, ASKED).await {
            Ok(Asked::Held(body)) => body,
            Ok(longer) => return self.pass(door, call, parts, longer).await.0,
            Err(answer) => return *answer,
        };
        let brought = Brought::of(self.wire.kind, &parts.headers);
        let key = self.key(call, &brought, (&parts.method, path, parts.uri.query()), &body);
        let anew = parts.headers.remove(CACHE_CONTROL).is_some_and(|value| value.as_bytes() == b"no-cache");
        parts.headers.remove(ACCEPT_ENCODING);
        let (cache, refresh) = (&keeping.cache, Refresh { call, kind, key });
        loop {
            let found = if anew { None } else { cache.look(&refresh.key).filter(|found| cache.is_usable(found)) };
            if let Some(found) = found {
                if cache.is_fresh(&found) {
                    door.hits.inc();
                    return given(&found, "HIT");
                }
                if self.unresponsive.load(Ordering::Relaxed) {
                    self.probe(door, keeping, refresh, parts, body);
                    door.stale.inc();
                    return given(&found, "STALE");
                }
            }
            let lead = match cache.join(&refresh.key) {
                Joined::Lead(lead) => lead,
                Joined::Follow(flight) => match told(flight).await {
                    Some(Landed::Shared(whole)) => {
                        door.hits.inc();
                        return shared(&whole);
                    }
                    Some(Landed::Unshared) => return self.pass(door, call, parts, Asked::Held(body)).await.0,
                    Some(Landed::Not) | None => continue,
                },
            };
            door.misses.inc();
            let answer = self.refresh(door, keeping, refresh, lead, parts, body).await;
            if answer.headers().get(X_CACHE).is_some_and(|outcome| outcome == "STALE") {
                door.stale.inc();
            }
            return answer;
        }
    }

    /// Asks the server for all who want the same, and keeps its answer.
    pub(super) async fn refresh(
        &self,
        door: &Door,
        keeping: &Keeping,
        refresh: Refresh,
        lead: Lead<Arc<Whole>>,
        parts: request::Parts,
        body: Bytes,
    ) -> Response<Answered> {
        let (cache, Refresh { call, kind, key }) = (&keeping.cache, refresh);
        let (answer, generation) = self.pass(door, call, parts, Asked::Held(body)).await;
        let mut whole = match self.buffered(answer).await {
            Ok(whole) => whole,
            Err(answer) => {
                lead.tell(Landed::Unshared);
                return answer;
            }
        };
        whole.headers.insert(X_CACHE, HeaderValue::from_static("MISS"));
        // What a token has got that is replaced by now ends with it.
        let current =
            !call.with_session || self.credential.current().is_ok_and(|worn| Some(worn.generation()) == generation);
        if is_outage(whole.status.as_u16()) {
            if let Some(found) = cache.look(&key).filter(|found| cache.is_usable(found)) {
                whole = self::whole(given(&found, "STALE").into_parts().0, found.body());
            }
        } else if lead.is_outdated() {
            // It may tell of what was before a write or a revocation: what others have got since then stays.
        } else if whole.status == StatusCode::OK
            && current
            && let Some(kept) = Kept::take(kind, &whole.body)
        {
            cache.put(key, kept, generation.filter(|_| call.with_session));
        } else {
            cache.forget_one(&key);
        }
        let whole = Arc::new(whole);
        lead.tell(Landed::Shared(Arc::clone(&whole)));
        shared(&whole)
    }

    /// The answer as a whole, however its length is told.
    ///
    /// # Errors
    /// It is longer than what is kept: the answer itself.
    async fn buffered(&self, answer: Response<Answered>) -> Result<Whole, Response<Answered>> {
        let (mut parts, mut body) = answer.into_parts();
        loop {
            match body {
                Either::Left(incoming) => match incoming.buffer(ANSWERED, self.options.answer_timeout).await {
                    BufferedBody::Complete(bytes) => return Ok(whole(parts, bytes)),
                    BufferedBody::TooLong(incoming) => return Err(Response::from_parts(parts, Either::Left(incoming))),
                    BufferedBody::Failed => (parts, body) = broken_off().into_parts(),
                },
                // One of the agent's own, which cannot fail.
                Either::Right(own) => {
                    let bytes = own.collect().await.map(Collected::to_bytes).unwrap_or_default();
                    return Ok(whole(parts, bytes));
                }
            }
        }
    }

    fn key(&self, call: Call, brought: &Brought<'_>, asked: (&Method, &str, Option<&str>), body: &[u8]) -> Key {
        let own = || brought.token(call.keyed).map_or(Whose::Nobody, Whose::of);
        let whose = if call.with_session { Whose::Session } else { own() };
        let (method, path, query) = asked;
        Key::new(whose, method, self.wire.namespace(brought, call.with_session), path, query, body)
    }
}

/// An answer that was kept.
fn given(found: &Found, how: &'static str) -> Response<Answered> {
    let body = found.body();
    let mut answer = Response::new(Either::Right(Full::new(body)));
    let headers = answer.headers_mut();
    // Room for one more, which a connection that is about to end is told.
    headers.reserve(5);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(AGE, HeaderValue::from(found.age.as_secs()));
    headers.insert(X_CACHE, HeaderValue::from_static(how));
    answer
}

fn shared(whole: &Whole) -> Response<Answered> {
    let mut answer = Response::new(Either::Right(Full::new(whole.body.clone())));
    *answer.status_mut() = whole.status;
    answer.headers_mut().clone_from(&whole.headers);
    answer
}

/// Puts the headers of an answer in order that is there as a whole.
fn whole(mut parts: response::Parts, body: Bytes) -> Whole {
    for name in [DATE, TRAILER] {
        parts.headers.remove(name);
    }
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Whole { status: parts.status, headers: parts.headers, body }
}

/// Whether a method changes something.
pub(super) fn writes(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}
