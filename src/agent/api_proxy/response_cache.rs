//! Serves cacheable requests: from the cache while an entry is good, by one request to the server for all that arrive at once.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, TRAILER};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, request, response};
use http_body_util::{BodyExt as _, Collected, Either, Full};
use hyper::body::Body as _;
use keyward_http::reverse_proxy::{BufferedBody, remove_all};
use keyward_http::server::IncomingBody;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::cache::{
    BufferedResponse, Cache, CacheEntry, CacheHit, CacheKey, EntryKind, FlightResult, JoinOutcome, Leader, TokenScope,
    wait_for_result,
};
use super::listener::ProxyListener;
use super::options::CacheOptions;
use super::path::ApiPath;
use super::request_body::CallerBody;
use super::request_headers::{RequestHeaders, is_shared};
use super::response::{NoFreeConnection, ProxyBody, truncated_response};
use super::revocation::{is_renewal, revocation_in_path};
use super::rules::{Operation, Rule};
use super::send::RequestSender;
use super::server_dialect::ForwardOptions;
use crate::server_client::is_outage;

/// One listener's response cache.
#[derive(Debug)]
pub(super) struct ResponseCache {
    pub(super) cache: Cache,
    pub(super) options: CacheOptions,
    pub(super) sender: Arc<RequestSender>,
    /// Queue of probes, which [`super::ApiProxy::run_cache`] runs.
    pub(super) probes: mpsc::Sender<Probe>,
    /// Bounds the probes to one at a time.
    pub(super) probe_permit: Arc<Semaphore>,
}

/// A request to the server on behalf of the cache.
struct CacheRefresh {
    options: ForwardOptions,
    kind: EntryKind,
    key: CacheKey,
}

impl CacheOptions {
    /// Returns the kind of entry that a request's response makes by its path and headers; `None` where it is not cached.
    fn entry_kind(&self, operation: Operation, path: &ApiPath<'_>, headers: &RequestHeaders<'_>) -> Option<EntryKind> {
        // Each token has a cubbyhole of its own, and a login replaces the session's token.
        if headers.uncacheable || path.suffixes().any(|suffix| suffix.starts_with("cubbyhole/")) {
            return None;
        }
        let matches = |rules: &[Rule], operation| rules.iter().any(|rule| rule.matches_path(operation, path));
        if matches(&self.values, Operation::GET) {
            // Any other operation on a value changes it, also where its path matches `leases` too.
            return operation.is_read().then_some(EntryKind::Plain);
        }
        let issues_lease = operation.may_issue_lease() && matches(&self.leases, operation);
        let changes_lease = || !operation.is_read() && (revocation_in_path(path).is_some() || is_renewal(path));
        (issues_lease && !changes_lease()).then_some(EntryKind::Leased)
    }
}

impl ResponseCache {
    /// Returns the kind of entry that a request's response makes; `None` where it is not cached.
    pub(super) fn entry_kind(
        &self,
        options: &ForwardOptions,
        operation: Operation,
        path: &ApiPath<'_>,
        headers: &RequestHeaders<'_>,
    ) -> Option<EntryKind> {
        let kind = self.options.entry_kind(operation, path, headers)?;
        if kind == EntryKind::Plain {
            return Some(kind);
        }
        // A lease ends with its token. Of a caller's own token, the cache learns that only if it renews the token.
        let scope = token_scope(options, headers);
        (!scope.is_callers() || self.cache.holds_token(scope)).then_some(kind)
    }

    /// Returns a fresh entry's response to a request without a body, without a future and without copying the entry.
    pub(super) fn lookup(
        &self,
        listener: &ProxyListener,
        options: &ForwardOptions,
        path: &str,
        headers: &RequestHeaders<'_>,
        request: &Request<IncomingBody>,
    ) -> Option<Response<ProxyBody>> {
        if !request.body().is_end_stream() || headers.has_cache_control {
            return None;
        }
        let key = self.key(options, headers, request.method(), path, request.uri().query(), b"");
        let hit = self.cache.lookup(&key).filter(|hit| self.cache.is_fresh(hit))?;
        listener.hits.inc();
        Some(response_to_hit(&hit, "HIT"))
    }

