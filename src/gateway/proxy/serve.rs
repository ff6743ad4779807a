//! Request handling: guard, path, local token, call, and rewriting of the response.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, REFERER};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};

use super::admin_api::discovery;
use super::body::{BufferError, CallerBody, GatewayBody, RewritingBody};
use super::link_rewriter::LinkRewriter;
use super::outcome::{BodyLength as _, CallOutcome, PlatformBody};
use super::path::{self, RequestTarget, classify_path};
use super::response::{self, BodyKind, error_response, method_not_allowed};
use super::upstream_call::UpstreamCall;
use super::{Gateway, Inner, token_making};
use crate::credential_watch::Availability;
use crate::gateway::local_token::MatchedToken;
use crate::http::guard::{Guard, GuardRejection};
use crate::http::server::{Caller, ListenerMetrics, Peer, ResponseCounter, ResponseFuture};

impl Gateway {
    /// Creates the service of one listener bound to `address` (`None` for a unix socket), for
    /// [`crate::http::server::Listener::serve`].
    pub fn service(
        &self,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
    ) -> impl Fn(Peer, Request<Incoming>) -> ResponseFuture<GatewayBody> + Clone + Send + 'static {
        let listener =
            Arc::new((self.guard(address, listener_metrics.clone()), ResponseCounter::new(listener_metrics), address));
        let inner = Arc::clone(&self.0);
        move |peer, request| inner.serve(&listener, &peer, request)
    }
}

/// Handling of an admitted request.
enum GatewayRoute<'a> {
    /// Service discovery.
    Discovery,
    /// One of the gateway's own endpoints, by name.
    AdminApi(&'a str),
    /// Forwarding to the platform, with the client's name and the target.
    Forward(String, PathAndQuery),
}

impl Inner {
    /// Routes by the request head. Only forwarded calls allocate a future.
    fn serve(
        self: &Arc<Self>,
        listener: &Arc<(Guard, ResponseCounter, Option<SocketAddr>)>,
        peer: &Peer,
        mut request: Request<Incoming>,
    ) -> ResponseFuture<GatewayBody> {
        drop_own_referer(request.headers_mut());
        let (guard, counter, _) = &**listener;
        let now = |response: Response<GatewayBody>| {
            counter.count(response.status());
            ResponseFuture::ready(response)
        };
        let (client, target) = match self.route(guard, peer, &request) {
            Ok(GatewayRoute::Forward(client, target)) => (client, target),
            Ok(GatewayRoute::Discovery) => return now(discovery(request.method())),
            Ok(GatewayRoute::AdminApi(name)) => {
                return now(self.serve_admin_api(name, &request, gateway_origin(request.headers()).as_deref()));
            }
            Err(refusal) => return now(*refusal),
        };
        let (parts, body) = request.into_parts();
        let (origin, merge_pages) =
            (gateway_origin(&parts.headers), self.wants_merged_pages(&parts.method, &target, &parts.headers));
        let call = UpstreamCall::new(Caller::new(*peer, listener.2), parts.method, target, parts.headers);
        let (inner, listener) = (Arc::clone(self), Arc::clone(listener));
        ResponseFuture::waiting(async move {
            let response = inner.call(&client, &call, origin.as_deref(), merge_pages, body).await;
            listener.1.count(response.status());
            response
        })
    }

