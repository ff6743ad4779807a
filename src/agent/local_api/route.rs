//! Routes a request of the local API to its handler: guard, path, method, session.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use keyward_http::guard::{Guard, LocalCaller};
use keyward_http::server::{self, HttpMetrics, IncomingBody, ListenerLimits, ListenerMetrics, Peer, ResponseLabels};
use keyward_telemetry::audit::AuditedRequest;
use prometheus_client::metrics::counter::Counter;

use super::endpoints::{Endpoint, READ, Route, WRITE};
use super::query::{self, Query};
use super::retry::RetryQuery;
use super::token::{CALLER_TOKEN_WAIT, ServedSession, note_token};
use super::token_wait::{TokenWait, WaitSlots};
use super::{ListenerKind, LocalApiDeps, LocalApiOptions, check, health_endpoints, refresh, retry, rotate};
use crate::caller_tokens::{PendingProcessToken, TokenMap};
use crate::callers::{AdmittedCaller, CallerRefusal};
use crate::json_response::{Errors, error, method_not_allowed, rejection_response, retry_later};
use crate::rotation::Rotation;
use crate::secrets::RefreshScope;
use crate::token::SessionHandle;

type ApiFuture = server::ResponseFuture<Full<Bytes>>;

/// Builds the 503 for a request whose audit record cannot be kept.
pub fn unaudited_response(message: &str) -> Response<Full<Bytes>> {
    error(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// Builds the service of one listener, for [`keyward_http::server::Listener::serve`].
pub fn service(
    options: LocalApiOptions,
    deps: LocalApiDeps,
) -> impl Fn(Peer, Request<IncomingBody>) -> server::ResponseFuture<Full<Bytes>> + Clone + Send + Sync + 'static {
    let api = Arc::new(Api::new(options, deps));
    move |peer, request| Api::respond(&api, &peer, &request)
}

struct Api {
    name: String,
    kind: ListenerKind,
    sessions: BTreeMap<String, ServedSession>,
    names: BTreeSet<String>,
    /// The session, if there is exactly one.
    single_session: Option<(String, ServedSession)>,
    /// Sessions that serve caller tokens.
    caller_sessions: TokenMap<ServedSession>,
    guard: Guard,
    deps: LocalApiDeps,
    waiting: WaitSlots,
    checking: WaitSlots,
    /// Looked up once: a look-up by labels costs more than the rest of a response.
    ok_counter: Counter,
}

impl Api {
    fn new(options: LocalApiOptions, deps: LocalApiDeps) -> Self {
        let LocalApiOptions { name, kind, sessions } = options;
        let sessions = if kind == ListenerKind::Health { BTreeMap::new() } else { sessions };
        let listener_metrics = Some(ListenerMetrics { metrics: deps.metrics.clone(), listener: name.clone() });
        let guard = match kind {
            ListenerKind::LocalApi => Guard::new(deps.guard.clone(), deps.address, listener_metrics),
            ListenerKind::Health => Guard::for_probes(listener_metrics),
        };
        let names = sessions.keys().cloned().collect();
        let serve = |(name, handle): (String, SessionHandle)| {
            let served = ServedSession::new(name.clone(), handle, deps.clock.clone());
            (name, served)
        };
        let sessions: BTreeMap<String, ServedSession> = sessions.into_iter().map(serve).collect();
        let mut all = sessions.iter().map(|(name, served)| (name.clone(), served.clone()));
        let single_session = all.next().filter(|_| sessions.len() == 1);
        let ok_counter = counter(&deps, &name, StatusCode::OK);
        // Leaves a quarter of the connections to callers that do not wait.
        let connections = ListenerLimits::default().connections;
        let waiting = WaitSlots::new(connections / 2);
        let checking = WaitSlots::new(connections / 4);
        let caller_sessions = TokenMap::default();
        Self {
            name,
            kind,
            sessions,
            names,
            single_session,
            caller_sessions,
            guard,
            deps,
            waiting,
            checking,
            ok_counter,
        }
    }

    fn respond<B>(this: &Arc<Self>, peer: &Peer, request: &Request<B>) -> ApiFuture {
        let answering = match this.guard.admit(peer, request) {
            Ok(local) => this.route(&local, request).unwrap_or_else(|cause| ApiFuture::ready(cause.to_response())),
            Err(refusal) => ApiFuture::ready(rejection_response(&refusal)),
        };
        // Read in place: a response is so large that each move of it shows in the benchmark.
        if let ApiFuture::Ready(response) = &answering {
            this.count(response.as_ref().map_or(StatusCode::OK, Response::status));
            return answering;
        }
        let this = Arc::clone(this);
        ApiFuture::waiting(async move {
            let response = answering.await;
            this.count(response.status());
            response
        })
    }

    fn count(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.ok_counter.inc();
        } else {
            counter(&self.deps, &self.name, status).inc();
        }
    }

    fn route<B>(&self, local: &LocalCaller, request: &Request<B>) -> Result<ApiFuture, ApiError> {
        let path = request.uri().path();
        let served = |endpoint: &&Endpoint| self.kind == ListenerKind::LocalApi || endpoint.audited.is_none();
        let Some(endpoint) = Endpoint::find(path).filter(served) else {
            return Err(ApiError::new(StatusCode::NOT_FOUND, "no endpoint has this path"));
        };
        let is_allowed = match *request.method() {
            Method::GET | Method::HEAD => endpoint.methods == READ,
            Method::POST => endpoint.methods == WRITE,
            _ => false,
        };
        if !is_allowed {
            return Ok(ApiFuture::ready(method_not_allowed(endpoint.methods)));
        }
        let caller = match self.deps.callers.admit(request, &[endpoint.required]) {
            Ok(caller) => GrantedCaller { local, caller },
            Err(refusal) => return Ok(ApiFuture::ready(refusal.to_response())),
        };
        Ok(match endpoint.route {
            Route::Token => return self.token(caller, request),
            Route::Check => return self.check(caller, request),
            Route::Retry => return self.retry(caller, request),
            Route::Refresh => return self.refresh(caller, request),
            Route::Rotate => return self.rotate(caller, request),
            Route::Status => {
                let visible = |name: &String| self.names.contains(name) && caller.caller.permits_session(name);
                ApiFuture::ready(health_endpoints::status(&self.deps, visible))
            }
            Route::Live => ApiFuture::ready(health_endpoints::live()),
            Route::Ready => ApiFuture::ready(health_endpoints::ready(&self.deps)),
            Route::Component => {
                let name = path.strip_prefix(endpoint.path).unwrap_or_default();
                ApiFuture::ready(health_endpoints::component(&self.deps, name))
            }
            Route::Started => ApiFuture::ready(health_endpoints::started(&self.deps)),
            Route::Metrics => ApiFuture::ready(health_endpoints::metrics(&self.deps)),
        })
    }

    fn token<B>(&self, caller: GrantedCaller<'_>, request: &Request<B>) -> Result<ApiFuture, ApiError> {
        let query = request.uri().query();
        if let (None, Some((name, served))) = (query, &self.single_session)
            && caller.caller.permits_session(name)
        {
            let served = self.with_caller_token(caller, name, served)?;
            if !served.is_missing_caller_token() {
                self.record_grant(caller, "token", name, &served, request);
                return Ok(ApiFuture::ready(served.reader.now()));
            }
        }
        let query = Query::parse(query, &["session", "wait", "after"])?;
        let (name, session) = self.named_session(caller, query.session.as_deref())?;
        let process = self.deps.caller_tokens.process_token(&caller.caller, name);
        let awaits_session =
            !query.wait.is_zero() && process.as_ref().is_some_and(PendingProcessToken::is_session_absent);
        let mut wait = query.wait;
        // While a process waits for the session, this is the session, whose token the caller must not get.
        let served = if awaits_session {
            Cow::Borrowed(session)
        } else {
            let served = self.with_caller_token(caller, name, session)?;
            // Only the token of a process is created by the request; others are created in advance.
            if process.is_some() && served.is_missing_caller_token() {
                wait = wait.max(CALLER_TOKEN_WAIT);
            }
            served
        };
        self.record_grant(caller, "token", name, &served, request);
        if !awaits_session && (wait.is_zero() || served.reader.has_changed(query.after.as_deref())) {
            return Ok(ApiFuture::ready(served.reader.now()));
        }
        let waiting = TokenWait {
            session: name.into(),
            after: query.after.map(Cow::into_owned),
            wait,
            caller: caller.caller.to_waiting(),
            audited: AuditedRequest::from_extensions(request.extensions()).cloned(),
            stop: self.deps.stop.clone(),
        };
        Ok(match process {
            Some(process) => self.waiting.wait(waiting.respond_for_process(process, self.deps.clock.clone())),
            None => self.waiting.wait(waiting.respond_for_session(served.into_owned())),
        })
    }

    fn check<B>(&self, caller: GrantedCaller<'_>, request: &Request<B>) -> Result<ApiFuture, ApiError> {
        let query = Query::parse(request.uri().query(), &["session"])?;
        let (name, served) = self.session(caller, query.session.as_deref())?;
        self.record_grant(caller, "check", name, &served, request);
        let SessionHandle { watch, refresh_signal } = served.handle.clone();
        let clock = self.deps.clock.clone();
        let stop = self.deps.stop.clone();
        let response = check::check(Arc::clone(&served.reader), watch, refresh_signal, clock, stop);
        Ok(self.checking.wait(response))
    }

    fn retry<B>(&self, caller: GrantedCaller<'_>, request: &Request<B>) -> Result<ApiFuture, ApiError> {
        let query = Query::parse(request.uri().query(), &["session", "force"])?;
        let (name, served) = self.session(caller, query.session.as_deref())?;
        self.record_grant(caller, "retry", name, &served, request);
        let clock = self.deps.clock.clone();
        let stop = self.deps.stop.clone();
        let (statuses, session) = (self.deps.session_statuses.clone(), name.to_owned());
        let last_error = Box::new(move || statuses.sessions().remove(&session)?.last_error);
        let request = RetryQuery { force: query.force, is_session: !served.has_caller_token, last_error };
        let response = retry::retry(Arc::clone(&served.reader), served.handle.clone(), request, clock, stop);
        Ok(self.checking.wait(response))
    }

    fn refresh<B>(&self, caller: GrantedCaller<'_>, request: &Request<B>) -> Result<ApiFuture, ApiError> {
        let query = Query::parse(request.uri().query(), &["session", "path", "force"])?;
        let (name, served) = self.named_session(caller, query.session.as_deref())?;
        self.record_grant(caller, "refresh", name, served, request);
        let scope = RefreshScope { path: query.path.map(Cow::into_owned), replaces: query.force };
        let registry = self.deps.secrets.find(name);
        Ok(self.checking.wait(refresh::refresh(registry, scope, self.deps.stop.clone())))
    }

    fn rotate<B>(&self, caller: GrantedCaller<'_>, request: &Request<B>) -> Result<ApiFuture, ApiError> {
        let query = Query::parse(request.uri().query(), &["certificate"])?;
        let permitted = |session: &str| self.names.contains(session) && caller.caller.permits_session(session);
        let mut rotations = self.deps.rotations.certificates(permitted);
        let names = rotations.iter().map(Rotation::name).collect::<Vec<_>>().join(", ");
        let refuse = |status, text: &str| ApiError { status, message: format!("{text}{names}"), retry_after: None };
        let rotation = match (&query.certificate, rotations.len()) {
            (_, 0) => {
                return Err(ApiError::new(
                    StatusCode::NOT_FOUND,
                    "this listener serves no session with a certificate of an engine",
                ));
            }
            (None, 1) => rotations.remove(0),
            (None, _) => {
                return Err(refuse(StatusCode::BAD_REQUEST, "name a certificate, ?certificate=NAME; there are "));
            }
            (Some(name), _) => rotations
                .into_iter()
                .find(|rotation| rotation.name() == *name)
                .ok_or_else(|| refuse(StatusCode::NOT_FOUND, "there is no such certificate; there are "))?,
        };
        let (session, served) = self.named_session(caller, Some(rotation.session()))?;
        self.record_grant(caller, "rotate", session, served, request);
        Ok(self.checking.wait(rotate::rotate(rotation, self.deps.stop.clone())))
    }

    /// Returns the session that a request names, or the only one that the caller may use, with the caller token in
    /// place of the session's if it has one.
    fn session<'a>(
        &'a self,
        caller: GrantedCaller<'_>,
        requested: Option<&str>,
    ) -> Result<(&'a str, Cow<'a, ServedSession>), ApiError> {
        let (name, served) = self.named_session(caller, requested)?;
        Ok((name, self.with_caller_token(caller, name, served)?))
    }

    /// Returns the session that serves the caller token; `served` if the caller has none.
    fn with_caller_token<'a>(
        &self,
        caller: GrantedCaller<'_>,
        name: &str,
        served: &'a ServedSession,
    ) -> Result<Cow<'a, ServedSession>, ApiError> {
        let Some(token) = self.deps.caller_tokens.resolve(&caller.caller, name)? else {
            return Ok(Cow::Borrowed(served));
        };
        let session = self.caller_sessions.get_or_build(&token, |handle| ServedSession {
            has_caller_token: true,
            ..ServedSession::new(name.to_owned(), handle, self.deps.clock.clone())
        });
        Ok(Cow::Owned(ServedSession::clone(&session)))
    }

    fn named_session(
        &self,
        caller: GrantedCaller<'_>,
        requested: Option<&str>,
    ) -> Result<(&str, &ServedSession), ApiError> {
        let permitted = |name: &str| caller.caller.permits_session(name);
        // Check before the lookup, so that the response does not reveal which sessions exist.
        if let Some(refusal) = requested.filter(|name| !permitted(name)).and_then(|_| caller.caller.refuse_session()) {
            return Err(refusal.into());
        }
        let all = || self.sessions.iter().filter(|(name, _)| permitted(name));
        let listed = || all().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let mut all = all();
        match (requested, all.next(), all.next()) {
            (Some(requested), ..) => {
                self.sessions.get_key_value(requested).map(|(name, served)| (&**name, served)).ok_or_else(|| {
                    let message = format!("this listener does not serve that session; it serves {}", listed());
                    ApiError { status: StatusCode::NOT_FOUND, message, retry_after: None }
                })
            }
            (None, Some((name, served)), None) => Ok((name, served)),
            (None, None, _) => Err(ApiError::new(StatusCode::NOT_FOUND, "this listener serves no session")),
            (None, Some(_), Some(_)) => {
                let message = format!("{SESSION_NEEDED}{}", listed());
                Err(ApiError { status: StatusCode::BAD_REQUEST, message, retry_after: None })
            }
        }
    }

    /// Logs a grant, and notes it for the audit.
    fn record_grant<B>(
        &self,
        granted: GrantedCaller<'_>,
        what: &'static str,
        session: &str,
        served: &ServedSession,
        request: &Request<B>,
    ) {
        if let Some(audited) = AuditedRequest::from_extensions(request.extensions()) {
            note_token(audited, &session.into(), &served.handle.watch);
        }
        tracing::debug!(
            event = "local.granted",
            listener = self.name,
            what,
            session,
            caller = granted.caller.name(),
            uid = granted.local.uid,
            pid = granted.local.pid,
            "granted the request of a local caller"
        );
    }
}

