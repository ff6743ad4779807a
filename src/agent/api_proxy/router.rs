//! Routes a request: guard, path, rules, token, then the cache or the server.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, StatusCode};
use keyward_http::guard::{self, Guard};
use keyward_http::server::{IncomingBody, ListenerMetrics, Peer, ResponseFuture};
use keyward_machine::clock::Clock;
use keyward_telemetry::audit::AuditedRequest;

use super::cache::EntryKind;
use super::cache_clear;
use super::listener::ProxyListener;
use super::login_path::{self, LoginPath};
use super::options::{ApiProxyOptions, CallerProxyRules, TokenMode};
use super::path::{ApiPath, PathError};
use super::query::Query;
use super::request_body::CallerBody;
use super::request_checks::{ParsedRequest, Refusal, RequestChecks, refusal_response, refuse, refuse_caller};
use super::request_headers::RequestHeaders;
use super::response::{ProxyBody, local_response};
use super::response_cache::{ResponseCache, is_write};
use super::rules::{Operation, OperationError, RuleViolation};
use super::send::RequestSender;
use super::server_dialect::ForwardOptions;
use super::token_recovery::{TokenRecovery, WAIT_FOR_TOKEN};
use crate::caller_tokens::{CallerTokens, PendingProcessToken, TokenMap};
use crate::callers::{AdmittedCaller, CallerGate, CallerRoute};
use crate::json_response;
use crate::server_client::PathClass;

/// Routes the requests of one session's listeners.
#[derive(Debug)]
pub(super) struct ProxyRouter {
    pub(super) options: ApiProxyOptions,
    pub(super) sender: Arc<RequestSender>,
    pub(super) cache: Option<Arc<ResponseCache>>,
    pub(super) callers: CallerGate,
    pub(super) caller_tokens: CallerTokenResolver,
    /// Name of the session, for the audit.
    pub(super) session: Arc<str>,
}

/// Resolves the caller token, which replaces the session's token in a caller's requests.
#[derive(Debug)]
pub(super) struct CallerTokenResolver {
    pub(super) tokens: CallerTokens,
    pub(super) recoveries: TokenMap<TokenRecovery>,
    pub(super) clock: Clock,
}