    /// Responds to a request from the cache, with the result of another request under way, or with the server's response.
    pub(super) async fn respond(
        self: &Arc<Self>,
        listener: &Arc<ProxyListener>,
        options: ForwardOptions,
        kind: EntryKind,
        path: &str,
        mut parts: request::Parts,
        body: IncomingBody,
    ) -> Response<ProxyBody> {
        let body = match CallerBody::read(body, MAX_REQUEST_BODY).await {
            Ok(CallerBody::Buffered(body)) => body,
            Ok(longer) => return self.sender.prepare_and_forward(listener, options, parts, longer).await.0,
            Err(response) => return *response,
        };
        let headers = RequestHeaders::parse(self.sender.dialect.kind, &parts.headers);
        let key = self.key(&options, &headers, &parts.method, path, parts.uri.query(), &body);
        let is_no_cache = parts.headers.remove(CACHE_CONTROL).is_some_and(|value| value.as_bytes() == b"no-cache");
        // All callers of the same request share the response, so no header of one of them may shape it.
        remove_all(&mut parts.headers, |name| !is_shared(self.sender.dialect.kind, name));
        let cache = &self.cache;
        let refresh = CacheRefresh { options: options.clone(), kind, key };
        if is_no_cache {
            // The response to a request that started earlier may be older than this one.
            cache.mark_outdated(&refresh.key);
        }
        loop {
            let hit = if is_no_cache { None } else { cache.lookup(&refresh.key).filter(|hit| cache.is_usable(hit)) };
            if let Some(hit) = hit {
                if cache.is_fresh(&hit) {
                    listener.hits.inc();
                    return response_to_hit(&hit, "HIT");
                }
                if self.sender.is_unresponsive() {
                    self.probe(listener, refresh, parts, body);
                    listener.stale.inc();
                    return response_to_hit(&hit, "STALE");
                }
            }
            let leader = match cache.join(&refresh.key) {
                JoinOutcome::Leader(leader) => leader,
                JoinOutcome::Follower(result) => match wait_for_result(result).await {
                    // A refusal for want of a connection is only for the callers that share the leader's.
                    Some(FlightResult::Shared(response))
                        if response.refused.is_none_or(|group| group == options.caller) =>
                    {
                        listener.hits.inc();
                        return response_from_buffer(&response);
                    }
                    Some(FlightResult::Unshared) => {
                        let body = CallerBody::Buffered(body);
                        return self.sender.prepare_and_forward(listener, options, parts, body).await.0;
                    }
                    Some(FlightResult::Shared(_) | FlightResult::Pending) | None => continue,
                },
            };
            listener.misses.inc();
            let response = self.refresh(listener, refresh, leader, parts, body).await;
            if response.headers().get(X_CACHE).is_some_and(|outcome| outcome == "STALE") {
                listener.stale.inc();
            }
            return response;
        }
    }

    /// Sends the request in the background, unless a probe is under way.
    fn probe(
        self: &Arc<Self>,
        listener: &Arc<ProxyListener>,
        refresh: CacheRefresh,
        parts: request::Parts,
        body: Bytes,
    ) {
        let Ok(permit) = Arc::clone(&self.probe_permit).try_acquire_owned() else { return };
        let JoinOutcome::Leader(leader) = self.cache.join(&refresh.key) else { return };
        let cache = Arc::clone(self);
        let listener = Arc::clone(listener);
        let probe = async move {
            cache.refresh(&listener, refresh, leader, parts, body).await;
            drop(permit);
        };
        // Sending only fails during shutdown; then no caller waits for the response.
        drop(self.probes.try_send(Box::pin(probe)));
    }

    /// Sends the request for all callers that wait for the same, caches the response and hands it to them.
    async fn refresh(
        &self,
        listener: &ProxyListener,
        refresh: CacheRefresh,
        leader: Leader<Arc<BufferedResponse>>,
        parts: request::Parts,
        body: Bytes,
    ) -> Response<ProxyBody> {
        let cache = &self.cache;
        let CacheRefresh { options, kind, key } = refresh;
        let body = CallerBody::Buffered(body);
        let tokens = Arc::clone(&options.tokens);
        let with_session = options.with_session;
        let caller = options.caller;
        let sent = cache.now();
        // The age of a value counts when it is asked for: a server that is silent for `response_timeout` does not make it useless.
        let was_usable = kind == EntryKind::Plain && cache.lookup(&key).is_some_and(|hit| cache.is_usable(&hit));
        let (response, generation) = self.sender.prepare_and_forward(listener, options, parts, body).await;
        let refused = response.extensions().get::<NoFreeConnection>().map(|_| caller);
        let mut response = match self.buffer(response).await {
            Ok(response) => response,
            Err(response) => {
                leader.complete(FlightResult::Unshared);
                return response;
            }
        };
        response.headers.insert(X_CACHE, HeaderValue::from_static("MISS"));
        // Leases end with their token, so nothing is cached for a token that was replaced meanwhile.
        let is_current =
            || !with_session || tokens.current_token().is_ok_and(|token| Some(token.generation()) == generation);
        if is_outage(response.status.as_u16()) {
            if let Some(hit) = cache.lookup(&key).filter(|hit| was_usable || cache.is_usable(hit)) {
                response = into_buffered(response_to_hit(&hit, "STALE").into_parts().0, hit.body());
            }
        } else if leader.is_outdated() {
            // The response may be older than a write or a revocation; entries that others made since then stay.
        } else if response.status == StatusCode::OK
            && is_current()
            && let Some(entry) = CacheEntry::parse(kind, &response.body)
        {
            let is_outdated = || leader.is_outdated() || !is_current();
            cache.insert_unless(key, entry, sent, generation.filter(|_| with_session), is_outdated);
        } else {
            cache.remove(&key);
        }
        response.refused = refused;
        let response = Arc::new(response);
        leader.complete(FlightResult::Shared(Arc::clone(&response)));
        response_from_buffer(&response)
    }

