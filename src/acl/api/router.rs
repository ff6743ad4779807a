//! Router of the API: from the head of a request to its row in the table of operations, and from its result to HTTP.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Body as _;
use keyward_http::server::{IncomingBody, Peer, ResponseFuture};
use keyward_telemetry::audit::AuditedRequest;
use prometheus_client::metrics::counter::Counter;

use super::blocking_query;
use super::error::{ApiError, Dialect};
use super::operation::{Guard, Operation, ReadOperation, Route, Row, VaultOperation, WriteOperation, route};
use super::origin_guard::BrowserGuard;
use super::request::ApiRequest;
use super::response::{ApiResponse, ResponseBody, WriteResult, set_default_policy_header};
use super::state::ApiState;
use super::vault::VaultRequest;
use crate::metrics::{AclMetrics, AclRequestLabels};
use crate::service::error::ServiceError;
use crate::store::Freshness;

/// Builds the request handler of a socket bound to `address` (`None` for a unix socket), for [`keyward_http::server`].
pub(crate) fn handler(
    state: ApiState,
    address: Option<SocketAddr>,
) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<ResponseBody> + Clone + Send + Sync + 'static {
    let browser_guard = BrowserGuard::new(&state.options.allowed_hosts, address, state.metrics.clone());
    let ok_counters = [const { OnceLock::new() }; Operation::COUNT];
    let router = Arc::new(Router { state, browser_guard, ok_counters });
    move |peer, request| router.route(&peer, request)
}

/// Routes the requests of one socket.
struct Router {
    state: ApiState,
    browser_guard: BrowserGuard,
    /// Counters of 200 by operation, each looked up once: the lookup costs as much as the response.
    ok_counters: [OnceLock<Counter>; Operation::COUNT],
}

impl Router {
    /// Routes only by the head, before there is a future. Each kind of request has its own type of future, and the head
    /// is freed before it starts: ten thousand may wait at once.
    fn route(self: &Arc<Self>, peer: &Peer, request: Request<IncomingBody>) -> ResponseFuture<ResponseBody> {
        let state = &self.state;
        let (dialect, mut matched) = find_operation(&state.options.base_path, &request);
        if let Err(error) = self.browser_guard.verify(&request) {
            matched = Err(error.to_response(dialect));
        }
        // Transfer-Encoding beside Content-Length: the server reads by the former, a proxy before it may read by the latter
        // (RFC 9112, 6.3).
        if request.body().size_hint().exact().is_none() && request.headers().contains_key(header::CONTENT_LENGTH) {
            matched = Err(ApiError::AmbiguousLength.to_response(dialect));
        }
        let (row, subject) = match matched {
            Ok(matched) => matched,
            Err(mut response) => {
                set_policy_header(state, dialect, &mut response);
                return ResponseFuture::ready(response);
            }
        };
        if let Some(audited) = AuditedRequest::from_extensions(request.extensions()) {
            audited.note(|note| note.operation = Some(row.name));
        }
        let ctx = RouteCtx { router: Arc::clone(self), dialect, row };
        // Before the body is read: a refused login must cost little.
        if row.guard == Guard::Login
            && let Err(wait) = state.login_limiter.admit(peer, state.service.clock_reading())
        {
            return ResponseFuture::ready(ctx.finish(Err(ApiError::LoginRateLimited { wait })));
        }
        match row.operation {
            Operation::Read(operation) => read(ctx, operation, subject, request),
            Operation::Write(operation) => write(ctx, operation, subject, request),
            Operation::Vault(operation) => {
                let request = VaultRequest::new(subject, request);
                ResponseFuture::waiting(async move {
                    let result = call_vault(&ctx, operation, request).await;
                    ctx.finish(result)
                })
            }
        }
    }
}