/// Handling of an admitted request.
enum ProxyRoute<'a> {
    /// Clears the cache.
    ClearCache(&'a Arc<ResponseCache>),
    /// Forwards the request as it streams in.
    Forward(ForwardOptions),
    /// Responds from the cache.
    Cached(ForwardOptions, &'a Arc<ResponseCache>, EntryKind, ApiPath<'a>, RequestHeaders<'a>),
    /// Forwards a write, or responds to it from the cache if its response makes an entry, then invalidates values below its path.
    Write(ForwardOptions, &'a Arc<ResponseCache>, Option<EntryKind>, ApiPath<'a>),
    /// Waits a moment for the session's token, which the token of the caller's process derives from, then routes again.
    AwaitSession(PendingProcessToken),
}

impl ProxyRouter {
    /// Builds the service of one listener, bound to `address` (`None` for a unix socket), for
    /// [`keyward_http::server::Listener::serve`].
    pub(super) fn service(
        self: Arc<Self>,
        access: guard::GuardOptions,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
    ) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<ProxyBody> + Clone + Send + Sync + 'static {
        let guard = Guard::new(access, address, Some(listener_metrics.clone())).with_bodies(u64::MAX);
        let guard = if self.options.request_header { guard } else { guard.without_request_header() };
        let listener = Arc::new(ProxyListener::new(guard, listener_metrics));
        move |peer, request| self.respond(&listener, &peer, request, true)
    }

    /// Routes by the head only and responds to cache hits at once. Only other requests get a future, each route its own type
    /// size.
    fn respond(
        self: &Arc<Self>,
        listener: &Arc<ProxyListener>,
        peer: &Peer,
        request: Request<IncomingBody>,
        may_await_session: bool,
    ) -> ResponseFuture<ProxyBody> {
        let route = match self.route(listener, peer, &request, may_await_session) {
            Ok(route) => route,
            Err(response) => return ResponseFuture::ready(listener.count(*response)),
        };
        if let ProxyRoute::Cached(options, cache, _, path, headers) = &route
            && let Some(response) = cache.lookup(listener, options, path.without_trailing_slash(), headers, &request)
        {
            return ResponseFuture::ready(listener.count(response));
        }
        let sender = Arc::clone(&self.sender);
        let listener = Arc::clone(listener);
        match route {
            ProxyRoute::Forward(options) => {
                let (parts, body) = request.into_parts();
                let body = CallerBody::Streaming(body);
                let Ok(token) = RequestSender::current_token(&options) else {
                    return ResponseFuture::waiting(async move {
                        listener.count(sender.prepare_and_forward(&listener, options, parts, body).await.0)
                    });
                };
                match sender.prepare(options, &parts, body, token) {
                    Ok(prepared) => {
                        ResponseFuture::waiting(
                            async move { listener.count(sender.forward(&listener, prepared).await.0) },
                        )
                    }
                    Err(response) => ResponseFuture::ready(listener.count(*response)),
                }
            }
            ProxyRoute::Cached(options, cache, kind, path, _) => {
                let cache = Arc::clone(cache);
                let path = path.into_owned();
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(async move {
                    let path = path.without_trailing_slash();
                    listener.count(cache.respond(&listener, options, kind, path, parts, body).await)
                })
            }
            ProxyRoute::Write(options, cache, kind, path) => {
                let cache = Arc::clone(cache);
                let path = path.into_owned();
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(async move {
                    listener.count(cache.forward_write(&listener, options, kind, &path, parts, body).await)
                })
            }
            ProxyRoute::ClearCache(cache) => {
                let cache = Arc::clone(cache);
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(async move { listener.count(cache_clear::clear(&cache, &parts, body).await) })
            }
            ProxyRoute::AwaitSession(token) => {
                let this = Arc::clone(self);
                let peer = *peer;
                ResponseFuture::waiting(async move {
                    let _ = tokio::time::timeout(WAIT_FOR_TOKEN, token.wait_for_session()).await;
                    this.respond(&listener, &peer, request, false).await
                })
            }
        }
    }

    /// Chooses the route of a request.
    fn route<'a>(
        &'a self,
        listener: &ProxyListener,
        peer: &Peer,
        request: &'a Request<IncomingBody>,
        may_await_session: bool,
    ) -> Result<ProxyRoute<'a>, Refusal> {
        let audited = AuditedRequest::from_extensions(request.extensions());
        let admitted = listener.guard.admit(peer, request);
        let local =
            admitted.map_err(|refusal| Box::new(local_response(json_response::rejection_response(&refusal))))?;
        let cleared = self.cache.as_ref().filter(|_| cache_clear::PATHS.contains(&request.uri().path()));
        let routes: &[CallerRoute] = if cleared.is_some() { &CLEAR_ROUTES } else { &FORWARD_ROUTES };
        let caller = self.callers.admit(request, routes).map_err(|refusal| refusal_response(&refusal))?;
        if let Some(cache) = cleared {
            return Ok(ProxyRoute::ClearCache(cache));
        }
        let limits = self.limits_of(&caller)?;
        let (path, query, operation) = parse_target(request)?;
        let headers = RequestHeaders::parse(self.sender.dialect.kind, request.headers());
        let checks = RequestChecks { options: &self.options, dialect: &self.sender.dialect, caller, limits, audited };
        let header_map = request.headers();
        let parsed = ParsedRequest { operation, path: &path, query, headers: &headers, header_map };
        let rule_path = checks.check(parsed)?;
        let has_listener_key = local.key_as_token;
        let with_session = self.uses_session_token(request, &headers, has_listener_key, &path, &rule_path)?;
        if with_session
            && may_await_session
            && let Some(token) = self.caller_tokens.tokens.process_token(&caller, &self.session)
            && token.is_session_absent()
        {
            return Ok(ProxyRoute::AwaitSession(token));
        }
        let caller_token = if with_session { self.resolve_caller_token(&caller)? } else { None };
        let has_caller_token = caller_token.is_some();
        let tokens = caller_token.unwrap_or_else(|| Arc::clone(&self.sender.tokens));
        let returns_token = with_session && TOKEN_RETURNING_PATHS.iter().any(|lookup| rule_path.names(lookup));
        tracing::debug!(
            event = "proxy.request",
            listener = listener.responses.listener(),
            method = request.method().as_str(),
            with_session,
            caller = caller.name(),
            uid = peer.uid(),
            pid = peer.pid(),
            "forwarding a request"
        );
        if let (Some(audited), true) = (audited, with_session) {
            let token = tokens.current_token().ok();
            audited.use_token(&self.session, token.as_ref().and_then(|token| token.token.accessor.as_deref()));
        }
        let caller = peer.group();
        let path_class = PathClass::from_path(path.without_trailing_slash());
        let is_root_path = is_root_path(&path);
        let options =
            ForwardOptions { caller, with_session, is_root_path, tokens, returns_token, has_listener_key, path_class };
        let Some(cache) = &self.cache else { return Ok(ProxyRoute::Forward(options)) };
        // Entries belong to the session's token, which may read more than the caller's.
        let kind = cache.entry_kind(&options, operation, &path, &headers).filter(|_| !has_caller_token);
        Ok(match kind {
            kind if is_write(request.method()) => ProxyRoute::Write(options, cache, kind, path),
            Some(kind) => ProxyRoute::Cached(options, cache, kind, path, headers),
            None => ProxyRoute::Forward(options),
        })
    }

    /// Returns the caller token that replaces the session's in a caller's requests; `None` for the session's.
    fn resolve_caller_token(&self, caller: &AdmittedCaller<'_>) -> Result<Option<Arc<TokenRecovery>>, Refusal> {
        let CallerTokenResolver { tokens, recoveries, clock } = &self.caller_tokens;
        let token = tokens.resolve(caller, &self.session).map_err(|refusal| refusal_response(&refusal))?;
        let build = |token| recoveries.get_or_build(&token, |handle| TokenRecovery::from_handle(handle, clock.clone()));
        Ok(token.map(build))
    }

    /// Decides whether to set the session's token on a request.
    fn uses_session_token(
        &self,
        request: &Request<IncomingBody>,
        headers: &RequestHeaders<'_>,
        has_listener_key: bool,
        path: &ApiPath<'_>,
        rule_path: &ApiPath<'_>,
    ) -> Result<bool, Refusal> {
        let has_query_token = self.sender.dialect.has_query_token(request.uri().query());
        let has_token = headers.has_token(has_listener_key) || has_query_token;
        let needs_no_token = login_path::classify(rule_path) == Some(LoginPath::Certain) || is_root_path(path);
        let with_session = match self.options.token_mode {
            // `logins` are sent without the session's token, so they work while there is none.
            _ if !has_token && needs_no_token => false,
            TokenMode::Always => true,
            TokenMode::WhenMissing => !has_token,
        };
        if with_session {
            if let Err(violation @ RuleViolation::Protected(name)) = self.options.rules.check_session_token(rule_path) {
                AuditedRequest::from_extensions(request.extensions())
                    .inspect(|audited| audited.refuse(violation.name()));
                return refuse(StatusCode::FORBIDDEN, &describe_protected(name));
            }
            if has_query_token {
                return refuse(StatusCode::BAD_REQUEST, "this listener sets the token; remove ?token= from the query");
            }
        }
        Ok(with_session)
    }

    /// Returns the limits of a caller; `None` without callers.
    fn limits_of(&self, caller: &AdmittedCaller<'_>) -> Result<Option<&CallerProxyRules>, Refusal> {
        let Some(index) = caller.rule_index() else { return Ok(None) };
        match self.options.callers.get(index) {
            Some(Some(limits)) => Ok(Some(limits)),
            Some(None) | None => refuse_caller(caller.refuse_request("listener", "use this listener")),
        }
    }
}

