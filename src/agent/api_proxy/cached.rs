//! Requests whose answers are kept: given again while they are good, asked for once by all who ask at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, TRAILER};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, request};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body as _, Incoming};

use super::Inner;
use super::answer::{Answered, broken_off, refuse};
use super::brought::Brought;
use super::call::Asked;
use super::door::Door;
use super::path::ApiPath;
use super::rules::{Operation, Rule};
use super::wire::Call;
use crate::agent::secrets::Persist;
use crate::agent::secrets::cache::{Cache, Forget, Found, Joined, Kept, Key, Kind, Landed, Whole, Whose, told};
use crate::agent::upstream::is_outage;

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
        if brought.alone || path.trimmed().starts_with("cubbyhole/") {
            return None;
        }
        let about = |rules: &[Rule]| rules.iter().any(|rule| rule.is_about_path(operation, path));
        if operation.reads() && about(&self.options.values) {
            return Some(Kind::Plain);
        }
        (!operation.lists() && about(&self.options.leases)).then_some(Kind::Leased)
    }

    /// Something was written: what was read there is no longer so. Other paths of a versioned store mean the same value.
    pub(super) fn written(&self, path: &ApiPath<'_>, namespace: &str) {
        let path = path.trimmed();
        self.cache.forget(&Forget::Path(namespace, path));
        for (at, _) in path.match_indices('/') {
            let (before, rest) = path.split_at(at + 1);
            let (word, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if VERSIONED.contains(&word) {
                for other in ["data", "metadata"] {
                    self.cache.forget(&Forget::Path(namespace, &format!("{before}{other}{below}")));
                }
            }
        }
        // A lease that was given back by its id in the path.
        for start in ["sys/leases/revoke/", "sys/leases/revoke-prefix/", "sys/revoke/", "sys/revoke-prefix/"] {
            if let Some(id) = path.strip_prefix(start) {
                self.cache.forget(&Forget::Lease(id));
            }
        }
    }

    /// Whether a body names a lease or a token that is to end.
    pub(super) fn is_revocation(path: &ApiPath<'_>) -> bool {
        ["sys/leases/revoke", "sys/revoke", "auth/token/revoke", "auth/token/revoke-orphan"]
            .iter()
            .any(|revocation| path.names(revocation))
    }

    /// What a body named has ended.
    fn revoked(&self, body: &[u8]) {
        #[derive(serde::Deserialize)]
        struct Named<'a> {
            #[serde(borrow, default)]
            lease_id: Option<&'a str>,
            #[serde(borrow, default)]
            token: Option<&'a str>,
        }
        let Ok(named) = serde_json::from_slice::<Named<'_>>(body) else { return };
        if let Some(id) = named.lease_id {
            self.cache.forget(&Forget::Lease(id));
        }
        if let Some(token) = named.token {
            self.cache.forget(&Forget::Token(token.as_bytes()));
        }
    }
}

/// The words of a versioned key-value store that stand before the same path.
const VERSIONED: [&str; 5] = ["data", "delete", "destroy", "metadata", "undelete"];

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");

/// The largest body of a request that is looked at, in bytes.
const ASKED: u64 = 64 * 1024;

/// The largest answer that is kept, in bytes.
const ANSWERED: u64 = 1024 * 1024;

const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

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
        &self,
        door: &Door,
        call: Call,
        keeping: (&Keeping, Kind),
        path: &str,
        mut parts: request::Parts,
        body: Incoming,
    ) -> Response<Answered> {
        let (keeping, kind) = keeping;
        if body.size_hint().upper().is_none_or(|bytes| bytes > ASKED) {
            return self.pass(door, call, parts, Asked::Coming(body)).await.0;
        }
        let body = match arrived(body).await {
            Ok(body) => body,
            Err(answer) => return *answer,
        };
        let brought = Brought::of(self.wire.kind, &parts.headers);
        let key = self.key(call, &brought, (&parts.method, path, parts.uri.query()), &body);
        let anew = parts.headers.remove(CACHE_CONTROL).is_some_and(|value| value.as_bytes() == b"no-cache");
        parts.headers.remove(ACCEPT_ENCODING);
        let cache = &keeping.cache;
        loop {
            if !anew && let Some(found) = cache.look(&key).filter(|found| cache.is_fresh(found)) {
                door.hits.inc();
                return given(&found, "HIT");
            }
            let lead = match cache.join(&key) {
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
            let (answer, generation) = self.pass(door, call, parts, Asked::Held(body)).await;
            if is_outage(answer.status().as_u16())
                && let Some(found) = cache.look(&key).filter(|found| cache.is_usable(found))
            {
                door.stale.inc();
                let whole = whole_of(given(&found, "STALE")).await;
                return match whole {
                    Ok(whole) => {
                        let whole = Arc::new(whole);
                        lead.tell(Landed::Shared(Arc::clone(&whole)));
                        shared(&whole)
                    }
                    Err(answer) => answer,
                };
            }
            if answer.body().size_hint().upper().is_none_or(|bytes| bytes > ANSWERED) {
                lead.tell(Landed::Unshared);
                return answer;
            }
            let mut whole = match whole_of(answer).await {
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
            if whole.status == StatusCode::OK
                && current
                && let Some(kept) = Kept::take(kind, &whole.body)
            {
                cache.put(key, kept, generation.filter(|_| call.with_session));
            } else if !is_outage(whole.status.as_u16()) {
                cache.forget_one(&key);
            }
            let whole = Arc::new(whole);
            lead.tell(Landed::Shared(Arc::clone(&whole)));
            return shared(&whole);
        }
    }

    /// Passes a request on that ends a lease or a token.
    pub(super) async fn revocation(
        &self,
        door: &Door,
        call: Call,
        keeping: &Keeping,
        parts: request::Parts,
        body: Incoming,
    ) -> Response<Answered> {
        if body.size_hint().upper().is_none_or(|bytes| bytes > ASKED) {
            return self.pass(door, call, parts, Asked::Coming(body)).await.0;
        }
        let body = match arrived(body).await {
            Ok(body) => body,
            Err(answer) => return *answer,
        };
        let answer = self.pass(door, call, parts, Asked::Held(body.clone())).await.0;
        keeping.revoked(&body);
        answer
    }

    fn key(&self, call: Call, brought: &Brought<'_>, asked: (&Method, &str, Option<&str>), body: &[u8]) -> Key {
        let own = || brought.token(call.keyed).map_or(Whose::Nobody, |token| Whose::of(token.as_bytes()));
        let whose = if call.with_session { Whose::Session } else { own() };
        let (method, path, query) = asked;
        Key::new(whose, method, self.wire.namespace(brought, call.with_session), path, query, body)
    }
}

async fn arrived(body: Incoming) -> Result<Bytes, Box<Response<Answered>>> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match tokio::time::timeout(ARRIVES_WITHIN, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(Box::new(refuse(StatusCode::BAD_REQUEST, "the body did not arrive whole"))),
        Err(_) => Err(Box::new(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))),
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

/// Reads an answer to its end.
async fn whole_of(answer: Response<Answered>) -> Result<Whole, Response<Answered>> {
    let (mut parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return Err(broken_off()) };
    let body: Bytes = body.to_bytes();
    for name in [DATE, TRAILER] {
        parts.headers.remove(name);
    }
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Ok(Whole { status: parts.status, headers: parts.headers, body })
}

/// Whether a method changes something.
pub(super) fn writes(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}
