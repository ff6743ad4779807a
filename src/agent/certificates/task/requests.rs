//! Requests of a certificate, and what follows a failed one.

use std::path::PathBuf;
use std::time::Duration;

use keyward_credentials::backoff::random_unit;
use keyward_machine::clock::ClockReading;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_rfc3339;

use super::issuer::{ASK_AGAIN, Engine, Issuer};
use super::{CertificateTask, RequestError};
use crate::certificates::facts::Unusable;
use crate::certificates::issued::IssuedCertificate;
use crate::certificates::key::PrepareError;
use crate::certificates::metrics::IssuedCertificateMetrics;
use crate::certificates::request::{CertificateRequest, PreparedRequest};
use crate::certificates::x509::X509Files;
use crate::identity::{NOT_REGISTERED, WorkloadApiError, X509Svid, X509SvidOptions, X509SvidStream};
use crate::rotation::RotatedCertificate;
use crate::secrets::{Permit, ReadFailure, SecretRegistry};
use crate::server_client::{CallError, TokenVerdict};
use crate::token::Token;

/// Reason why a certificate was not issued.
#[derive(Debug, thiserror::Error)]
enum IssueError {
    #[error("{path} cannot be called")]
    Call { path: String, source: CallError },
    #[error("the answer of {path} cannot be used: {reason}")]
    Unusable { path: String, reason: Unusable },
    #[error("the Workload API at {} gives no certificate{}", socket.display(), usual_cause(source))]
    WorkloadApi { socket: PathBuf, source: WorkloadApiError },
    #[error(transparent)]
    Prepare(PrepareError),
    #[error("the task that makes the key panicked; this is a bug in keyward")]
    Broken,
}

impl IssueError {
    /// Returns the code for operators.
    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Call { source, .. } => source
                .code()
                .or_else(|| matches!(source, CallError::Status { .. }).then_some(ErrorCode::CertificateRefused)),
            Self::Unusable { .. } => Some(ErrorCode::CertificateUnusable),
            Self::Prepare(PrepareError::Sign(_) | PrepareError::NoSshKey) => Some(ErrorCode::InvalidValue),
            Self::Prepare(_) => Some(ErrorCode::CertificateFile),
            Self::WorkloadApi { source, .. } => Some(match source {
                WorkloadApiError::Refused { status: 403, .. } | WorkloadApiError::OtherIdentity { .. } => {
                    ErrorCode::IdentityDenied
                }
                WorkloadApiError::TooLarge | WorkloadApiError::Unreadable(_) => ErrorCode::CertificateUnusable,
                _ => ErrorCode::IdentityUnavailable,
            }),
            Self::Broken => None,
        }
    }
}

/// Returns the usual cause of a refusal in parentheses, or nothing.
fn usual_cause(error: &WorkloadApiError) -> String {
    match error {
        WorkloadApiError::Refused { status: 403, .. } => format!(" ({NOT_REGISTERED})"),
        _ => String::new(),
    }
}

impl CertificateTask {
    /// Requests and delivers another certificate, whatever the time, and tells the outcome to those that have asked.
    pub(super) async fn rotate(&mut self) {
        let Issuer::Engine(engine) = &self.issuer else { return };
        let before = self.current.as_ref().map(|current| current.certificate.fingerprint().to_owned());
        // In an outage, callers that ask cost no more calls than the retries of the session's secrets.
        let may_call = self.request_error.is_none() || engine.options.registry.may_retry();
        if may_call {
            self.request().await;
        }
        self.deliver_at = None;
        let failed = self.deliver(false).await;
        let current =
            self.current.as_ref().filter(|current| before.as_deref() != Some(current.certificate.fingerprint()));
        let outcome = match (current, failed) {
            (Some(current), None) => Ok(RotatedCertificate {
                serial: current.certificate.serial(),
                expires: format_rfc3339(current.certificate.life().ends),
            }),
            (Some(current), Some(error)) => {
                let serial = current.certificate.serial();
                let place = if current.is_written { "in the files" } else { "not in the files yet" };
                Err(format!("the new certificate {serial} is {place}; what failed is repeated: {error}"))
            }
            (None, _) if !may_call => Err(format!(
                "the certificate was not requested: the session's retries are used up; the last request failed: {}",
                self.reason_of_no_certificate()
            )),
            (None, _) => Err(format!("the certificate was not replaced: {}", self.reason_of_no_certificate())),
        };
        self.report();
        if let Issuer::Engine(engine) = &self.issuer {
            engine.options.rotation.complete(outcome);
        }
    }