/// Routes of which a caller needs at least one to have requests forwarded.
const FORWARD_ROUTES: [CallerRoute; 2] = [CallerRoute::Proxy, CallerRoute::Credentials];

/// Route that a caller needs to clear the cache.
const CLEAR_ROUTES: [CallerRoute; 1] = [CallerRoute::Refresh];

/// Returns true for a path that the server serves without a token, in the root namespace alone.
fn is_root_path(path: &ApiPath<'_>) -> bool {
    UNAUTHENTICATED_PATHS.contains(&path.without_trailing_slash())
}

/// Parses path, query and operation of a request.
fn parse_target<R>(request: &Request<R>) -> Result<(ApiPath<'_>, Query<'_>, Operation), Refusal> {
    let path = ApiPath::parse(request.uri().path()).or_else(|error| match error {
        PathError::OutsideApi => refuse(StatusCode::NOT_FOUND, OUTSIDE_API),
        PathError::Ambiguous(reason) => refuse(StatusCode::BAD_REQUEST, reason),
    })?;
    let query = Query::parse(request.uri().query()).or_else(|reason| refuse(StatusCode::BAD_REQUEST, reason))?;
    let operation = Operation::parse(request.method(), query).or_else(|error| match error {
        OperationError::Query(reason) => refuse(StatusCode::BAD_REQUEST, reason),
        OperationError::Method => refuse(StatusCode::METHOD_NOT_ALLOWED, "the server's API has no such method"),
    })?;
    Ok((path, query, operation))
}

const UNAUTHENTICATED_PATHS: [&str; 4] = ["sys/health", "sys/init", "sys/leader", "sys/seal-status"];

/// Paths whose response contains the token that the request carries.
const TOKEN_RETURNING_PATHS: [&str; 5] =
    ["acl/token/self", "auth/token/lookup", "auth/token/lookup-self", "auth/token/renew", "auth/token/renew-self"];

const OUTSIDE_API: &str = "this listener serves only the server's API below /v1/";

fn describe_protected(name: &str) -> String {
    format!("{name} is not allowed with the agent's token; use your own, or add the path to exempt in the listener")
}
