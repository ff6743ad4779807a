//! What happens to each request before its route, and to each answer after it.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, DATE, HeaderName, HeaderValue, RETRY_AFTER, SERVER, USER_AGENT};
use http::{HeaderMap, Method, StatusCode, Uri};
use tower::ServiceExt as _;

use super::Held;
use super::blobs::PATH as BLOBS;
use super::ids;
use super::limits::Standing;
use super::records::{Call, Presented};
use super::reply::Refusal;
use super::routes::routes;

/// Everything there is, with what comes before and after.
pub(super) fn router(held: Held) -> Router {
    let removed = axum::middleware::from_fn_with_state(held.clone(), if_present);
    let inner = routes()
        .route_layer(removed)
        .fallback(async || Refusal::not_found())
        .method_not_allowed_fallback(async || Refusal::not_found())
        .with_state(held.clone());
    Router::new().fallback(enter).with_state(Entrance { held, inner })
}

#[derive(Clone)]
struct Entrance {
    held: Held,
    inner: Router,
}

/// The route that a request met, on its answer.
#[derive(Clone)]
struct Met(String);

/// Answers 404 for a route that a dial has removed.
async fn if_present(State(held): State<Held>, route: MatchedPath, request: Request, next: Next) -> Response {
    let name = format!("{} {}", request.method(), route.as_str());
    let removed = held.dials.state().turned.removed.contains(&name);
    let mut answer = if removed { Refusal::not_found().into_response() } else { next.run(request).await };
    answer.extensions_mut().insert(Met(route.as_str().to_owned()));
    answer
}

async fn enter(State(Entrance { held, inner }): State<Entrance>, mut request: Request) -> Response {
    let delay = held.dials.state().turned.delay;
    if !delay.is_zero() {
        held.dials.clock().sleep(delay).await;
    }
    let uri = plain(request.uri());
    request.extensions_mut().insert(uri.clone());
    *request.uri_mut() = uri;
    let is_secret = request.uri().path().starts_with(BLOBS);
    let mut call = Call {
        method: request.method().clone(),
        route: String::new(),
        path: if is_secret { String::new() } else { request.uri().path().to_owned() },
        token: Presented::Absent,
        status: 0,
        agent: text(request.headers(), USER_AGENT),
    };
    let (mut answer, standing) = if is_secret {
        (oneshot(inner, request).await, None)
    } else {
        match admit(&held, &mut request, &mut call) {
            Ok(standing) => (lost(&held, &call.method, oneshot(inner, request)).await, standing),
            Err(refused) => *refused,
        }
    };
    let mut state = held.dials.state();
    let limit = state.turned.limit;
    let headers = answer.headers_mut();
    state.turned.edition.tell(headers);
    headers.insert(SERVER, HeaderValue::from_static("keyward-emulated-platform"));
    headers.extend(ids::http_date(held.dials.clock().now().wall).map(|date| (DATE, date)));
    tell(headers, limit, standing);
    call.status = answer.status().as_u16();
    call.route = answer.extensions_mut().remove::<Met>().map(|met| met.0).unwrap_or_default();
    tracing::debug!(event = "dev.platform.call", method = %call.method, route = call.route, status = call.status, token = ?call.token);
    state.records.note(call);
    drop(state);
    answer
}

async fn oneshot(router: Router, request: Request) -> Response {
    let Ok(answer) = router.oneshot(request).await;
    answer
}

/// The answer to a request, unless a dial says that it gets lost after it was done.
async fn lost(held: &Held, method: &Method, answer: impl Future<Output = Response>) -> Response {
    let lost = *method != Method::GET && {
        let mut state = held.dials.state();
        let losing = state.turned.losing;
        state.turned.losing = losing.saturating_sub(1);
        losing > 0
    };
    let mut answer = answer.await;
    if lost {
        *answer.status_mut() = StatusCode::GATEWAY_TIMEOUT;
        answer.headers_mut().clear();
        *answer.body_mut() = Body::empty();
    }
    answer
}

type Refused = Box<(Response, Option<Standing>)>;

/// Who asks, and whether now. Who it is goes along with the request.
fn admit(held: &Held, request: &mut Request, call: &mut Call) -> Result<Option<Standing>, Refused> {
    let now = held.dials.clock().now();
    let mut state = held.dials.state();
    let caller = match bearer(request.headers()) {
        None => None,
        Some(text) => {
            let caller = state.tokens.present(text, now.wall);
            call.token = caller.as_ref().map_or(Presented::Unknown, |token| Presented::Known(token.id.clone()));
            caller
        }
    };
    let refuse = |answer: Response, standing| Err(Box::new((answer, standing)));
    if let Some(failure) = state.turned.failing.pop_front() {
        let mut answer = Refusal::told(failure.status).into_response();
        if let Some(seconds) = failure.retry_after {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        return refuse(answer, None);
    }
    let path = request.uri().path();
    let open = matches!(path, "/.well-known/terraform.json" | "/api/v2/ping" | "/api/meta/ip-ranges");
    let Some(caller) = caller else {
        return if open { Ok(None) } else { refuse(Refusal::unauthorized().into_response(), None) };
    };
    // By user, not by token: a fresh token gives no fresh limit.
    let user = caller.acts_as();
    request.extensions_mut().insert(caller);
    let Some(limit) = state.turned.limit else { return Ok(None) };
    let standing = if is_run_list(request) {
        state.spans.count(&format!("{user} runs"), 30, Duration::from_mins(1), now)
    } else {
        state.spans.count(&user, limit, Duration::from_secs(1), now)
    };
    if standing.allowed { Ok(Some(standing)) } else { refuse(Refusal::too_many().into_response(), Some(standing)) }
}

/// Both run lists have a limit of their own: thirty a minute.
fn is_run_list(request: &Request) -> bool {
    let segments: Vec<&str> = request.uri().path().split('/').skip(1).collect();
    request.method() == Method::GET && matches!(segments[..], ["api", "v2", "workspaces" | "organizations", _, "runs"])
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer ")
}

fn text(headers: &HeaderMap, name: HeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

/// Seconds until a new span are told with their fraction. There is no `Retry-After`: the platform has none.
fn tell(headers: &mut HeaderMap, limit: Option<u32>, standing: Option<Standing>) {
    let mut tell = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    if let Some(limit) = standing.map(|standing| standing.limit).or(limit) {
        tell("x-ratelimit-limit", limit.to_string());
    }
    if let Some(Standing { left, reset, .. }) = standing {
        tell("x-ratelimit-remaining", left.to_string());
        tell("x-ratelimit-reset", format!("{:.3}", reset.as_secs_f64()));
    }
}

/// The path without empty segments: clients in use send `//` and a slash at the end, and the platform takes both.
fn plain(uri: &Uri) -> Uri {
    let path = uri.path();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{}{query}", segments.join("/")).parse().unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_segments_go_and_nothing_else_does() {
        let check = |from: &str, to: &str| assert_eq!(plain(&from.parse().unwrap()).to_string(), to);
        check("/api/v2/a//b/?x=1//2", "/api/v2/a/b?x=1//2");
        check("/api/v2/a%2F%2Fb/c", "/api/v2/a%2F%2Fb/c");
        check("/", "/");
    }
}
