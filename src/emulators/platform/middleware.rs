//! Processing of each request before its route, and of each response after it.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName, HeaderValue, RETRY_AFTER, SERVER, USER_AGENT};
use http::{HeaderMap, Method, StatusCode, Uri};
use keyward_telemetry::time_format::format_http_date;
use tower::ServiceExt as _;

use super::EmulatorState;
use super::blobs::PATH as BLOBS;
use super::call_log::{PresentedToken, RecordedCall};
use super::limits::RateLimitStatus;
use super::reply::ApiError;
use super::routes::routes;

/// Builds the router with all routes and middleware.
pub(super) fn router(emulator: EmulatorState) -> Router {
    let removed = axum::middleware::from_fn_with_state(emulator.clone(), if_present);
    let inner = routes()
        .route_layer(removed)
        .fallback(async || ApiError::not_found())
        .method_not_allowed_fallback(async || ApiError::not_found())
        .with_state(emulator.clone());
    Router::new().fallback(handle).with_state(MiddlewareState { emulator, inner })
}

#[derive(Clone)]
struct MiddlewareState {
    emulator: EmulatorState,
    inner: Router,
}

/// Matched route of a request, attached to its response.
#[derive(Clone)]
struct MatchedRoute(String);

/// Answers 404 on routes removed by fault injection.
async fn if_present(
    State(emulator): State<EmulatorState>,
    route: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let name = format!("{} {}", request.method(), route.as_str());
    let removed = emulator.faults.state().settings.removed.contains(&name);
    let mut response = if removed { ApiError::not_found().into_response() } else { next.run(request).await };
    response.extensions_mut().insert(MatchedRoute(route.as_str().to_owned()));
    response
}

async fn handle(State(MiddlewareState { emulator, inner }): State<MiddlewareState>, mut request: Request) -> Response {
    let delay = emulator.faults.state().settings.delay;
    if !delay.is_zero() {
        emulator.faults.clock().sleep(delay).await;
    }
    let uri = normalize_path(request.uri());
    request.extensions_mut().insert(uri.clone());
    *request.uri_mut() = uri;
    let is_secret = request.uri().path().starts_with(BLOBS);
    let mut call = RecordedCall {
        method: request.method().clone(),
        route: String::new(),
        path: if is_secret { String::new() } else { request.uri().path().to_owned() },
        token: PresentedToken::Absent,
        status: 0,
        agent: header_text(request.headers(), USER_AGENT),
    };
    let (mut response, rate_limit) = if is_secret {
        (oneshot(inner, request).await, None)
    } else {
        match authenticate(&emulator, &mut request, &mut call) {
            Ok(rate_limit) => (with_response_loss(&emulator, &call.method, oneshot(inner, request)).await, rate_limit),
            Err(refused) => *refused,
        }
    };
    let mut state = emulator.faults.state();
    let limit = state.settings.limit;
    let headers = response.headers_mut();
    state.settings.edition.insert_headers(headers);
    headers.insert(SERVER, HeaderValue::from_static("keyward-emulated-platform"));
    let date = format_http_date(emulator.faults.clock().now().wall);
    headers.extend(HeaderValue::try_from(date).ok().map(|date| (DATE, date)));
    insert_headers(headers, limit, rate_limit);
    call.status = response.status().as_u16();
    call.route = response.extensions_mut().remove::<MatchedRoute>().map(|met| met.0).unwrap_or_default();
    tracing::debug!(
        event = "dev.platform.call",
        method = call.method.as_str(),
        route = call.route,
        status = call.status,
        token = call.token.as_str(),
        "the emulated platform was called"
    );
    state.call_log.record(call);
    drop(state);
    response
}

async fn oneshot(router: Router, request: Request) -> Response {
    let Ok(response) = router.oneshot(request).await;
    response
}

/// Runs a request; replaces the response by a 504 if its loss is injected.
async fn with_response_loss(
    emulator: &EmulatorState,
    method: &Method,
    response: impl Future<Output = Response>,
) -> Response {
    let is_lost = *method != Method::GET && {
        let mut state = emulator.faults.state();
        let responses_left = state.settings.lost_responses_left;
        state.settings.lost_responses_left = responses_left.saturating_sub(1);
        responses_left > 0
    };
    let mut response = response.await;
    if is_lost {
        *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
        response.headers_mut().clear();
        *response.body_mut() = Body::empty();
    }
    response
}

