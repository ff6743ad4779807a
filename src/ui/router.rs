//! Routes a browser's request to its page.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use keyward_http::guard::LogThrottle;
use keyward_http::in_process::InProcessService;
use keyward_http::server::{
    HttpMetrics, IncomingBody, ListenerMetrics, Peer, RefusalLabels, ResponseFuture, ResponseLabels,
};
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::recent_events;

use super::acl_pages::AclPages;
use super::browser_session::BrowserSessions;
use super::form::Fields;
use super::guard::{Options, PageGuard, PageRejection};
use super::page_request::PageRequest;
use super::pages::agent::{AgentView, LIVE};
use super::pages::history::{self, ChangesPage};
use super::pages::sign_in::{self, SignIn};
use super::pages::{EventFilter, Frame, codes, error_page, gateway};
use super::request::{self, SourceError};
use super::response::{self, PageResponse, html, redirect};
use super::search::Search;
use super::sources::Deps;

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
        history_resources: OnceLock::new(),
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
    history_resources: OnceLock<Vec<String>>,
}

const STYLE: &str = include_str!("assets/style.css");
const MARK: &str = include_str!("assets/mark.svg");
const HTMX: &str = include_str!("assets/htmx-2.0.11.min.js");

impl Router {
    async fn respond(&self, peer: Peer, request: Request<IncomingBody>) -> PageResponse {
        match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/static/style.css") => {
                return response::file("text/css; charset=utf-8", STYLE);
            }
            (&Method::GET | &Method::HEAD, "/static/mark.svg") => {
                return response::file("image/svg+xml", MARK);
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
                None => request.error(StatusCode::REQUEST_TIMEOUT, "the form was incomplete or too slow"),
            },
            _ => request.error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed: pages accept GET, forms POST"),
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
            "/search" if !request.rights.any() => return redirect_to_sign_in(SignIn::Key, request),
            "/search" => Ok(Search { deps: &self.deps, request }.respond().await),
            "/codes" => Ok(html(StatusCode::OK, codes::index(request.frame))),
            _ if path.starts_with("/codes/") => self.code(request, &path["/codes/".len()..]),
            _ => Err(SourceError::not_found()),
        };
        page.unwrap_or_else(|error| request.error(error.status, &error.message))
    }

    fn agent(&self, request: &PageRequest) -> PageResponse {
        let filter = EventFilter {
            level: request.query.get("level"),
            session: request.query.get("session"),
            own_sign_ins: &request.rights.sign_ins,
        };
        let (status, events) = (self.deps.agent.read(), recent_events::latest());
        let view = AgentView { status: &status, events: &events, filter, now: self.deps.clock.now().wall };
        let page = if request.path == LIVE { view.live() } else { view.page(request.frame) };
        html(StatusCode::OK, page)
    }

    /// Explains an error code, which is no secret. Its events are for those with the listener's key.
    fn code(&self, request: &PageRequest, code: &str) -> Result<PageResponse, SourceError> {
        let code = code.parse().map_err(|_| SourceError::not_found())?;
        let events = request.rights.has_key.then(recent_events::latest);
        let page = codes::page(request.frame, code, events.as_deref(), self.deps.clock.now().wall);
        Ok(html(StatusCode::OK, page))
    }

    async fn gateway(&self, request: &PageRequest) -> Result<PageResponse, SourceError> {
        let service = self.deps.sources.gateway().ok_or_else(SourceError::not_found)?;
        let tokens = request::get(&service, "/v1/platform/tokens", None).await?;
        let report = request::get(&service, "/v1/platform/report", None).await?;
        Ok(html(StatusCode::OK, gateway::page(request.frame, &tokens, &report, self.deps.clock.now().wall)))
    }

    async fn history(&self, request: &PageRequest) -> Result<PageResponse, SourceError> {
        let service = self.deps.sources.gateway().ok_or_else(SourceError::not_found)?;
        let field = |name: &str| request.query.get(name);
        let path = format!("/v1/platform/changes?{}", history::query(field));
        let changes = request::get(&service, &path, None).await?;
        let resources = self.history_resources(&service).await?;
        Ok(html(StatusCode::OK, history::page(request.frame, field, &changes, resources)))
    }

    /// Names of all resources of the history, which is a part of the program and does not change.
    async fn history_resources(&self, service: &InProcessService) -> Result<&[String], SourceError> {
        if let Some(resources) = self.history_resources.get() {
            return Ok(resources);
        }
        let mut names = BTreeSet::new();
        let mut next = Some(1);
        while let Some(number) = next {
            let path = format!("/v1/platform/changes?{}", history::all_changes(number));
            let changes: ChangesPage = request::get(service, &path, None).await?;
            names.extend(changes.resources().map(str::to_owned));
            next = changes.next();
        }
        Ok(self.history_resources.get_or_init(|| names.into_iter().collect()))
    }

    async fn acl(&self, request: &PageRequest, rest: &str) -> PageResponse {
        let Some(service) = self.deps.sources.acl() else {
            return request.error(StatusCode::NOT_FOUND, "no ACL server runs in this process");
        };
        if rest == "sign-in" {
            let page = sign_in::page(request.frame, SignIn::AclToken, local(request.query.get("next")), None);
            return html(StatusCode::OK, page);
        }
        let Some(token) = &request.rights.acl_token else { return redirect_to_sign_in(SignIn::AclToken, request) };
        let page = AclPages { service: &service, token, request, now: self.deps.clock.now().wall };
        match page.respond(rest).await {
            Ok(response) => response,
            Err(error) => request.error(error.status, &error.message),
        }
    }

    async fn post(&self, request: &PageRequest, form: &Fields) -> PageResponse {
        match request.path.as_str() {
            "/sign-in" => self.sign_in(request, SignIn::Key, form).await,
            "/acl/sign-in" => self.sign_in(request, SignIn::AclToken, form).await,
            "/sign-out" => response::with_cookie(redirect("/sign-in"), self.sessions.sign_out(&request.headers)),
            _ => request.error(StatusCode::NOT_FOUND, "no form is sent here"),
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
        let sign_in = rights.number_sign_in();
        match self.sessions.sign_in(&request.headers, request.user, rights) {
            Some(cookie) => {
                tracing::info!(event = "ui.signed_in", sign_in, what = method.name(), "a browser has signed in");
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

/// Sends the browser to a page that asks for a secret, and back afterwards.
fn redirect_to_sign_in(method: SignIn, request: &PageRequest) -> PageResponse {
    let mut response = redirect(&request.sign_in_link(method));
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
