//! Keeps the webhook's certificate: reads or makes it, tells the API server its authority, and replaces it before its end.
//!
//! Replicas share one certificate by a Secret. Whichever replica finds it missing, unusable or due makes the next one; of two that
//! do, the Secret's version lets one win, and the other serves what that one made.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_http::tls::ServerTls;
use keyward_machine::clock::Clock;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::time_format::{format_rfc3339, seconds};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

use super::certificate::{Unusable, UsableCertificate, WebhookCertificate, authority_operations};
use super::kubernetes_api::{ApiError, KubernetesApi};
use super::metrics::InjectorMetrics;

/// Options of a [`CertificateKeeper`].
#[derive(Debug, Clone)]
pub struct KeeperOptions {
    /// Name by which the API server calls the webhook, such as `keyward-webhook.team.svc`.
    pub name: String,
}

/// Keeps the webhook's certificate.
#[derive(Debug)]
pub struct CertificateKeeper {
    options: KeeperOptions,
    api: KubernetesApi,
    clock: Clock,
    health: HealthHandle,
    metrics: InjectorMetrics,
    served: Arc<ServedCertificate>,
    current: Option<UsableCertificate>,
    /// Random number in `0.0..1.0`: replicas do not all replace the certificate at once.
    unit: f64,
}

/// The certificate of the next connections.
#[derive(Debug, Default)]
struct ServedCertificate(Mutex<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().clone()
    }
}

/// Reason why there is no certificate, or none that the API server trusts.
#[derive(Debug, thiserror::Error)]
enum KeeperError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("cannot make a certificate")]
    Generate(#[source] rcgen::Error),
    #[error("the MutatingWebhookConfiguration has no webhooks")]
    NoWebhooks,
    #[error("something else keeps changing the caBundle of the MutatingWebhookConfiguration")]
    Overwritten,
}

impl KeeperError {
    const fn code(&self) -> ErrorCode {
        match self {
            Self::Api(_) => ErrorCode::KubernetesApi,
            Self::Generate(_) | Self::NoWebhooks | Self::Overwritten => ErrorCode::InjectorCertificate,
        }
    }
}

/// Time between the API server's new authority and the first connection that needs it: each API server of the cluster has to read it.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// Attempts to set the authorities, each followed by a look.
const ATTEMPTS: usize = 3;

/// Least time between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

impl CertificateKeeper {
    /// Creates a keeper without a certificate. `health` is ready once there is one that the API server trusts.
    pub fn new(
        options: KeeperOptions,
        api: KubernetesApi,
        clock: Clock,
        health: HealthHandle,
        metrics: &Metrics,
    ) -> Self {
        let served = Arc::new(ServedCertificate::default());
        Self { options, api, clock, health, metrics: metrics.get(), served, current: None, unit: random_unit() }
    }