    fn reason_of_no_certificate(&self) -> String {
        match (self.issuer.missing(), &self.request_error) {
            (Some(reason), _) => reason,
            (None, Some(error)) => ErrorCode::tag(error.code, &error.text),
            (None, None) => "it was not requested".to_owned(),
        }
    }

    /// Requests a certificate.
    pub(super) async fn request(&mut self) {
        match &mut self.issuer {
            Issuer::Engine(engine) => {
                let (request, registry) = (engine.options.request.clone(), engine.options.registry.clone());
                self.request_of_engine(request, registry).await;
            }
            Issuer::WorkloadApi(api) if api.is_silent() => {
                let socket = api.disconnect().socket;
                let source = WorkloadApiError::Late(ASK_AGAIN.as_secs());
                self.record_request_failure(&IssueError::WorkloadApi { socket, source });
            }
            Issuer::WorkloadApi(api) => {
                let options = api.disconnect();
                self.connect(options).await;
            }
        }
    }

    /// Requests a certificate with a new key.
    async fn request_of_engine(&mut self, request: CertificateRequest, registry: SecretRegistry) {
        let prepared = match self.prepare(&request).await {
            Ok(prepared) => prepared,
            Err(error) => return self.record_request_failure(&error),
        };
        let permit = self.wait_for_answer(registry.circuit_breaker().acquire(&request.path())).await;
        // The token may have changed during the wait.
        self.issuer.update_token(self.deps.clock.now());
        let Issuer::Engine(engine) = &self.issuer else { return };
        let Some(token) = engine.token.clone() else { return };
        match self.issue(&token, &request, prepared, (&registry, permit)).await {
            Ok(certificate) => {
                // Not at once again, however short its life is.
                let now = self.deps.clock.now();
                if let Issuer::Engine(engine) = &mut self.issuer {
                    engine.retries.record_success(now + MIN_INTERVAL);
                }
                self.accept(certificate);
            }
            Err(error) => self.record_request_failure(&error),
        }
    }

    /// Calls the Workload API, which then sends certificates.
    async fn connect(&mut self, options: X509SvidOptions) {
        let opened = self.wait_for_answer(X509SvidStream::open(&options)).await;
        match (opened, &mut self.issuer) {
            (Ok(stream), Issuer::WorkloadApi(api)) => api.connected(stream, self.deps.clock.now()),
            (Err(source), _) => {
                self.record_request_failure(&IssueError::WorkloadApi { socket: options.socket, source });
            }
            (Ok(_), Issuer::Engine(_)) => {}
        }
    }

    /// Takes a certificate that the Workload API has sent, or the end of its answer.
    pub(super) fn take_svid(&mut self, received: Result<X509Svid, WorkloadApiError>) {
        let Issuer::WorkloadApi(api) = &mut self.issuer else { return };
        let socket = api.options.socket.clone();
        let read =
            received.map_err(|source| IssueError::WorkloadApi { socket: socket.clone(), source }).and_then(|svid| {
                let read = X509Files::from_svid(svid, self.deps.clock.now().wall);
                let path = format!("the Workload API at {}", socket.display());
                IssuedCertificate::x509(read).map_err(|reason| IssueError::Unusable { path, reason })
            });
        match read {
            Ok(certificate) => self.accept(certificate),
            Err(error) => self.record_request_failure(&error),
        }
    }

    /// Puts a certificate in the place of the one in use.
    fn accept(&mut self, certificate: IssuedCertificate) {
        let now = self.deps.clock.now();
        self.count_request(true);
        self.record_issue(&certificate, now);
        self.set_current(certificate, Some(now));
    }

    fn count_request(&self, is_ok: bool) {
        self.deps.metrics.get::<IssuedCertificateMetrics>().count_request(&self.options.name, is_ok);
    }

