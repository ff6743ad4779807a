//! Routes requests: guard, path, local token; then discovery, the gateway's own endpoints, or the platform.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HOST, REFERER};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use keyward_credentials::credential_watch::{Availability, CredentialWatch};
use keyward_http::guard::{AccessMode, Guard, GuardOptions, GuardRejection};
use keyward_http::server::{IncomingBody, ListenerMetrics, Peer, ResponseCounter, ResponseFuture};
use keyward_machine::clock::Clock;
use keyward_telemetry::audit::AuditedRequest;

use super::admin_api::AdminApi;
use super::body::GatewayBody;
use super::discovery::Discovery;
use super::forward::CallForwarder;
use super::local_response::{self, error_response, method_not_allowed};
use super::minting_guard::{self, Exemption};
use super::path::{RequestTarget, classify_path};
use super::upstream_call::UpstreamCall;
use super::usage_stats::UsageStats;
use crate::local_token::{AcceptedTokens, MatchedToken};

/// Handling of an admitted request.
enum GatewayRoute<'a> {
    /// Service discovery.
    Discovery,
    /// One of the gateway's own endpoints, by name.
    AdminApi(&'a str),
    /// Forwarding to the platform, with the client's name and the target.
    Forward(String, PathAndQuery),
}

/// Routes requests of callers.
#[derive(Debug)]
pub(super) struct GatewayRouter {
    /// Watch of the tokens that callers may present.
    pub(super) local: CredentialWatch<AcceptedTokens>,
    pub(super) usage: Arc<UsageStats>,
    /// Kinds of token-minting calls that are allowed.
    pub(super) exempt: BTreeSet<Exemption>,
    /// Names that `Host` may have besides the listener's own.
    pub(super) allowed_hosts: BTreeSet<String>,
    pub(super) clock: Clock,
    pub(super) admin_api: AdminApi,
    pub(super) discovery: Arc<Discovery>,
    pub(super) forwarder: Arc<CallForwarder>,
}

/// One listener of the gateway.
#[derive(Debug)]
pub(super) struct GatewayListener {
    guard: Guard,
    responses: ResponseCounter,
}

impl GatewayListener {
    /// Creates a listener bound to `address` (`None` for a unix socket). Callers are authorised by the local token, and on a
    /// unix socket by its mode too.
    pub(super) fn new(
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
        allowed_hosts: BTreeSet<String>,
    ) -> Self {
        let admit = if address.is_some() { AccessMode::AnyLocalUser } else { AccessMode::SocketPeers };
        let responses = ResponseCounter::new(listener_metrics.clone());
        let guard = Guard::new(GuardOptions { allowed_hosts, admit }, address, Some(listener_metrics));
        Self { guard: guard.with_bodies(u64::MAX).without_request_header(), responses }
    }
}

impl GatewayRouter {
    /// Routes by the request head. Only forwarded calls allocate a future.
    pub(super) fn serve(
        &self,
        listener: &Arc<GatewayListener>,
        peer: &Peer,
        mut request: Request<IncomingBody>,
    ) -> ResponseFuture<GatewayBody> {
        drop_own_referer(request.headers_mut());
        let now = |response: Response<GatewayBody>| {
            listener.responses.count(response.status());
            ResponseFuture::ready(response)
        };
        let (client, target) = match self.route(&listener.guard, peer, &request) {
            Ok(GatewayRoute::Forward(client, target)) => (client, target),
            Ok(GatewayRoute::Discovery) => {
                let (discovery, listener) = (Arc::clone(&self.discovery), Arc::clone(listener));
                let method = request.method().clone();
                return ResponseFuture::waiting(async move {
                    let response = discovery.respond(&method).await;
                    listener.responses.count(response.status());
                    response
                });
            }
            Ok(GatewayRoute::AdminApi(name)) => {
                return now(self.admin_api.serve(name, &request, gateway_origin(request.headers()).as_deref()));
            }
            Err(refusal) => return now(*refusal),
        };
        let (parts, body) = request.into_parts();
        let origin = gateway_origin(&parts.headers);
        let merge_pages = self.forwarder.merges_pages(&parts.method, &target, &parts.headers);
        let mut call = UpstreamCall::new(peer.group(), parts.method, target, parts.headers);
        call.audited = AuditedRequest::from_extensions(&parts.extensions).cloned();
        let forwarder = Arc::clone(&self.forwarder);
        let listener = Arc::clone(listener);
        ResponseFuture::waiting(async move {
            let response = forwarder.forward(&client, &call, origin.as_deref(), merge_pages, body).await;
            listener.responses.count(response.status());
            response
        })
    }

    /// Admits and classifies a request.
    fn route<'a>(
        &self,
        guard: &Guard,
        peer: &Peer,
        request: &'a Request<IncomingBody>,
    ) -> Result<GatewayRoute<'a>, Box<Response<GatewayBody>>> {
        let refuse = |status, why: &str| Err(Box::new(error_response(status, why)));
        if let Err(GuardRejection { status, message, .. }) = guard.admit(peer, request) {
            return refuse(status, &message);
        }
        let target_kind = match classify_path(request.uri().path()) {
            RequestTarget::Discovery => return Ok(GatewayRoute::Discovery),
            RequestTarget::Ambiguous(why) => return refuse(StatusCode::BAD_REQUEST, why),
            served => served,
        };
        let Some(which) = self.match_local_token(request.headers()) else {
            return refuse(StatusCode::UNAUTHORIZED, LOCAL_TOKEN_REJECTED);
        };
        let client = self.usage.record_request(request.headers(), which, self.clock.now().wall);
        if target_kind == RequestTarget::Api
            && let Err(refusal) = minting_guard::check_minting(request.method(), request.uri().path(), &self.exempt)
        {
            return Err(Box::new(local_response::error_responses(&[refusal])));
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
                None => refuse(StatusCode::BAD_REQUEST, "the request target has no path"),
            },
            RequestTarget::AdminApi(name) => Ok(GatewayRoute::AdminApi(name)),
            _ => refuse(
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
        let now = self.clock.now().wall;
        self.local.read(|reading| match &reading.availability {
            Availability::Available(accepted) => accepted.match_token(token.trim_ascii(), now),
            Availability::Unavailable { .. } => None,
        })
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
    let is_own = gateway_origin(headers).is_some_and(|origin| {
        let rest = referer.as_bytes().strip_prefix(origin.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    });
    if is_own {
        headers.remove(REFERER);
    }
}

/// Methods of the platform's API.
const ALLOWED_METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

const LOCAL_TOKEN_REJECTED: &str = "the gateway's local token is missing or wrong: send it as Authorization: Bearer (`keyward \
gateway tokens` shows its file); the platform's own token is not accepted here";
