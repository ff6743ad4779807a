//! Routes a request to its form: guard, path, method, caller, identity.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use keyward_http::guard::{Guard, GuardRejection, LogThrottle};
use keyward_http::server::{HttpMetrics, IncomingBody, ListenerMetrics, Peer, ResponseFuture, ResponseLabels};
use keyward_telemetry::audit::AuditedRequest;

use super::form::Form;
use super::metrics::{IdentityApiMetrics, IdentityRequestLabels};
use super::request::{FormError, FormRequest, FormResponse};
use super::{IdentityApiDeps, IdentityApiOptions};
use crate::callers::{AdmittedCaller, CallerRefusal, CallerRoute};
use crate::identity_tokens::IdentityTokens;
use crate::json_response::{error, method_not_allowed, rejection_response};

/// Builds the service of one listener, for [`keyward_http::server::Listener::serve`].
pub fn service(
    options: IdentityApiOptions,
    deps: IdentityApiDeps,
) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<Full<Bytes>> + Clone + Send + Sync + 'static {
    let listener_metrics = ListenerMetrics { metrics: deps.metrics.clone(), listener: options.name.clone() };
    let guard = Guard::new(deps.guard.clone(), deps.address, Some(listener_metrics)).for_identity_clients();
    let IdentityApiOptions { name, identities } = options;
    let api = Arc::new(IdentityApi { name, identities, guard, deps, log_throttle: LogThrottle::default() });
    move |peer, request| IdentityApi::respond(&api, &peer, request)
}

struct IdentityApi {
    name: String,
    identities: BTreeMap<String, IdentityTokens>,
    guard: Guard,
    deps: IdentityApiDeps,
    log_throttle: LogThrottle,
}

impl IdentityApi {
    fn respond(this: &Arc<Self>, peer: &Peer, request: Request<IncomingBody>) -> ResponseFuture<Full<Bytes>> {
        let form = Form::find(request.uri().path()).map(|(form, identity)| (form, identity.to_owned()));
        let response = match (this.guard.admit(peer, &request), form) {
            (Ok(_), Some((form, identity))) => return this.respond_in_form(form, identity, request),
            (Ok(_), None) => {
                error(StatusCode::NOT_FOUND, "no endpoint has this path; it is /identity/v1/IDENTITY/FORM")
            }
            (Err(rejection), Some((form, _))) if rejection.status != StatusCode::UNAUTHORIZED => {
                (form.write_error)(&rejection.into())
            }
            (Err(rejection), _) => rejection_response(&rejection),
        };
        ResponseFuture::ready(this.count(response))
    }

    fn respond_in_form(
        self: &Arc<Self>,
        form: &'static Form,
        identity: String,
        request: Request<IncomingBody>,
    ) -> ResponseFuture<Full<Bytes>> {
        let is_allowed = match *request.method() {
            Method::POST => form.is_post,
            Method::GET | Method::HEAD => !form.is_post,
            _ => false,
        };
        if !is_allowed {
            let allowed = if form.is_post { "POST" } else { "GET, HEAD" };
            return ResponseFuture::ready(self.count(method_not_allowed(allowed)));
        }
        let audited = AuditedRequest::from_extensions(request.extensions()).cloned();
        let (found, caller) = match self.authorize(&identity, &request) {
            Ok((found, caller)) => (found, caller.to_waiting()),
            Err(refusal) => {
                return ResponseFuture::ready(self.finish(form, &identity, audited.as_ref(), Err(refusal)));
            }
        };
        if !form.is_post {
            let query = request.uri().query().unwrap_or_default().as_bytes();
            let responded = FormRequest::new(found, query).and_then(|request| (form.respond)(&request));
            return ResponseFuture::ready(self.finish(form, &identity, audited.as_ref(), responded));
        }
        let (this, found) = (Arc::clone(self), found.clone());
        ResponseFuture::waiting(async move {
            let body = read_body(request.into_body()).await;
            let responded = body.and_then(|body| {
                // The process may have ended meanwhile, and another one may have its number.
                caller.map_or(Ok(()), |caller| caller.check())?;
                (form.respond)(&FormRequest::new(&found, &body)?)
            });
            this.finish(form, &identity, audited.as_ref(), responded)
        })
    }