    /// Makes or reads the key, and makes the request. An RSA key takes seconds of CPU time.
    async fn prepare(&self, request: &CertificateRequest) -> Result<PreparedRequest, IssueError> {
        let (request, output) = (request.clone(), self.options.output.clone());
        let prepare = move || output.prepare().and_then(|()| request.prepare());
        let prepared = tokio::task::spawn_blocking(prepare).await;
        prepared.map_err(|_| IssueError::Broken)?.map_err(IssueError::Prepare)
    }

    async fn issue(
        &mut self,
        token: &Token,
        options: &CertificateRequest,
        prepared: PreparedRequest,
        (registry, permit): (&SecretRegistry, Permit<'_>),
    ) -> Result<IssuedCertificate, IssueError> {
        let PreparedRequest { request, key } = prepared;
        let path = request.path.clone();
        let session = registry.deps();
        let call = session.upstream.request_secret(Some(&token.secret), &request, session.namespace.as_deref());
        let answer = self.wait_for_answer(call).await;
        permit.record(!answer.as_ref().is_err_and(|error| error.verdict() == TokenVerdict::Unavailable));
        let answer = answer.map_err(|source| IssueError::Call { path: path.clone(), source })?;
        let now = self.deps.clock.now().wall;
        options.accept(&answer.data, key, now).map_err(|reason| IssueError::Unusable { path, reason })
    }

    /// Waits for an answer. The certificate in use may end meanwhile.
    pub(super) async fn wait_for_answer<T>(&mut self, call: impl Future<Output = T>) -> T {
        let clock = self.deps.clock.clone();
        let mut call = std::pin::pin!(call);
        loop {
            let ends = self.ends();
            tokio::select! {
                answer = &mut call => return answer,
                () = clock.sleep_until_some(ends) => {
                    self.record_end();
                    self.report();
                }
            }
        }
    }

    fn record_request_failure(&mut self, error: &IssueError) {
        self.count_request(false);
        let now = self.deps.clock.now();
        let wait = match &mut self.issuer {
            Issuer::Engine(engine) => engine.record_failure(error, now),
            Issuer::WorkloadApi(api) => api.failed(now),
        };
        self.report_request_failure(RequestError { code: error.code(), text: format_chain(error) }, wait, now);
    }
}

impl Engine {
    /// Plans the next request after a failed one. Returns the time to it.
    fn record_failure(&mut self, error: &IssueError, now: ClockReading) -> Duration {
        let registry = &self.options.registry;
        let mut retry_after = None;
        let mut failure = match error {
            IssueError::Unusable { .. } => ReadFailure::Unusable,
            // The retries of what failed on this machine cost no call.
            _ => ReadFailure::Outage,
        };
        if let (IssueError::Call { source, .. }, Some(token)) = (error, &self.token) {
            let verdict = source.verdict();
            let is_suspect = verdict == TokenVerdict::Denied && registry.retry_budget().may_suspect_token(now);
            if verdict.suspects_token() || is_suspect {
                // A new token of the session is tried at once.
                registry.deps().session.request();
            }
            retry_after = source.retry_after();
            failure = match source {
                _ if verdict == TokenVerdict::Unavailable => ReadFailure::Outage,
                CallError::Status { .. } => ReadFailure::Refused(token.generation),
                // The server may have issued one.
                _ => ReadFailure::Unusable,
            };
        }
        // An answer that cannot be used may be another certificate each time.
        let is_slow = failure != ReadFailure::Unusable || !registry.may_retry();
        let longest = if is_slow { LONGEST_WAIT } else { WAIT_AFTER_ANSWER };
        self.retries.record_failure_within(now, failure, retry_after, longest, registry.retry_budget(), random_unit());
        now.until(self.retries.not_before())
    }
}

/// Time to the next request after a failed one, once the retries of the session's secrets are used up. With a tenth less, it is more than
/// the hour that the request budget counts.
const LONGEST_WAIT: Duration = Duration::from_mins(70);

/// Time to the next request after an answer that cannot be used.
const WAIT_AFTER_ANSWER: Duration = Duration::from_mins(5);

/// Least time between two certificates, so that one whose life is some seconds makes no loop.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
