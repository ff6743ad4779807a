//! Requests whose answers are kept: given again while they are good, asked for once by all who ask at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, TRAILER};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, request, response};
use http_body_util::{BodyExt as _, Collected, Either, Full};
use hyper::body::{Body as _, Incoming};

use super::Inner;
use super::answer::{ProxyBody, truncated_response};
use super::listener_metrics::ProxyListener;
use super::path::ApiPath;
use super::request_body;
use super::request_headers::RequestHeaders;
use super::rules::{Operation, Rule};
use super::send::CallerBody;
use super::server_dialect::Call;
use crate::agent::secrets::PersistOptions;
use crate::agent::secrets::cache::{
    BufferedResponse, Cache, CacheEntry, CacheHit, CacheKey, EntryKind, FlightResult, JoinOutcome, Leader, TokenScope,
    told,
};
use crate::agent::server_client::is_outage;
use crate::http::reverse_proxy::BufferedBody;

/// Which answers are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// How many, and for how long.
    pub limits: crate::agent::secrets::cache::CacheLimits,
    /// Paths of values that stay until someone changes them.
    pub values: Vec<Rule>,
    /// Paths where credentials and tokens are issued for a time.
    pub leases: Vec<Rule>,
    /// Where they are kept over a restart, if they are.
    pub persist: Option<PersistOptions>,
}

/// A listener's cache.
#[derive(Debug)]
pub(super) struct CachePolicy {
    pub(super) cache: Cache,
    pub(super) options: CacheOptions,
}

impl CachePolicy {
    /// What a path answers with, if that is kept.
    pub(super) fn kind(
        &self,
        operation: Operation,
        path: &ApiPath<'_>,
        request_headers: &RequestHeaders<'_>,
    ) -> Option<EntryKind> {
        if request_headers.uncacheable
            || operation.is_head()
            || path.suffixes().any(|end| end.starts_with("cubbyhole/"))
        {
            return None;
        }
        let about = |rules: &[Rule]| rules.iter().any(|rule| rule.is_about_path(operation, path));
        if operation.reads() && about(&self.options.values) {
            return Some(EntryKind::Plain);
        }
        (!operation.lists() && about(&self.options.leases)).then_some(EntryKind::Leased)
    }
}

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");

/// The largest body of a request that is looked at, in bytes.
pub(super) const MAX_REQUEST_BODY: usize = 64 * 1024;

/// The largest answer that is kept, in bytes.
const MAX_RESPONSE_BODY: usize = 1024 * 1024;

/// Request to the server on behalf of the cache.
pub(super) struct CacheRefresh {
    pub(super) call: Call,
    pub(super) kind: EntryKind,
    pub(super) key: CacheKey,
}