    /// Admits and classifies a request.
    ///
    /// # Errors
    /// The response for the caller if the request is refused or not served.
    fn route<'a>(
        &self,
        guard: &Guard,
        peer: &Peer,
        request: &'a Request<Incoming>,
    ) -> Result<GatewayRoute<'a>, Box<Response<GatewayBody>>> {
        let error_result = |status, why: &str| Err(Box::new(error_response(status, why)));
        if let Err(GuardRejection { status, message, .. }) = guard.admit(peer, request) {
            return error_result(status, &message);
        }
        let target_kind = match classify_path(request.uri().path()) {
            RequestTarget::Discovery => return Ok(GatewayRoute::Discovery),
            RequestTarget::Ambiguous(why) => return error_result(StatusCode::BAD_REQUEST, why),
            replacement => replacement,
        };
        let Some(which) = self.match_local_token(request.headers()) else {
            return error_result(StatusCode::UNAUTHORIZED, LOCAL_TOKEN_REJECTED);
        };
        let client =
            self.dependencies.usage.record_request(request.headers(), which, self.dependencies.clock.now().wall);
        if target_kind == RequestTarget::Api
            && let Err(refusal) =
                token_making::check_minting(request.method(), request.uri().path(), &self.options.exempt)
        {
            return Err(Box::new(response::error_responses(&[refusal])));
        }
        match target_kind {
            RequestTarget::State if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                Err(Box::new(method_not_allowed("states can only be read at this path", "GET, HEAD")))
            }
            RequestTarget::Api if !ALLOWED_METHODS.contains(request.method()) => {
                let served = "GET, HEAD, POST, PUT, PATCH, DELETE";
                Err(Box::new(method_not_allowed("the platform's API has no such method", served)))
            }
            RequestTarget::Api | RequestTarget::State => match request.uri().path_and_query() {
                Some(target) => Ok(GatewayRoute::Forward(client, target.clone())),
                None => error_result(StatusCode::BAD_REQUEST, "the request names no path"),
            },
            RequestTarget::AdminApi(name) => Ok(GatewayRoute::AdminApi(name)),
            _ => error_result(
                StatusCode::NOT_FOUND,
                "the gateway serves /api/v2/, /api/registry/, /api/meta/ip-ranges and the states of /api/state-versions/ of \
                 the platform, and /v1/platform/",
            ),
        }
    }

    /// Returns the local token that the caller has presented, if it is valid.
    fn match_local_token(&self, headers: &HeaderMap) -> Option<MatchedToken> {
        let value = headers.get(AUTHORIZATION)?.as_bytes();
        let (scheme, token) = value.split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return None;
        }
        let now = self.dependencies.clock.now().wall;
        self.dependencies.local.with(|reading| match &reading.availability {
            Availability::Available(accepted) => accepted.match_token(token.trim_ascii(), now),
            Availability::Unavailable { .. } => None,
        })
    }

    async fn call(
        &self,
        client: &str,
        call: &UpstreamCall,
        origin: Option<&str>,
        merge_pages: bool,
        body: Incoming,
    ) -> Response<GatewayBody> {
        let body = match CallerBody::receive(body, &self.buffers).await {
            Ok(body) => body,
            Err(BufferError::Timeout) => {
                return error_response(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
            }
            Err(BufferError::Broken) => {
                return error_response(StatusCode::BAD_REQUEST, "the body is incomplete");
            }
        };
        let assessment = match self.assess(call, &body, client) {
            Ok(assessment) => assessment,
            Err(errors) => return response::error_responses(&errors),
        };
        // Rare cases are boxed: otherwise each call's future would reserve space for them.
        let outcome = match &assessment.deprecated {
            None if merge_pages => Box::pin(self.fetch_merged(call, origin)).await,
            None => self.forward(call, body).await,
            // No list that is merged has a replacement.
            Some(deprecated) if merge_pages => {
                let merged = Box::pin(self.fetch_merged(call, origin)).await;
                self.annotate(call, deprecated, None, client, merged)
            }
            Some(deprecated) => Box::pin(self.call_or_replace(call, body, deprecated, client)).await,
        };
        let mut response = match outcome {
            Ok(CallOutcome { replacement, response }) => {
                let call = replacement.as_ref().unwrap_or(call);
                tracing::debug!(
                    event = "gateway.forwarded",
                    client,
                    method = call.method.as_str(),
                    status = response.status().as_u16(),
                    "a call was forwarded"
                );
                self.rewrite_response(call, origin, response).await
            }
            Err(response) => *response,
        };
        if !assessment.headers.is_empty() {
            response.headers_mut().extend(assessment.headers);
        }
        response
    }

    /// Rewrites the platform's response for a caller of the gateway.
    async fn rewrite_response(
        &self,
        call: &UpstreamCall,
        origin: Option<&str>,
        response: Response<PlatformBody>,
    ) -> Response<GatewayBody> {
        let is_user_file = path::is_user_file(call.target.path());
        if call.method != Method::HEAD
            && !is_user_file
            && let Some(error_result) = self.reject_encoded(&response)
        {
            return *error_result;
        }
        let (mut parts, body) = response.into_parts();
        response::rewrite_headers(
            parts.status,
            &mut parts.headers,
            || self.platform_url(call),
            self.dependencies.clock.now().wall,
        );
        let kind = if is_user_file {
            BodyKind::Other
        } else {
            response::classify_body(parts.status, &parts.headers, body.length())
        };
        let rewrite_to =
            origin.filter(|_| !matches!(kind, BodyKind::Other | BodyKind::EncodedJson) && call.method != Method::HEAD);
        let body = match (body, rewrite_to) {
            (PlatformBody::Streamed(body), None) => GatewayBody::Streamed(body),
            (PlatformBody::Buffered(body), None) => GatewayBody::Buffered(Full::new(body)),
            (PlatformBody::Buffered(body), Some(origin)) => {
                let (mut rewriter, mut rewritten) = (LinkRewriter::new(&self.link_prefixes, origin), Vec::new());
                rewriter.rewrite(&body, &mut rewritten);
                rewriter.finish(&mut rewritten);
                response::set_length(&mut parts.headers, Some(rewritten.len()));
                GatewayBody::Buffered(Full::new(rewritten.into()))
            }
            (PlatformBody::Streamed(mut body), Some(origin)) => {
                let mut rewriter = LinkRewriter::new(&self.link_prefixes, origin);
                if kind == BodyKind::LargeJson {
                    response::set_length(&mut parts.headers, None);
                    GatewayBody::Rewriting(Box::new(RewritingBody::new(body, rewriter)))
                } else {
                    let mut rewritten = Vec::new();
                    while let Some(frame) = body.frame().await {
                        match frame.map(Frame::into_data) {
                            Ok(Ok(chunk)) => rewriter.rewrite(&chunk, &mut rewritten),
                            // A body with a length has no trailers.
                            Ok(Err(_)) => {}
                            Err(_) => {
                                return error_response(StatusCode::BAD_GATEWAY, "the platform's response broke off");
                            }
                        }
                    }
                    rewriter.finish(&mut rewritten);
                    response::set_length(&mut parts.headers, Some(rewritten.len()));
                    GatewayBody::Buffered(Full::new(Bytes::from(rewritten)))
                }
            }
        };
        Response::from_parts(parts, body)
    }
}

/// Returns the gateway's origin as this caller sees it. The guard has checked that `Host` is a name of this listener.
fn gateway_origin(headers: &HeaderMap) -> Option<String> {
    headers.get(HOST).and_then(|host| host.to_str().ok()).map(|host| ["http://", host].concat())
}

/// Removes a `Referer` of the gateway's own origin: clients that follow a redirect send it (Go's net/http does). Any
/// other one comes from a web page, and the guard refuses it.
fn drop_own_referer(headers: &mut HeaderMap) {
    let mut all = headers.get_all(REFERER).iter();
    let (Some(referer), None) = (all.next(), all.next()) else { return };
    let own = gateway_origin(headers).is_some_and(|origin| {
        let rest = referer.as_bytes().strip_prefix(origin.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    });
    if own {
        headers.remove(REFERER);
    }
}

/// Methods of the platform's API.
const ALLOWED_METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

const LOCAL_TOKEN_REJECTED: &str = "the gateway's local token is missing or wrong: send it as Authorization: Bearer (`keyward \
gateway tokens` shows its file); the platform's own token is not accepted here";