type EarlyResponse = Box<(Response, Option<RateLimitStatus>)>;

/// Authenticates the caller and applies the rate limit. Attaches the caller to the request.
fn authenticate(
    emulator: &EmulatorState,
    request: &mut Request,
    call: &mut RecordedCall,
) -> Result<Option<RateLimitStatus>, EarlyResponse> {
    let now = emulator.faults.clock().now();
    let mut state = emulator.faults.state();
    let caller = match bearer(request.headers()) {
        None => None,
        Some(text) => {
            let caller = state.tokens.authenticate(text, now.wall);
            call.token =
                caller.as_ref().map_or(PresentedToken::Unknown, |token| PresentedToken::Known(token.id.clone()));
            caller
        }
    };
    let refuse = |response: Response, rate_limit| Err(Box::new((response, rate_limit)));
    if let Some(failure) = state.settings.failing.pop_front() {
        let mut response = ApiError::injected_failure(failure.status).into_response();
        if let Some(seconds) = failure.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        return refuse(response, None);
    }
    let path = request.uri().path();
    let open = matches!(path, "/.well-known/terraform.json" | "/api/v2/ping" | "/api/meta/ip-ranges");
    // go-tfe v2, middleware/content_type.go: required with every write, also without a body.
    let is_write = matches!(*request.method(), Method::POST | Method::PATCH | Method::DELETE);
    if is_write && path.starts_with("/api/v2/") && !request.headers().contains_key(CONTENT_TYPE) {
        return refuse(ApiError::missing_media_type().into_response(), None);
    }
    let Some(caller) = caller else {
        return if open { Ok(None) } else { refuse(ApiError::unauthorized().into_response(), None) };
    };
    // By user, not by token: a new token does not reset the limit.
    let user = caller.acts_as();
    request.extensions_mut().insert(caller);
    let Some(limit) = state.settings.limit else { return Ok(None) };
    let rate_limit = if is_run_list(request) {
        state.windows.count(&format!("{user} runs"), 30, Duration::from_mins(1), now)
    } else {
        state.windows.count(&user, limit, Duration::from_secs(1), now)
    };
    if rate_limit.allowed {
        Ok(Some(rate_limit))
    } else {
        refuse(ApiError::rate_limited().into_response(), Some(rate_limit))
    }
}

/// Returns true for run lists, which have a limit of their own: 30 per minute.
fn is_run_list(request: &Request) -> bool {
    let segments: Vec<&str> = request.uri().path().split('/').skip(1).collect();
    request.method() == Method::GET && matches!(segments[..], ["api", "v2", "workspaces" | "organizations", _, "runs"])
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer ")
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

/// Adds the rate limit headers; seconds until the reset have a fraction. No `Retry-After`: the platform sends none.
fn insert_headers(headers: &mut HeaderMap, limit: Option<u32>, rate_limit: Option<RateLimitStatus>) {
    let mut tell = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    if let Some(limit) = rate_limit.map(|rate_limit| rate_limit.limit).or(limit) {
        tell("x-ratelimit-limit", limit.to_string());
    }
    if let Some(RateLimitStatus { remaining, reset, .. }) = rate_limit {
        tell("x-ratelimit-remaining", remaining.to_string());
        tell("x-ratelimit-reset", format!("{:.3}", reset.as_secs_f64()));
    }
}

/// Removes empty segments from the path: clients send `//` and a trailing slash, and the platform accepts both.
fn normalize_path(uri: &Uri) -> Uri {
    let path = uri.path();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{}{query}", segments.join("/")).parse().unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_segments_are_removed() {
        let check = |from: &str, to: &str| assert_eq!(normalize_path(&from.parse().unwrap()).to_string(), to);
        check("/api/v2/a//b/?x=1//2", "/api/v2/a/b?x=1//2");
        check("/api/v2/a%2F%2Fb/c", "/api/v2/a%2F%2Fb/c");
        check("/", "/");
    }
}