    /// Records an answer, and writes a refusal as the form's clients read it.
    fn finish(
        &self,
        form: &'static Form,
        identity: &str,
        audited: Option<&AuditedRequest>,
        responded: Result<FormResponse, FormError>,
    ) -> FormResponse {
        let outcome = responded.as_ref().map_or_else(|refusal| refusal.outcome, |_| "ok");
        // Of an identity that does not exist, no name of the caller's choice becomes a label.
        let known = self.identities.get(identity).map(IdentityTokens::name);
        let labels = IdentityRequestLabels { identity: known.unwrap_or_default().to_owned(), form: form.name, outcome };
        self.deps.metrics.get::<IdentityApiMetrics>().requests.get_or_create(&labels).inc();
        self.count(match responded {
            Ok(response) => {
                tracing::debug!(
                    event = "identity.served",
                    listener = self.name,
                    identity = known,
                    form = form.name,
                    "gave a tool a token of the machine's identity"
                );
                response
            }
            Err(refusal) => {
                self.log(form, known, &refusal);
                if let Some(audited) = audited {
                    audited.refuse(refusal.outcome);
                }
                (form.write_error)(&refusal)
            }
        })
    }

    fn count(&self, response: FormResponse) -> FormResponse {
        let label = ResponseLabels { listener: self.name.clone(), code: response.status().as_u16() };
        self.deps.metrics.get::<HttpMetrics>().requests.get_or_create(&label).inc();
        response
    }

    fn identity(&self, name: &str) -> Result<&IdentityTokens, FormError> {
        self.identities.get(name).ok_or_else(|| {
            let served = self.identities.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("this listener does not serve that identity; it serves {served}");
            FormError::new(StatusCode::NOT_FOUND, "invalid", message)
        })
    }

    /// Returns the identity of a request that may use it, and the caller.
    fn authorize<'a, B>(
        &'a self,
        identity: &str,
        request: &'a Request<B>,
    ) -> Result<(&'a IdentityTokens, AdmittedCaller<'a>), FormError> {
        let caller = self.deps.callers.admit(request, &[CallerRoute::Identity])?;
        // Before the lookup, so that the response does not reveal which identities exist.
        caller.check_identity(identity)?;
        let identity = self.identity(identity)?;
        if let Some(audited) = AuditedRequest::from_extensions(request.extensions()) {
            audited.use_token(&identity.name().into(), None);
        }
        Ok((identity, caller))
    }

    /// Logs a refusal, at a limited rate. Those of callers are logged by their rules.
    fn log(&self, form: &Form, identity: Option<&str>, refusal: &FormError) {
        if refusal.outcome != "denied"
            && let Some(suppressed) = self.log_throttle.allow(refusal.outcome)
        {
            tracing::warn!(
                event = "identity.refused",
                listener = self.name,
                identity,
                form = form.name,
                outcome = refusal.outcome,
                status = refusal.status.as_u16(),
                suppressed = (suppressed > 0).then_some(suppressed),
                "{}",
                refusal.message
            );
        }
    }
}

/// Reads the form of a request, whose length the guard has checked.
async fn read_body(body: IncomingBody) -> Result<Bytes, FormError> {
    let read = Limited::new(body, MAX_BODY).collect().await;
    read.map(Collected::to_bytes).map_err(|_| FormError::invalid("the body cannot be read"))
}

/// Largest form, in bytes.
const MAX_BODY: usize = 64 * 1024;

impl From<CallerRefusal> for FormError {
    fn from(refusal: CallerRefusal) -> Self {
        Self { retry_after: refusal.retry_after, ..Self::new(refusal.status, "denied", refusal.message) }
    }
}

impl From<GuardRejection> for FormError {
    fn from(rejection: GuardRejection) -> Self {
        Self::new(rejection.status, "denied", rejection.message.into_owned())
    }
}
