//! Issuers of a task's certificates: an engine of the session's server, which is asked, and SPIFFE's Workload API, which sends them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_credentials::credential_watch::Availability;
use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::hex::encode_hex;

use super::{Current, Event};
use crate::certificates::issued::IssuedCertificate;
use crate::certificates::policy::{Life, RenewalPolicy};
use crate::certificates::request::CertificateRequest;
use crate::identity::{WorkloadApiError, X509Svid, X509SvidOptions, X509SvidStream};
use crate::rotation::RotationHandle;
use crate::secrets::{RetrySchedule, SecretRegistry};
use crate::token::{Token, TokenWatch};

/// Issuer of a certificate.
#[derive(Debug)]
pub enum CertificateIssuer {
    /// A PKI or SSH engine.
    Engine(Box<EngineOptions>),
    /// SPIFFE's Workload API, whose certificates are those of this process's own identity.
    WorkloadApi(X509SvidOptions),
}

/// An engine, and the requests that it gets.
#[derive(Debug)]
pub struct EngineOptions {
    /// The request that issues a certificate.
    pub request: CertificateRequest,
    /// Times at which a certificate is replaced.
    pub renewal: RenewalPolicy,
    /// Registry of the session's secrets: its server, its token and its budgets.
    pub registry: SecretRegistry,
    /// Receives requests to replace the certificate at once.
    pub rotation: RotationHandle,
}

/// Issuer in use.
#[derive(Debug)]
pub(super) enum Issuer {
    Engine(Box<Engine>),
    WorkloadApi(Box<SvidSource>),
}

/// State of the requests to an engine.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) options: EngineOptions,
    tokens: TokenWatch,
    pub(super) token: Option<Arc<Token>>,
    pub(super) retries: RetrySchedule,
}

/// State of the connection to the Workload API.
#[derive(Debug)]
pub(super) struct SvidSource {
    pub(super) options: X509SvidOptions,
    /// The answer, while there is one.
    stream: Option<X509SvidStream>,
    backoff: Backoff,
    /// Earliest time of the next connection.
    not_before: ClockReading,
    /// Time at which the connection began.
    connected: ClockReading,
    /// The connection has brought a certificate.
    has_answered: bool,
}

impl Issuer {
    /// Prepares the issuer. Calls nothing yet.
    pub(super) fn new(issuer: CertificateIssuer, clock: &Clock) -> Self {
        let now = clock.now();
        match issuer {
            CertificateIssuer::Engine(options) => {
                let tokens = options.registry.deps().tokens.clone();
                let retries = RetrySchedule::new(now);
                Self::Engine(Box::new(Engine { options: *options, tokens, token: None, retries }))
            }
            CertificateIssuer::WorkloadApi(options) => Self::WorkloadApi(Box::new(SvidSource {
                options,
                stream: None,
                backoff: RECONNECT,
                not_before: now,
                connected: now,
                has_answered: false,
            })),
        }
    }

    /// Returns the digest of the settings with which certificates are issued.
    pub(super) fn digest(&self) -> String {
        match self {
            Self::Engine(engine) => {
                let session = engine.options.registry.deps();
                engine.options.request.digest(session.upstream.address(), session.namespace.as_deref())
            }
            Self::WorkloadApi(source) => {
                let X509SvidOptions { socket, spiffe_id } = &source.options;
                // A file holds the digest: the form of this text does not change.
                let id = spiffe_id.as_deref().unwrap_or_default();
                let text = format!("workload_api={}\nspiffe_id={id}\n", socket.display());
                encode_hex(digest(&SHA256, text.as_bytes()).as_ref())
            }
        }
    }

    /// Waits for what the issuer brings by itself.
    pub(super) async fn event(&mut self) -> Event {
        match self {
            Self::Engine(engine) => tokio::select! {
                biased;
                changed = engine.tokens.changed() => {
                    if changed.is_ok() { Event::TokenChanged } else { Event::SessionEnded }
                }
                () = engine.options.rotation.requested() => Event::RotationRequested,
            },
            Self::WorkloadApi(source) => Event::SvidReceived(Box::new(source.next().await)),
        }
    }

    /// Returns the time of the next request; `None` while nothing can be requested, or what was requested is not written yet. `valid` is
    /// the certificate in use that has not ended.
    pub(super) fn request_at(&self, valid: Option<&Current>, now: ClockReading) -> Option<ClockReading> {
        let after = |at: SystemTime| now + at.duration_since(now.wall).unwrap_or_default();
        match (self, valid) {
            (Self::Engine(engine), valid) => {
                engine.token.as_ref()?;
                let not_before = engine.retries.not_before();
                let Some(current) = valid else { return Some(not_before.later(now)) };
                current.is_written.then(|| after(engine.renewal_time(&current.certificate, now)).later(not_before))
            }
            (Self::WorkloadApi(api), _) if api.stream.is_none() => Some(now.later(api.not_before)),
            // The API sends a certificate by itself, unless the connection is dead.
            (Self::WorkloadApi(api), None) => Some(now.later(api.not_before)),
            (Self::WorkloadApi(api), Some(current)) => {
                Some(after(overdue(current.certificate.life())).later(api.not_before))
            }
        }
    }