/// Finds the dialect of a request, and the row of its operation with the variable part of the path, or the response if it
/// has none.
fn find_operation(
    base: &str,
    request: &Request<IncomingBody>,
) -> (Dialect, Result<(&'static Row, String), Response<ResponseBody>>) {
    let raw = request.uri().path();
    // A proxy may strip the base path or leave it: both are accepted.
    let path = raw.strip_prefix(base).unwrap_or(raw).strip_prefix("/v1/");
    // Unknown paths too have a dialect, so that a client gets errors in the format that it parses.
    let is_vault = path.is_some_and(|path| path.starts_with("auth/") || path.starts_with("sys/"));
    let dialect = if is_vault { Dialect::Vault } else { Dialect::Consul };
    let matched = match path {
        _ if !is_well_formed(raw.strip_prefix('/').unwrap_or(raw)) => Err(ApiError::MalformedPath),
        None => Err(ApiError::RouteNotFound { versioned: raw.contains("/v1/") }),
        Some(path) => match route(request.method(), path) {
            Route::Operation(row, subject) => Ok((row, subject)),
            Route::Options(allow) => return (dialect, Err(options_response(&allow))),
            Route::MethodNotAllowed(allow) => {
                Err(ApiError::MethodNotAllowed { method: request.method().clone(), allow })
            }
            Route::NotFound => Err(ApiError::RouteNotFound { versioned: true }),
        },
    };
    (dialect, matched.map_err(|error| error.to_response(dialect)))
}

fn set_policy_header(state: &ApiState, dialect: Dialect, response: &mut Response<ResponseBody>) {
    if dialect == Dialect::Consul {
        set_default_policy_header(response.headers_mut(), state.service.default_policy);
    }
}

/// Routed request: its router, dialect and row.
struct RouteCtx {
    router: Arc<Router>,
    dialect: Dialect,
    row: &'static Row,
}

impl RouteCtx {
    fn state(&self) -> &ApiState {
        &self.router.state
    }

    /// Converts the result into a response, and counts it.
    fn finish(&self, result: Result<Response<ResponseBody>, ApiError>) -> Response<ResponseBody> {
        let response = result.unwrap_or_else(|error| {
            let mut response = error.to_response(self.dialect);
            set_policy_header(self.state(), self.dialect, &mut response);
            response
        });
        let code = response.status().as_u16();
        let labels = AclRequestLabels { operation: self.row.name, code };
        let counter = || self.state().metrics.get::<AclMetrics>().requests.get_or_create(&labels).clone();
        let ok_counter = self.router.ok_counters.get(self.row.operation.index());
        match ok_counter.filter(|_| code == StatusCode::OK.as_u16()) {
            Some(ok_counter) => ok_counter.get_or_init(counter).inc(),
            None => counter().inc(),
        };
        response
    }
}

/// Parses the request, and returns it with its head.
fn parse_request(
    ctx: &RouteCtx,
    subject: String,
    request: Request<IncomingBody>,
) -> Result<(ApiRequest, Parts), ApiError> {
    let (head, body) = request.into_parts();
    let token_in_query = ctx.state().options.token_in_query;
    let mut request = ApiRequest::parse(subject, head.uri.query(), &head.headers, body, token_in_query)?;
    request.audited = AuditedRequest::from_extensions(&head.extensions).cloned();
    Ok((request, head))
}

fn read(
    ctx: RouteCtx,
    operation: ReadOperation,
    subject: String,
    request: Request<IncomingBody>,
) -> ResponseFuture<ResponseBody> {
    let parsed = parse_request(&ctx, subject, request).and_then(|(mut request, head)| {
        let cache_control = head.headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
        let blocking = request.query.take_blocking_query(cache_control)?;
        Ok((request, blocking))
    });
    match parsed {
        Ok((request, blocking)) => ResponseFuture::waiting(async move {
            let result = blocking_query::read(ctx.state(), operation, &request, blocking).await;
            ctx.finish(result)
        }),
        Err(error) => ResponseFuture::ready(ctx.finish(Err(error))),
    }
}

fn write(
    ctx: RouteCtx,
    operation: WriteOperation,
    subject: String,
    request: Request<IncomingBody>,
) -> ResponseFuture<ResponseBody> {
    match parse_request(&ctx, subject, request) {
        Ok((mut request, _)) => ResponseFuture::waiting(async move {
            let mut result = call_write(&ctx, operation, &mut request).await;
            if let Ok(response) = &mut result {
                set_policy_header(ctx.state(), ctx.dialect, response);
            }
            ctx.finish(result)
        }),
        Err(error) => ResponseFuture::ready(ctx.finish(Err(error))),
    }
}

/// Performs an operation that may write, and logs the change for the audit.
async fn call_write(
    ctx: &RouteCtx,
    operation: WriteOperation,
    request: &mut ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let state = ctx.state();
    refuse_during_restore(state, ctx.row.guard).await?;
    let change = match Box::pin(operation.call(state, request)).await? {
        WriteResult::Changed(change) => change,
        WriteResult::Unchanged(response) => return Ok(response.into_http()),
    };
    let operation = ctx.row.name;
    let namespace = change.namespace.as_str();
    let subject = &change.subject;
    let by = change.by.map(|accessor| accessor.to_string());
    if let Some(audited) = &request.audited {
        audited.note(|note| note.subject = Some(subject.clone()));
    }
    tracing::info!(event = "acl.changed", operation, namespace, what = subject, by, "changed ACL records");
    Ok(change.response.into_http())
}

async fn call_vault(
    ctx: &RouteCtx,
    operation: VaultOperation,
    request: VaultRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    refuse_during_restore(ctx.state(), ctx.row.guard).await?;
    operation.call(ctx.state(), request).await
}

/// Refuses an operation while the store is being restored, as its guard says.
async fn refuse_during_restore(state: &ApiState, guard: Guard) -> Result<(), ApiError> {
    match guard {
        Guard::Restore | Guard::Login => Ok(state.service.epoch(Freshness::Linearizable).await.map(drop)?),
        Guard::Health if state.service.was_restoring() => Err(ServiceError::Restoring.into()),
        Guard::Health | Guard::Handler => Ok(()),
    }
}

/// Builds the response to `OPTIONS`, which needs no token.
fn options_response(allow: &str) -> Response<ResponseBody> {
    let mut response = ApiResponse::empty(StatusCode::OK).into_http();
    if let Ok(allow) = HeaderValue::from_str(allow) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// True if a path, still percent-encoded, has no empty or dotted segment and no control character. The last segment may be
/// empty.
fn is_well_formed(path: &str) -> bool {
    // Fast path: most paths have these characters only.
    if path.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/'))
        && !path.starts_with('/')
        && !path.contains("//")
    {
        return true;
    }
    let mut segments = path.split('/').rev();
    let plain = |segment: &str| {
        let decoded: Cow<'_, [u8]> = percent_encoding::percent_decode_str(segment).into();
        let dotted = matches!(&*decoded, b"." | b"..");
        !dotted && std::str::from_utf8(&decoded).is_ok_and(|text| !text.chars().any(char::is_control))
    };
    segments.next().is_none_or(plain) && segments.all(|segment| !segment.is_empty() && plain(segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_empty_or_dotted_segments_or_unprintable_characters_are_malformed() {
        for path in
            ["acl/token/x", "acl/token/", "acl/token/a%20b", "acl/token/%c3%a9", "acl/token/.a", "acl/token/..."]
        {
            assert!(is_well_formed(path), "{path}");
        }
        for path in
            ["acl//token", "acl/./token", "acl/../x", "acl/%2e%2E/x", "acl/%00", "acl/a%0a", "acl/%ff", "acl/.", "/acl"]
        {
            assert!(!is_well_formed(path), "{path}");
        }
    }
}