    /// Returns the TLS settings of the webhook's listener. Its connections fail until there is a certificate.
    pub fn tls(&self) -> Result<ServerTls, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let resolver = Arc::clone(&self.served) as Arc<dyn ResolvesServerCert>;
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config).into())
    }

    /// Keeps the certificate until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        loop {
            let round = async {
                match self.round().await {
                    Ok(version) => {
                        backoff.reset();
                        self.wait(&version).await;
                    }
                    Err(error) => {
                        let wait = backoff.next_half_jitter(random_unit());
                        self.report(&error, wait);
                        self.clock.sleep(wait).await;
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = round => {}
            }
        }
    }

    /// Ensures the certificate and its authority once. Returns the version of the `MutatingWebhookConfiguration`.
    async fn round(&mut self) -> Result<String, KeeperError> {
        let usable = self.ensure_certificate().await?;
        let version = self.ensure_authorities(&usable.stored).await?;
        let is_new = self.current.as_ref().is_none_or(|current| !current.stored.is_same(&usable.stored));
        if is_new {
            if self.current.is_some() {
                self.clock.sleep(SETTLE_TIME).await;
            }
            *self.served.0.lock() = Some(Arc::clone(&usable.certified));
            let ends = usable.ends.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            self.metrics.certificate_expiry.set(i64::try_from(ends).unwrap_or(i64::MAX));
            tracing::info!(
                event = "injector.certificate.served",
                expires = format_rfc3339(usable.ends),
                name = self.options.name,
                "serving a new certificate"
            );
            self.current = Some(usable);
        }
        self.health.set_ready();
        self.health.clear_warning();
        Ok(version)
    }

    /// Reads the certificate of the Secret, or makes one if there is none or its time has come.
    async fn ensure_certificate(&self) -> Result<UsableCertificate, KeeperError> {
        loop {
            let mut secret = self.api.read_secret().await?;
            let now = self.clock.now().wall;
            let stored = WebhookCertificate::read(&secret);
            let checked =
                stored.clone().ok_or(Unusable::Missing).and_then(|stored| stored.verify(&self.options.name, now));
            let reason = match checked {
                Ok(usable) if !usable.time_to_renewal(now, self.unit).is_zero() => return Ok(usable),
                Ok(_) => "due",
                Err(Unusable::Missing) => "missing",
                Err(Unusable::Invalid) => "invalid",
            };
            // An authority that signed no usable certificate is trusted no more.
            let previous = stored.filter(|_| reason == "due");
            let made = WebhookCertificate::generate(&self.options.name, now, previous.as_ref());
            let made = made.map_err(KeeperError::Generate)?;
            made.write(&mut secret);
            match self.api.replace_secret(&secret).await {
                Ok(()) => {
                    tracing::info!(event = "injector.certificate.made", reason, "made a certificate for the webhook");
                    let usable = made.verify(&self.options.name, now);
                    return usable.map_err(|_| KeeperError::Generate(rcgen::Error::CouldNotParseCertificate));
                }
                // Another replica was first.
                Err(ApiError::Conflict) => self.clock.sleep(PAUSE.mul_f64(random_unit())).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives the API server the authorities of a certificate. Returns the version of the configuration.
    async fn ensure_authorities(&self, certificate: &WebhookCertificate) -> Result<String, KeeperError> {
        for _ in 0..ATTEMPTS {
            let configuration = self.api.read_webhooks().await?;
            if configuration["webhooks"].as_array().is_none_or(Vec::is_empty) {
                return Err(KeeperError::NoWebhooks);
            }
            let operations = authority_operations(&configuration, &certificate.authorities());
            if operations.is_empty() {
                return Ok(configuration["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned());
            }
            self.api.patch_webhooks(&operations).await?;
            tracing::info!(event = "injector.authority.set", "told the API server the authority of the certificate");
        }
        Err(KeeperError::Overwritten)
    }

    /// Waits until the certificate is due, or the configuration may have changed.
    async fn wait(&self, version: &str) {
        let now = self.clock.now().wall;
        let due = self.current.as_ref().map_or(Duration::ZERO, |current| current.time_to_renewal(now, self.unit));
        tokio::select! {
            () = self.clock.sleep(due.max(PAUSE)) => {}
            changed = self.api.wait_for_change(version) => {
                if let Err(error) = changed {
                    tracing::debug!(event = "injector.watch.failed", error = format_chain(&error), "cannot watch the configuration of the webhook");
                    self.clock.sleep(Duration::from_secs(30)).await;
                }
                self.clock.sleep(PAUSE).await;
            }
        }
    }

    fn report(&self, error: &KeeperError, wait: Duration) {
        let text = format_chain(error);
        let code = error.code();
        tracing::error!(
            event = "injector.certificate.failed",
            code = code.as_str(),
            error = text,
            retry_in_seconds = seconds(wait),
            "cannot keep the certificate of the webhook"
        );
        let now = self.clock.now().wall;
        match &self.current {
            Some(current) if current.ends > now => self.health.warn(code, text),
            _ => self.health.set_failed(code, text),
        }
    }
}
