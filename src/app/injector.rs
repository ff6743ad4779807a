//! The injector as a process: the webhook's listener, its certificate, and a listener for probes and metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::caller_tokens::CallerTokens;
use keyward_agent::callers::CallerGate;
use keyward_agent::local_api::{self, ListenerKind, LocalApiDeps, LocalApiOptions, ReadyMetrics};
use keyward_agent::rotation::RotationRegistry;
use keyward_agent::secrets::SecretRegistries;
use keyward_agent::session_status::SessionStatusRegistry;
use keyward_http::guard::{AccessMode, GuardOptions};
use keyward_http::server::{Endpoint, HttpMetrics, Listener, ListenerLimits, ListenerMetrics};
use keyward_http::tls::{ServerCertificate, ServerTls};
use keyward_injector::{
    CertificateKeeper, InjectorMetrics, InjectorOptions, InjectorService, KeeperOptions, KubernetesApi,
    KubernetesApiOptions,
};
use keyward_machine::clock::Clock;
use keyward_machine::tasks::TaskGroup;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status_registry::StatusRegistry;
use tokio_util::sync::CancellationToken;

use super::error_codes::ListenError;

/// Settings of the process.
#[derive(Debug)]
pub struct InjectorSetup {
    /// Settings of the injector.
    pub options: InjectorOptions,
    /// Address of the webhook.
    pub endpoint: Endpoint,
    /// Address of probes and metrics.
    pub health_endpoint: Endpoint,
    /// Source of the webhook's certificate.
    pub certificate: CertificateSource,
}

/// Source of the webhook's certificate.
#[derive(Debug)]
pub enum CertificateSource {
    /// Files, which another program renews; the authority is somebody else's task too.
    Files(ServerCertificate),
    /// A certificate that the process makes and replaces itself.
    Kept(KeeperOptions, Box<KubernetesApiOptions>),
}

/// Time for reviews in flight to end.
const DRAIN: Duration = Duration::from_secs(5);

/// The bound listeners of the injector.
#[derive(Debug)]
pub struct Injector {
    setup: InjectorSetup,
    webhook: Listener,
    probes: Listener,
}

impl Injector {
    /// Binds the listeners. Nothing is served yet.
    pub fn bind(setup: InjectorSetup) -> anyhow::Result<Self> {
        keyward_injector::validate(&setup.options).map_err(|why| anyhow::anyhow!("the settings fit no pod: {why}"))?;
        let bind = |name: &str, endpoint: &Endpoint| {
            Listener::bind(endpoint).map_err(|error| ListenError::new(name.to_owned(), endpoint, error))
        };
        let webhook = bind("the webhook", &setup.endpoint)?;
        let probes = bind("the listener of probes", &setup.health_endpoint)?;
        Ok(Self { setup, webhook, probes })
    }

    /// Returns lines with the bound addresses.
    pub fn introduction(&self) -> Vec<String> {
        let address =
            |listener: &Listener| listener.tcp_address().map(|address| address.to_string()).unwrap_or_default();
        vec![
            format!("serving the webhook on https://{}{}", address(&self.webhook), keyward_injector::PATH),
            format!("serving probes and metrics on http://{}", address(&self.probes)),
        ]
    }

    /// Serves until `stop`.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let (clock, metrics, health) = (Clock::default(), Metrics::default(), Health::default());
        metrics.register::<ReadyMetrics>();
        metrics.register::<HttpMetrics>();
        metrics.register::<InjectorMetrics>();
        let mut tasks = TaskGroup::new(stop.clone());
        let Self { setup, webhook, probes } = self;
        let tls = match setup.certificate {
            CertificateSource::Files(files) => ServerTls::new(&files)?,
            CertificateSource::Kept(options, api) => {
                let api = KubernetesApi::new(*api, &metrics).context("cannot call the Kubernetes API")?;
                let component = health.register("injector/certificate", true, "there is no certificate yet");
                let keeper = CertificateKeeper::new(options, api, clock.clone(), component, &metrics);
                let tls = keeper.tls().context("cannot set up TLS")?;
                let until = stop.clone();
                tasks.start("certificate", async move {
                    keeper.run(until).await;
                    Ok(())
                });
                tls
            }
        };
        let limits = |name: &str, tls: Option<ServerTls>| ListenerLimits {
            drain: DRAIN,
            tls,
            listener_metrics: Some(ListenerMetrics { metrics: metrics.clone(), listener: name.to_owned() }),
            ..ListenerLimits::default()
        };
        let listening = health.register("listener/webhook", true, "not serving yet");
        let service = InjectorService::new(setup.options, &metrics).handler();
        let serving = webhook.serve(service, limits("webhook", Some(tls)), stop.clone());
        tasks.start("webhook", async move {
            listening.set_ready();
            serving.await;
            Ok(())
        });
        let served =
            LocalApiOptions { name: "probes".to_owned(), kind: ListenerKind::Health, sessions: BTreeMap::new() };
        let deps = LocalApiDeps {
            clock,
            metrics: metrics.clone(),
            health,
            status_registry: StatusRegistry::default(),
            session_statuses: SessionStatusRegistry::default(),
            secrets: SecretRegistries::default(),
            rotations: RotationRegistry::default(),
            callers: CallerGate::default(),
            caller_tokens: CallerTokens::default(),
            guard: GuardOptions { allowed_hosts: [].into(), admit: AccessMode::AnyLocalUser },
            address: probes.tcp_address(),
            stop: stop.clone(),
        };
        let serving = probes.serve(local_api::service(served, deps), limits("probes", None), stop);
        tasks.start("probes", async move {
            serving.await;
            Ok(())
        });
        Ok(tasks.run(DRAIN * 2).await?)
    }
}
