//! From a request to its answer: guard, path, rules, whose token, call.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::answer::{ProxyBody, own, refuse};
use super::listener_metrics::ProxyListener;
use super::namespace;
use super::path::{ApiPath, PathError};
use super::query::Query;
use super::request_headers::RequestHeaders;
use super::response_cache::CachePolicy;
use super::rules::{Operation, OperationError, RuleViolation};
use super::send::CallerBody;
use super::server_dialect::Call;
use super::{ApiProxy, Inner, TokenMode, cache_clear, response_cache};
use crate::agent::json_response;
use crate::agent::secrets::cache::EntryKind;
use crate::http::guard;
use crate::http::server::{Caller, ListenerMetrics, Peer, ResponseFuture};

impl ApiProxy {
    /// The service of one listener, bound to `address` (`None` for a unix socket), for
    /// [`crate::http::server::Listener::serve`].
    pub fn service(
        &self,
        admit: guard::GuardOptions,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
    ) -> impl Fn(Peer, Request<Incoming>) -> ResponseFuture<ProxyBody> + Clone + Send + 'static {
        let guard = self.guard(admit, address, listener_metrics.clone());
        let listener = Arc::new(ProxyListener::new(guard, address, listener_metrics));
        let inner = Arc::clone(&self.0);
        move |peer, request| inner.answer(&listener, &peer, request)
    }
}

/// What is done for a request that is let in.
enum ProxyRoute<'a> {
    /// The cache is told what to forget.
    ClearCache(&'a Arc<CachePolicy>),
    /// It is passed on, as it comes.
    Forward(Call),
    /// Its answer is kept.
    Cached(Call, &'a Arc<CachePolicy>, EntryKind, ApiPath<'a>, RequestHeaders<'a>),
    /// It is passed on, and what is kept may not be so after it.
    Write(Call, &'a Arc<CachePolicy>, ApiPath<'a>),
}

impl Inner {
    /// Decides by the head alone, and answers from what is kept. Only what goes further costs a future, each way one of its own
    /// size.
    fn answer(
        self: &Arc<Self>,
        listener: &Arc<ProxyListener>,
        peer: &Peer,
        request: Request<Incoming>,
    ) -> ResponseFuture<ProxyBody> {
        let way = match self.way(listener, peer, &request) {
            Ok(way) => way,
            Err(answer) => return ResponseFuture::ready(listener.counted(*answer)),
        };
        if let ProxyRoute::Cached(call, policy, _, path, request_headers) = &way
            && let Some(answer) =
                self.lookup_cached(listener, *call, policy, (path.without_trailing_slash(), request_headers), &request)
        {
            return ResponseFuture::ready(listener.counted(answer));
        }
        let (inner, listener) = (Arc::clone(self), Arc::clone(listener));
        match way {
            ProxyRoute::Forward(call) => {
                let (parts, body) = request.into_parts();
                let body = CallerBody::Streaming(body);
                let Ok(token) = inner.current_header(call) else {
                    // A login is waited for.
                    return ResponseFuture::waiting(async move {
                        listener.counted(inner.prepare_and_forward(&listener, call, parts, body).await.0)
                    });
                };
                match inner.prepare(call, &parts, body, token) {
                    Ok(ready) => {
                        ResponseFuture::waiting(
                            async move { listener.counted(inner.forward(&listener, ready).await.0) },
                        )
                    }
                    Err(answer) => ResponseFuture::ready(listener.counted(*answer)),
                }
            }
            ProxyRoute::Cached(call, policy, kind, path, _) => {
                let (policy, path) = (Arc::clone(policy), path.into_owned());
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(async move {
                    let policy = (&policy, kind);
                    listener.counted(
                        inner.cached(&listener, call, policy, path.without_trailing_slash(), parts, body).await,
                    )
                })
            }
            ProxyRoute::Write(call, policy, path) => {
                let (policy, path) = (Arc::clone(policy), path.into_owned());
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(async move {
                    let request_headers = RequestHeaders::parse(inner.dialect.kind, &parts.headers);
                    let namespace = inner.dialect.namespace(&request_headers, call.with_session).to_owned();
                    let answer = if CachePolicy::is_revocation(&path) {
                        inner.revocation(&listener, call, &policy, &path, parts, body).await
                    } else {
                        inner.prepare_and_forward(&listener, call, parts, CallerBody::Streaming(body)).await.0
                    };
                    // Whatever it was answered with, it may have been done.
                    policy.written(&path, &namespace);
                    listener.counted(answer)
                })
            }
            ProxyRoute::ClearCache(policy) => {
                let policy = Arc::clone(policy);
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(
                    async move { listener.counted(cache_clear::clear(&policy, &parts, body).await) },
                )
            }
        }
    }

    /// What is done for a request.
    ///
    /// # Errors
    /// It is not let in: what its caller is told.
    fn way<'a>(
        &'a self,
        listener: &ProxyListener,
        peer: &Peer,
        request: &'a Request<Incoming>,
    ) -> Result<ProxyRoute<'a>, Box<Response<ProxyBody>>> {
        let refused = |status, why: &str| Err(Box::new(refuse(status, why)));
        let caller = match listener.guard.admit(peer, request) {
            Ok(caller) => caller,
            Err(refusal) => return Err(Box::new(own(json_response::rejected(&refusal)))),
        };
        let query = request.uri().query();
        if let Some(policy) = &self.policy
            && cache_clear::PATHS.contains(&request.uri().path())
        {
            return Ok(ProxyRoute::ClearCache(policy));
        }
        let path = match ApiPath::read(request.uri().path()) {
            Ok(path) => path,
            Err(PathError::OutsideApi) => return refused(StatusCode::NOT_FOUND, OUTSIDE_API),
            Err(PathError::Ambiguous(why)) => return refused(StatusCode::BAD_REQUEST, why),
        };
        let pairs = match Query::parse(query) {
            Ok(pairs) => pairs,
            Err(why) => return refused(StatusCode::BAD_REQUEST, why),
        };
        let operation = match Operation::parse(request.method(), pairs) {
            Ok(operation) => operation,
            Err(OperationError::Query(why)) => return refused(StatusCode::BAD_REQUEST, why),
            Err(OperationError::Method) => {
                return refused(StatusCode::METHOD_NOT_ALLOWED, "the server's API has no such method");
            }
        };
        let request_headers = RequestHeaders::parse(self.dialect.kind, request.headers());
        // The server reads namespace and path as one: so do the rules.
        let checked_path = match self.checked_path(&path, &request_headers, pairs) {
            Ok(checked_path) => checked_path,
            Err((status, why)) => return refused(status, why),
        };
        if let Err(denied) = self.options.rules.check(operation, &checked_path) {
            return refused(StatusCode::FORBIDDEN, words(denied));
        }
        let login = checked_path.is_login();
        if login && !self.options.logins {
            return refused(StatusCode::FORBIDDEN, "nobody logs in through this listener (logins = false)");
        }
        let keyed = caller.key_as_token;
        let brings = request_headers.has_token(keyed) || self.dialect.token_in_query(query);
        let with_session = match self.options.token_mode {
            // What needs no token goes without the session's, also while there is none.
            _ if !brings && (login || UNAUTHENTICATED.iter().any(|open| path.without_trailing_slash() == *open)) => {
                false
            }
            TokenMode::Always => true,
            TokenMode::WhenMissing => !brings,
        };
        if with_session {
            if let Err(RuleViolation::Protected(name)) = self.options.rules.check_session_token(&checked_path) {
                return refused(StatusCode::FORBIDDEN, &guarded(name));
            }
            if self.dialect.token_in_query(query) {
                return refused(StatusCode::BAD_REQUEST, "this listener puts a token on; leave ?token= out");
            }
        }
        let returns_token = with_session && RETURNS_TOKEN.iter().any(|its| checked_path.names(its));
        tracing::debug!(
            event = "proxy.request",
            listener = listener.answers.listener(),
            method = request.method().as_str(),
            with_session,
            uid = peer.uid(),
            pid = peer.pid(),
            "a request is passed on"
        );
        let call = Call { caller: Caller::new(*peer, listener.local), with_session, returns_token, keyed };
        let Some(policy) = &self.policy else { return Ok(ProxyRoute::Forward(call)) };
        Ok(match policy.kind(operation, &path, &request_headers) {
            Some(kind) => ProxyRoute::Cached(call, policy, kind, path, request_headers),
            None if response_cache::writes(request.method()) => ProxyRoute::Write(call, policy, path),
            None => ProxyRoute::Forward(call),
        })
    }
}

