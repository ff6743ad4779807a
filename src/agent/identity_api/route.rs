//! Routes a request to its form: guard, path, method, caller, identity.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use keyward_http::guard::{Guard, GuardRejection, LogThrottle};
use keyward_http::server::{HttpMetrics, IncomingBody, ListenerMetrics, Peer, ResponseFuture, ResponseLabels};
use keyward_telemetry::audit::AuditedRequest;

use super::form::Form;
use super::metrics::{IdentityApiMetrics, IdentityRequestLabels};
use super::request::{FormError, FormRequest, FormResponse};
use super::{IdentityApiDeps, IdentityApiOptions};
use crate::callers::{CallerRefusal, CallerRoute};
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
    move |peer, request| ResponseFuture::ready(api.respond(&peer, &request))
}

struct IdentityApi {
    name: String,
    identities: BTreeMap<String, IdentityTokens>,
    guard: Guard,
    deps: IdentityApiDeps,
    log_throttle: LogThrottle,
}

impl IdentityApi {
    fn respond<B>(&self, peer: &Peer, request: &Request<B>) -> FormResponse {
        let form = Form::find(request.uri().path());
        let response = match (self.guard.admit(peer, request), form) {
            (Ok(_), Some((form, identity))) => self.respond_in_form(form, identity, request),
            (Ok(_), None) => {
                error(StatusCode::NOT_FOUND, "no endpoint has this path; it is /identity/v1/IDENTITY/FORM")
            }
            (Err(rejection), Some((form, _))) if rejection.status != StatusCode::UNAUTHORIZED => {
                (form.write_error)(&rejection.into())
            }
            (Err(rejection), _) => rejection_response(&rejection),
        };
        let label = ResponseLabels { listener: self.name.clone(), code: response.status().as_u16() };
        self.deps.metrics.get::<HttpMetrics>().requests.get_or_create(&label).inc();
        response
    }

    fn respond_in_form<B>(&self, form: &'static Form, identity: &str, request: &Request<B>) -> FormResponse {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return method_not_allowed("GET, HEAD");
        }
        let responded = self.authorize(identity, request).and_then(|identity| {
            let request = FormRequest::new(identity, request.uri().query())?;
            (form.respond)(&request)
        });
        let outcome = responded.as_ref().map_or_else(|refusal| refusal.outcome, |_| "ok");
        // Of an identity that does not exist, no name of the caller's choice becomes a label.
        let known = self.identities.get(identity).map(IdentityTokens::name);
        let labels = IdentityRequestLabels { identity: known.unwrap_or_default().to_owned(), form: form.name, outcome };
        self.deps.metrics.get::<IdentityApiMetrics>().requests.get_or_create(&labels).inc();
        match responded {
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
                if let Some(audited) = AuditedRequest::from_extensions(request.extensions()) {
                    audited.refuse(refusal.outcome);
                }
                (form.write_error)(&refusal)
            }
        }
    }

    /// Returns the identity of a request that may use it.
    fn authorize<B>(&self, identity: &str, request: &Request<B>) -> Result<&IdentityTokens, FormError> {
        let caller = self.deps.callers.admit(request, &[CallerRoute::Identity])?;
        // Before the lookup, so that the response does not reveal which identities exist.
        caller.check_identity(identity)?;
        let identity = self.identities.get(identity).ok_or_else(|| {
            let served = self.identities.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("this listener does not serve that identity; it serves {served}");
            FormError::new(StatusCode::NOT_FOUND, "invalid", message)
        })?;
        if let Some(audited) = AuditedRequest::from_extensions(request.extensions()) {
            audited.use_token(&identity.name().into(), None);
        }
        Ok(identity)
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