    /// Reads a response into memory, whatever its framing.
    ///
    /// # Errors
    /// The body is longer than [`MAX_RESPONSE_BODY`]: the response as it came.
    async fn buffer(&self, response: Response<ProxyBody>) -> Result<BufferedResponse, Response<ProxyBody>> {
        let (mut parts, mut body) = response.into_parts();
        loop {
            match body {
                Either::Left(incoming) => {
                    match incoming.buffer(MAX_RESPONSE_BODY, self.sender.response_timeout()).await {
                        BufferedBody::Complete(bytes) => return Ok(into_buffered(parts, bytes)),
                        BufferedBody::TooLong(incoming) => {
                            return Err(Response::from_parts(parts, Either::Left(incoming)));
                        }
                        BufferedBody::Failed => (parts, body) = truncated_response().into_parts(),
                    }
                }
                // The agent's own bodies are in memory and cannot fail.
                Either::Right(own) => {
                    let bytes = own.collect().await.map(Collected::to_bytes).unwrap_or_default();
                    return Ok(into_buffered(parts, bytes));
                }
            }
        }
    }

    fn key(
        &self,
        options: &ForwardOptions,
        headers: &RequestHeaders<'_>,
        method: &Method,
        path: &str,
        query: Option<&str>,
        body: &[u8],
    ) -> CacheKey {
        let namespace = self.sender.dialect.namespace(headers, options.is_root_path);
        CacheKey::new(token_scope(options, headers), method, namespace, path, query, body)
    }
}

/// A request whose caller does not wait for it: while callers get stale entries, one at a time tests whether the server responds.
pub(super) type Probe = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs probes until `stop` is cancelled.
pub(super) async fn run_probes(mut probes: mpsc::Receiver<Probe>, stop: CancellationToken) {
    let all = async {
        while let Some(probe) = probes.recv().await {
            probe.await;
        }
    };
    stop.run_until_cancelled(all).await;
}

fn token_scope(options: &ForwardOptions, headers: &RequestHeaders<'_>) -> TokenScope {
    if options.with_session {
        return TokenScope::Session;
    }
    headers.token(options.has_listener_key).map_or(TokenScope::Anonymous, TokenScope::from_token)
}

/// Builds the response to a cache hit; `outcome` is the value of `X-Cache`.
fn response_to_hit(hit: &CacheHit, outcome: &'static str) -> Response<ProxyBody> {
    let mut response = Response::new(Either::Right(Full::new(hit.body())));
    let headers = response.headers_mut();
    // Capacity for one more: `Connection: close`, which the server adds while it drains.
    headers.reserve(5);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(AGE, HeaderValue::from(hit.age.as_secs()));
    headers.insert(X_CACHE, HeaderValue::from_static(outcome));
    response
}

fn response_from_buffer(buffered: &BufferedResponse) -> Response<ProxyBody> {
    let mut response = Response::new(Either::Right(Full::new(buffered.body.clone())));
    *response.status_mut() = buffered.status;
    response.headers_mut().clone_from(&buffered.headers);
    response
}

/// Joins a head and a body, and makes the head's framing headers fit the body.
fn into_buffered(mut parts: response::Parts, body: Bytes) -> BufferedResponse {
    // The listener sets `Date` for each response, and a body in memory has no trailers.
    for name in [DATE, TRAILER] {
        parts.headers.remove(name);
    }
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    BufferedResponse { status: parts.status, headers: parts.headers, body, refused: None }
}

/// Returns true for methods that may change something on the server.
pub(super) fn is_write(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");

/// The longest request body that is part of a cache key, or is searched for what a revocation names, in bytes.
pub(super) const MAX_REQUEST_BODY: usize = 64 * 1024;

/// The longest response body that is cached, in bytes.
const MAX_RESPONSE_BODY: usize = 1024 * 1024;