impl Inner {
    /// The path as rules see it: with the namespace that the caller names before it.
    fn checked_path<'a>(
        &self,
        path: &ApiPath<'a>,
        request_headers: &RequestHeaders<'_>,
        query: Query<'_>,
    ) -> Result<ApiPath<'a>, (StatusCode, &'static str)> {
        let named =
            self.dialect.named_namespace(request_headers, query).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let Some(named) = named else { return Ok(path.clone()) };
        let own = self.dialect.own_namespace();
        if !self.options.namespaces.permits(own, &named) {
            return Err((StatusCode::FORBIDDEN, "this listener does not let callers name that namespace"));
        }
        Ok(path.behind(&namespace::prefix(own, &named)))
    }
}

/// What a server tells anyone: whether it is there and fit to work.
const UNAUTHENTICATED: [&str; 4] = ["sys/health", "sys/init", "sys/leader", "sys/seal-status"];

/// What tells the token that asks.
const RETURNS_TOKEN: [&str; 2] = ["auth/token/lookup", "auth/token/lookup-self"];

const OUTSIDE_API: &str = "this listener serves the server's API below /v1/ alone";

const fn words(refused: RuleViolation) -> &'static str {
    match refused {
        RuleViolation::NotAllowed => "this listener does not allow that path and method",
        RuleViolation::Denied | RuleViolation::Protected(_) => "this listener denies that path and method",
    }
}

fn guarded(name: &str) -> String {
    format!("{name} is not done with the session's token; bring a token of your own, or have the listener lift it")
}