/// Caller whose request is granted, as the guard and as the rules know it.
#[derive(Clone, Copy)]
struct GrantedCaller<'a> {
    local: &'a LocalCaller,
    caller: AdmittedCaller<'a>,
}

/// Error response to an admitted request.
struct ApiError {
    status: StatusCode,
    message: String,
    retry_after: Option<Duration>,
}

impl ApiError {
    fn new(status: StatusCode, message: &str) -> Self {
        Self { status, message: message.to_owned(), retry_after: None }
    }

    fn to_response(&self) -> Response<Full<Bytes>> {
        match self.retry_after {
            Some(wait) => retry_later(self.status, &Errors { errors: [&self.message] }, wait),
            None => error(self.status, &self.message),
        }
    }
}

impl From<CallerRefusal> for ApiError {
    fn from(refusal: CallerRefusal) -> Self {
        Self { status: refusal.status, message: refusal.message, retry_after: refusal.retry_after }
    }
}

impl From<query::QueryError> for ApiError {
    fn from(malformed: query::QueryError) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: malformed.to_string(), retry_after: None }
    }
}

fn counter(deps: &LocalApiDeps, listener: &str, status: StatusCode) -> Counter {
    let label = ResponseLabels { listener: listener.to_owned(), code: status.as_u16() };
    deps.metrics.get::<HttpMetrics>().requests.get_or_create(&label).clone()
}

/// Error of a request that names none of several sessions; their names follow. `keyward token` and `retry` name their flag for it.
pub const SESSION_NEEDED: &str = "name a session, ?session=NAME; this listener serves ";
