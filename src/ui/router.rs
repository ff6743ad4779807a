//! Routes a browser's request to its page.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use keyward_http::guard::LogThrottle;
use keyward_http::in_process::InProcessService;
use keyward_http::server::{
    HttpMetrics, IncomingBody, ListenerMetrics, Peer, RefusalLabels, ResponseFuture, ResponseLabels,
};
use keyward_machine::clock::Clock;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::recent_events;
use serde_json::{Map, Value};

use super::browser_session::{BrowserRights, BrowserSessions};
use super::form::Fields;
use super::guard::{Options, PageGuard, PageRejection};
use super::pages::acl::{self, AclKind};
use super::pages::sign_in::{self, SignIn};
use super::pages::{Frame, agent, error_page, gateway, history};
use super::request::{self, SourceError};
use super::response::{self, PageResponse, html, redirect};
use super::sources::{Sources, StatusSource};

/// Collaborators of the pages of one listener.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Ends sign-ins, and is what pages call now.
    pub clock: Clock,
    /// Counts responses and refusals.
    pub listener_metrics: ListenerMetrics,
    /// Status of the agent, with the sessions that the listener may show.
    pub agent: StatusSource,
    /// Parts that run beside the agent.
    pub sources: Sources,
}

/// Builds the service of one listener, for [`keyward_http::server::Listener::serve`].
pub fn service(
    options: Options,
    deps: Deps,
) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<Full<Bytes>> + Clone + Send + 'static {
    let router = Arc::new(Router {
        guard: PageGuard::new(&options),
        sessions: BrowserSessions::new(deps.clock.clone()),
        log_throttle: LogThrottle::default(),
        options,
        deps,
    });
    move |peer, request| {
        let router = Arc::clone(&router);
        ResponseFuture::waiting(async move {
            let response = match router.guard.check(&peer, &request) {
                Ok(()) => router.respond(peer, request).await,
                Err(rejection) => router.refuse(&rejection),
            };
            router.count(response.status());
            response
        })
    }
}

struct Router {
    options: Options,
    guard: PageGuard,
    sessions: BrowserSessions,
    log_throttle: LogThrottle,
    deps: Deps,
}

/// A request that passed the guard, with the rights of its browser.
struct PageRequest {
    method: Method,
    path: String,
    /// Path and query.
    target: String,
    query: Fields,
    headers: HeaderMap,
    /// User of this machine, if known.
    user: Option<u32>,
    rights: BrowserRights,
    frame: Frame,
}

const STYLE: &str = include_str!("assets/style.css");
const HTMX: &str = include_str!("assets/htmx-2.0.11.min.js");