impl Inner {
    /// What is there for a request that has no body and takes what there is. Nothing is copied and nothing is waited for.
    pub(super) fn lookup_cached(
        &self,
        listener: &ProxyListener,
        call: Call,
        policy: &CachePolicy,
        (path, request_headers): (&str, &RequestHeaders<'_>),
        request: &Request<Incoming>,
    ) -> Option<Response<ProxyBody>> {
        if !request.body().is_end_stream() || request_headers.cache_control {
            return None;
        }
        let key = self.key(call, request_headers, (request.method(), path, request.uri().query()), b"");
        let found = policy.cache.lookup(&key).filter(|found| policy.cache.is_fresh(found))?;
        listener.hits.inc();
        Some(given(&found, "HIT"))
    }

    /// Answers a request whose answer is kept.
    pub(super) async fn cached(
        self: &Arc<Self>,
        listener: &Arc<ProxyListener>,
        call: Call,
        policy: (&Arc<CachePolicy>, EntryKind),
        path: &str,
        mut parts: request::Parts,
        body: Incoming,
    ) -> Response<ProxyBody> {
        let (policy, kind) = policy;
        let body = match request_body::read(body, MAX_REQUEST_BODY).await {
            Ok(CallerBody::Buffered(body)) => body,
            Ok(longer) => return self.prepare_and_forward(listener, call, parts, longer).await.0,
            Err(answer) => return *answer,
        };
        let request_headers = RequestHeaders::parse(self.dialect.kind, &parts.headers);
        let key = self.key(call, &request_headers, (&parts.method, path, parts.uri.query()), &body);
        let anew = parts.headers.remove(CACHE_CONTROL).is_some_and(|value| value.as_bytes() == b"no-cache");
        parts.headers.remove(ACCEPT_ENCODING);
        let (cache, refresh) = (&policy.cache, CacheRefresh { call, kind, key });
        loop {
            let found = if anew { None } else { cache.lookup(&refresh.key).filter(|found| cache.is_usable(found)) };
            if let Some(found) = found {
                if cache.is_fresh(&found) {
                    listener.hits.inc();
                    return given(&found, "HIT");
                }
                if self.unresponsive.load(Ordering::Relaxed) {
                    self.probe(listener, policy, refresh, parts, body);
                    listener.stale.inc();
                    return given(&found, "STALE");
                }
            }
            let lead = match cache.join(&refresh.key) {
                JoinOutcome::Leader(lead) => lead,
                JoinOutcome::Follow(flight) => match told(flight).await {
                    Some(FlightResult::Shared(whole)) => {
                        listener.hits.inc();
                        return shared(&whole);
                    }
                    Some(FlightResult::Unshared) => {
                        return self.prepare_and_forward(listener, call, parts, CallerBody::Buffered(body)).await.0;
                    }
                    Some(FlightResult::Not) | None => continue,
                },
            };
            listener.misses.inc();
            let answer = self.refresh(listener, policy, refresh, lead, parts, body).await;
            if answer.headers().get(X_CACHE).is_some_and(|outcome| outcome == "STALE") {
                listener.stale.inc();
            }
            return answer;
        }
    }

    /// Asks the server for all who want the same, and keeps its answer.
    pub(super) async fn refresh(
        &self,
        listener: &ProxyListener,
        policy: &CachePolicy,
        refresh: CacheRefresh,
        lead: Leader<Arc<BufferedResponse>>,
        parts: request::Parts,
        body: Bytes,
    ) -> Response<ProxyBody> {
        let (cache, CacheRefresh { call, kind, key }) = (&policy.cache, refresh);
        let (answer, generation) = self.prepare_and_forward(listener, call, parts, CallerBody::Buffered(body)).await;
        let mut whole = match self.buffered(answer).await {
            Ok(whole) => whole,
            Err(answer) => {
                lead.tell(FlightResult::Unshared);
                return answer;
            }
        };
        whole.headers.insert(X_CACHE, HeaderValue::from_static("MISS"));
        // What a token has got that is replaced by now ends with it.
        let current = !call.with_session
            || self.session_token.current().is_ok_and(|token| Some(token.generation()) == generation);
        if is_outage(whole.status.as_u16()) {
            if let Some(found) = cache.lookup(&key).filter(|found| cache.is_usable(found)) {
                whole = self::whole(given(&found, "STALE").into_parts().0, found.body());
            }
        } else if lead.is_outdated() {
            // It may tell of what was before a write or a revocation: what others have got since then stays.
        } else if whole.status == StatusCode::OK
            && current
            && let Some(kept) = CacheEntry::take(kind, &whole.body)
        {
            cache.put(key, kept, generation.filter(|_| call.with_session));
        } else {
            cache.forget_one(&key);
        }
        let whole = Arc::new(whole);
        lead.tell(FlightResult::Shared(Arc::clone(&whole)));
        shared(&whole)
    }

    /// The answer as a whole, however its length is told.
    ///
    /// # Errors
    /// It is longer than what is kept: the answer itself.
    async fn buffered(&self, answer: Response<ProxyBody>) -> Result<BufferedResponse, Response<ProxyBody>> {
        let (mut parts, mut body) = answer.into_parts();
        loop {
            match body {
                Either::Left(incoming) => match incoming.buffer(MAX_RESPONSE_BODY, self.options.response_timeout).await
                {
                    BufferedBody::Complete(bytes) => return Ok(whole(parts, bytes)),
                    BufferedBody::TooLong(incoming) => return Err(Response::from_parts(parts, Either::Left(incoming))),
                    BufferedBody::Failed => (parts, body) = truncated_response().into_parts(),
                },
                // One of the agent's own, which cannot fail.
                Either::Right(own) => {
                    let bytes = own.collect().await.map(Collected::to_bytes).unwrap_or_default();
                    return Ok(whole(parts, bytes));
                }
            }
        }
    }

    fn key(
        &self,
        call: Call,
        request_headers: &RequestHeaders<'_>,
        asked: (&Method, &str, Option<&str>),
        body: &[u8],
    ) -> CacheKey {
        let own = || request_headers.token(call.keyed).map_or(TokenScope::Anonymous, TokenScope::of);
        let whose = if call.with_session { TokenScope::Session } else { own() };
        let (method, path, query) = asked;
        CacheKey::new(whose, method, self.dialect.namespace(request_headers, call.with_session), path, query, body)
    }
}

/// An answer that was kept.
fn given(found: &CacheHit, how: &'static str) -> Response<ProxyBody> {
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

fn shared(whole: &BufferedResponse) -> Response<ProxyBody> {
    let mut answer = Response::new(Either::Right(Full::new(whole.body.clone())));
    *answer.status_mut() = whole.status;
    answer.headers_mut().clone_from(&whole.headers);
    answer
}

/// Puts the headers of an answer in order that is there as a whole.
fn whole(mut parts: response::Parts, body: Bytes) -> BufferedResponse {
    for name in [DATE, TRAILER] {
        parts.headers.remove(name);
    }
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    BufferedResponse { status: parts.status, headers: parts.headers, body }
}

/// Whether a method changes something.
pub(super) fn writes(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}