    /// Reads the session's token. One that the server refused is not used again before its time; another one is.
    pub(super) fn update_token(&mut self, now: ClockReading) {
        let Self::Engine(engine) = self else { return };
        engine.token = engine.tokens.current().availability.available();
        let refused = engine.retries.refused_token();
        if let (Some(token), Some(refused)) = (&engine.token, refused)
            && token.generation != refused
        {
            engine.retries = RetrySchedule::new(now);
        }
    }

    /// Returns the reason why nothing can be requested; `None` if something can.
    pub(super) fn missing(&self) -> Option<String> {
        let Self::Engine(engine) = self else { return None };
        engine.tokens.read(|state| match &state.availability {
            Availability::Available(_) => None,
            Availability::Unavailable { reason, .. } => Some(format!("waiting for a token: {reason}")),
        })
    }

    /// Returns the time of the next request after a failed one.
    pub(super) fn retry_at(&self) -> Option<ClockReading> {
        match self {
            Self::Engine(engine) => engine.token.as_ref().map(|_| engine.retries.not_before()),
            Self::WorkloadApi(source) => source.stream.is_none().then_some(source.not_before),
        }
    }

    /// Returns all names of a certificate, the first one first, for people.
    pub(super) fn names(&self, certificate: &IssuedCertificate) -> Vec<String> {
        match self {
            Self::Engine(engine) => engine.options.request.names(),
            Self::WorkloadApi(_) => certificate.uris().to_vec(),
        }
    }

    /// Returns the request to an engine.
    pub(super) fn request(&self) -> Option<&CertificateRequest> {
        match self {
            Self::Engine(engine) => Some(&engine.options.request),
            Self::WorkloadApi(_) => None,
        }
    }

    /// Returns the time at which a certificate is replaced; `None` where the issuer decides.
    pub(super) fn renewal_time(&self, certificate: &IssuedCertificate, now: ClockReading) -> Option<SystemTime> {
        match self {
            Self::Engine(engine) => Some(engine.renewal_time(certificate, now)),
            Self::WorkloadApi(_) => None,
        }
    }
}

impl Engine {
    fn renewal_time(&self, certificate: &IssuedCertificate, now: ClockReading) -> SystemTime {
        let not_before = now.wall_time_of(self.retries.not_before());
        self.options.renewal.next_request(certificate.life(), not_before, now.wall, certificate.unit())
    }
}

impl SvidSource {
    /// Waits for the next certificate of the connection; without one, for ever. A connection that fails is closed.
    async fn next(&mut self) -> Result<X509Svid, WorkloadApiError> {
        let Some(stream) = &mut self.stream else { return std::future::pending().await };
        let next = stream.next().await;
        match &next {
            Ok(_) => self.has_answered = true,
            Err(_) => self.stream = None,
        }
        next
    }

    /// Returns true for a connection that has not brought anything.
    pub(super) const fn is_silent(&self) -> bool {
        self.stream.is_some() && !self.has_answered
    }

    /// Closes the connection, which may be dead. Returns the options of the next one.
    pub(super) fn disconnect(&mut self) -> X509SvidOptions {
        self.stream = None;
        self.options.clone()
    }

    /// Takes a connection that has begun. Another one is not needed soon.
    pub(super) fn connected(&mut self, stream: X509SvidStream, now: ClockReading) {
        self.stream = Some(stream);
        (self.connected, self.has_answered) = (now, false);
        self.not_before = now + ASK_AGAIN;
    }

    /// Returns the wait until the next connection. One that lasts is a success: an API that ends its answer after each certificate is not
    /// called in a loop.
    pub(super) fn failed(&mut self, now: ClockReading) -> Duration {
        if self.has_answered && now.since(self.connected) >= ASK_AGAIN {
            self.backoff.reset();
        }
        self.stream = None;
        let wait = self.backoff.next_half_jitter(random_unit());
        self.not_before = now + wait;
        wait
    }
}

/// Time from which a certificate should long have been replaced by the API, so that it is asked again.
fn overdue(life: Life) -> SystemTime {
    life.begins + life.ends.duration_since(life.begins).unwrap_or_default() * 3 / 4
}

/// Waits between connections: to a program of this machine, without any limit of its own.
const RECONNECT: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Time between connections that were made because a certificate is overdue or has not come.
pub(super) const ASK_AGAIN: Duration = Duration::from_mins(1);