impl Router {
    async fn respond(&self, peer: Peer, request: Request<IncomingBody>) -> PageResponse {
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/static/style.css") => {
                return response::file("text/css; charset=utf-8", STYLE);
            }
            (&Method::GET | &Method::HEAD, "/static/htmx.js") => {
                return response::file("text/javascript; charset=utf-8", HTMX);
            }
            _ => {}
        }
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let target = head.uri.path_and_query().map_or_else(|| path.clone(), ToString::to_string);
        let user = peer.group().user();
        // The page refreshes itself without a person.
        let rights = self.sessions.find(&head.headers, user, path != LIVE);
        let frame = Frame {
            has_acl: self.deps.sources.acl().is_some(),
            has_gateway: self.deps.sources.gateway().is_some(),
            has_key: rights.has_key,
            has_acl_token: rights.acl_token.is_some(),
        };
        let query = Fields::parse(head.uri.query().unwrap_or_default().as_bytes());
        let method = head.method;
        let headers = head.headers;
        let request = PageRequest { method, path, target, query, headers, user, rights, frame };
        match request.method {
            Method::GET | Method::HEAD => self.get(&request).await,
            Method::POST => match Fields::read(body).await {
                Some(form) => self.post(&request, &form).await,
                None => request_error(&request, StatusCode::REQUEST_TIMEOUT, "the form was incomplete or too slow"),
            },
            _ => request_error(
                &request,
                StatusCode::METHOD_NOT_ALLOWED,
                "method not allowed: pages accept GET, forms POST",
            ),
        }
    }

    async fn get(&self, request: &PageRequest) -> PageResponse {
        let path = request.path.as_str();
        if let Some(rest) = path.strip_prefix("/acl/") {
            return self.acl(request, rest).await;
        }
        let page = match path {
            "/" => return redirect("/agent"),
            "/sign-in" => {
                let page = sign_in::page(request.frame, SignIn::Key, local(request.query.get("next")), None);
                return html(StatusCode::OK, page);
            }
            "/agent" | LIVE | "/gateway" | "/history" if !request.rights.has_key => {
                return redirect_to_sign_in(SignIn::Key, request);
            }
            "/agent" | LIVE => Ok(self.agent(request)),
            "/gateway" => self.gateway(request).await,
            "/history" => self.history(request).await,
            _ => Err(not_found()),
        };
        page.unwrap_or_else(|error| request_error(request, error.status, &error.message))
    }

    fn agent(&self, request: &PageRequest) -> PageResponse {
        let status = self.deps.agent.read();
        let events = recent_events::latest();
        let now = self.deps.clock.now().wall;
        let page = match request.path.as_str() {
            LIVE => agent::live(&status, &events, now),
            _ => agent::page(request.frame, &status, &events, now),
        };
        html(StatusCode::OK, page)
    }

    async fn gateway(&self, request: &PageRequest) -> Result<PageResponse, SourceError> {
        let service = self.deps.sources.gateway().ok_or_else(not_found)?;
        let tokens = request::get(&service, "/v1/platform/tokens", None).await?;
        let report = request::get(&service, "/v1/platform/report", None).await?;
        Ok(html(StatusCode::OK, gateway::page(request.frame, &tokens, &report, self.deps.clock.now().wall)))
    }

    async fn history(&self, request: &PageRequest) -> Result<PageResponse, SourceError> {
        let service = self.deps.sources.gateway().ok_or_else(not_found)?;
        let field = |name: &str| request.query.get(name);
        let path = format!("/v1/platform/changes?{}", history::query(field));
        let changes = request::get(&service, &path, None).await?;
        Ok(html(StatusCode::OK, history::page(request.frame, field, &changes)))
    }

    async fn acl(&self, request: &PageRequest, rest: &str) -> PageResponse {
        let Some(service) = self.deps.sources.acl() else {
            return request_error(request, StatusCode::NOT_FOUND, "no ACL server runs in this process");
        };
        if rest == "sign-in" {
            let page = sign_in::page(request.frame, SignIn::AclToken, local(request.query.get("next")), None);
            return html(StatusCode::OK, page);
        }
        let Some(token) = &request.rights.acl_token else { return redirect_to_sign_in(SignIn::AclToken, request) };
        let page = AclPages { service: &service, token, request, now: self.deps.clock.now().wall };
        match page.respond(rest).await {
            Ok(response) => response,
            Err(error) => request_error(request, error.status, &error.message),
        }
    }

    async fn post(&self, request: &PageRequest, form: &Fields) -> PageResponse {
        match request.path.as_str() {
            "/sign-in" => self.sign_in(request, SignIn::Key, form).await,
            "/acl/sign-in" => self.sign_in(request, SignIn::AclToken, form).await,
            "/sign-out" => response::with_cookie(redirect("/sign-in"), self.sessions.sign_out(&request.headers)),
            _ => request_error(request, StatusCode::NOT_FOUND, "no form is sent here"),
        }
    }

    async fn sign_in(&self, request: &PageRequest, method: SignIn, form: &Fields) -> PageResponse {
        let next = local(form.get("next"));
        let again = |status, error: &str| html(status, sign_in::page(request.frame, method, next, Some(error)));
        if let Err(wait) = self.sessions.try_sign_in(request.user) {
            let seconds = wait.as_secs().max(1);
            self.record_refusal("rate", StatusCode::TOO_MANY_REQUESTS, "too many attempts to sign in");
            let mut response =
                again(StatusCode::TOO_MANY_REQUESTS, &format!("too many attempts; try again in {seconds} s"));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            return response;
        }
        let input = form.get(SignIn::FIELD);
        let mut rights = request.rights.clone();
        match method {
            SignIn::Key if secret::ct_eq(&self.options.key, input.as_bytes()) => rights.has_key = true,
            SignIn::Key => {
                let error = "this is not the key of the listener";
                self.record_refusal("key", StatusCode::FORBIDDEN, error);
                return again(StatusCode::FORBIDDEN, error);
            }
            SignIn::AclToken => {
                let token = SecretString::from(input);
                let Some(service) = self.deps.sources.acl() else {
                    return again(StatusCode::NOT_FOUND, "no ACL server runs in this process");
                };
                if let Err(reason) = request::check_token(&service, &token).await {
                    let error = format!("the ACL server refuses this token: {reason}");
                    self.record_refusal("acl_token", StatusCode::FORBIDDEN, &error);
                    return again(StatusCode::FORBIDDEN, &error);
                }
                rights.acl_token = Some(token);
            }
        }
        match self.sessions.sign_in(&request.headers, request.user, rights) {
            Some(cookie) => {
                tracing::info!(event = "ui.signed_in", what = method.name(), "a browser has signed in");
                response::with_cookie(redirect(next), Some(cookie))
            }
            None => again(StatusCode::INTERNAL_SERVER_ERROR, "the kernel returned no random bytes"),
        }
    }

    /// Logs and counts a refused request.
    fn record_refusal(&self, reason: &'static str, status: StatusCode, message: &str) {
        let ListenerMetrics { metrics, listener } = &self.deps.listener_metrics;
        if let Some(suppressed) = self.log_throttle.allow(reason) {
            tracing::warn!(
                event = "local.refused",
                listener,
                reason,
                status = status.as_u16(),
                suppressed = (suppressed > 0).then_some(suppressed),
                "{message}"
            );
        }
        let labels = RefusalLabels { listener: listener.clone(), reason };
        metrics.get::<HttpMetrics>().refused.get_or_create(&labels).inc();
    }

    fn refuse(&self, rejection: &PageRejection) -> PageResponse {
        self.record_refusal(rejection.reason, rejection.status, rejection.message);
        html(rejection.status, error_page(Frame::default(), "Refused", rejection.message))
    }

    fn count(&self, status: StatusCode) {
        let ListenerMetrics { metrics, listener } = &self.deps.listener_metrics;
        let labels = ResponseLabels { listener: listener.clone(), code: status.as_u16() };
        metrics.get::<HttpMetrics>().requests.get_or_create(&labels).inc();
    }
}

/// Path of the part of the agent's page that a script refreshes.
const LIVE: &str = "/agent/live";

/// Pages of the ACL server, with the rights of the browser's token.
struct AclPages<'a> {
    service: &'a InProcessService,
    token: &'a SecretString,
    request: &'a PageRequest,
    now: std::time::SystemTime,
}

impl AclPages<'_> {
    async fn respond(&self, rest: &str) -> Result<PageResponse, SourceError> {
        let mut segments = rest.split('/');
        let kind = segments.next().and_then(AclKind::parse).ok_or_else(not_found)?;
        match (segments.next().map(decode), segments.next(), segments.next()) {
            (None, None, None) => self.list(kind).await,
            (Some(id), None, None) => self.record(kind, &id?).await,
            (Some(id), Some("explain"), None) if kind == AclKind::Token => self.explain(&id?).await,
            _ => Err(not_found()),
        }
    }

    fn namespace(&self) -> &str {
        self.request.query.get("ns")
    }

    async fn read<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, SourceError> {
        request::get(self.service, path, Some(self.token)).await
    }

    async fn list(&self, kind: AclKind) -> Result<PageResponse, SourceError> {
        let records: Vec<Value> = self.read(&kind.api_list(self.namespace())).await?;
        let search = self.request.query.get("q");
        let page = acl::list_page(self.request.frame, kind, &records, self.namespace(), search, self.now);
        Ok(html(StatusCode::OK, page))
    }

    async fn record(&self, kind: AclKind, id: &str) -> Result<PageResponse, SourceError> {
        let record: Map<String, Value> = self.read(&kind.api_read(id, self.namespace())).await?;
        let record = Value::Object(record);
        let mut dependents = Vec::new();
        for list in kind.dependents(id, &record, self.namespace()) {
            let mut records: Vec<Value> = self.read(&list.api_path).await?;
            if let Some((field, text)) = &list.matching {
                records.retain(|record| record[*field].as_str() == Some(text));
            }
            dependents.push((list.kind, records));
        }
        let Value::Object(record) = record else { return Err(not_found()) };
        let page = acl::record_page(self.request.frame, kind, &record, &dependents, self.namespace(), self.now);
        Ok(html(StatusCode::OK, page))
    }

    async fn explain(&self, accessor: &str) -> Result<PageResponse, SourceError> {
        let field = |name: &str| self.request.query.get(name);
        let path = acl::explain_path(accessor, self.namespace());
        let body = acl::request_body(field);
        let responses: Vec<acl::Explained> = request::post(self.service, &path, Some(self.token), &body).await?;
        let accesses = body.as_array().map(Vec::as_slice).unwrap_or_default();
        let access = |request: &Value| request["Access"].as_str().unwrap_or_default().to_owned();
        let explained: Vec<(String, acl::Explained)> = accesses.iter().map(access).zip(responses).collect();
        let page = acl::explain_page(self.request.frame, accessor, self.namespace(), field, &explained);
        Ok(html(StatusCode::OK, page))
    }
}

fn request_error(request: &PageRequest, status: StatusCode, message: &str) -> PageResponse {
    html(status, error_page(request.frame, status.canonical_reason().unwrap_or("Error"), message))
}

/// Sends the browser to a page that asks for a secret, and back afterwards.
fn redirect_to_sign_in(method: SignIn, request: &PageRequest) -> PageResponse {
    let next = if request.path == LIVE { "/agent" } else { request.target.as_str() };
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    let mut response = redirect(&format!("{}?{query}", method.path()));
    // A script that refreshes a part of a page has to leave the page.
    if request.headers.contains_key("hx-request") {
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().insert("hx-redirect", HeaderValue::from_static("/sign-in?next=%2Fagent"));
    }
    response
}

/// Returns a path of ours that a form names; `/` in place of an address elsewhere.
fn local(next: &str) -> &str {
    let is_path =
        next.starts_with('/') && !next.starts_with("//") && !next.contains(|c: char| c == '\\' || c.is_control());
    if is_path { next } else { "/" }
}

fn decode(segment: &str) -> Result<String, SourceError> {
    let decoded = percent_encoding::percent_decode_str(segment).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| not_found())
}

fn not_found() -> SourceError {
    SourceError { status: StatusCode::NOT_FOUND, message: "page not found".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_leads_to_paths_of_ours_alone() {
        for path in ["/agent", "/acl/tokens?ns=team"] {
            assert_eq!(local(path), path);
        }
        for elsewhere in
            ["", "https://evil.example", "//evil.example", "/\\evil.example", "/a\r\nb", "/\t/evil.example"]
        {
            assert_eq!(local(elsewhere), "/", "{elsewhere}");
        }
    }
}
