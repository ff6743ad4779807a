//! Assembles the gateway from its options, its sockets and its token sources.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keyward_config as config;
use keyward_credentials::credential_watch::CredentialWatch;
use keyward_gateway::availability::PlatformStatus;
use keyward_gateway::client_setup::{
    ChildEnv, ClientTokenKind, ClientTokenSource, GatewayClient, ProgramCliConfig, TerraformConfigFile,
};
use keyward_gateway::local_token::LocalTokenManager;
use keyward_gateway::proxy::{Gateway, GatewayDependencies, UsageStats};
#[cfg(feature = "ui")]
use keyward_http::in_process::InProcessService;
use keyward_http::server::{ActivatedSockets, Endpoint, Listener, ListenerLimits, ListenerMetrics};
use keyward_machine::command::ProvidedEnv;
use keyward_machine::tasks::TaskGroup;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::status::StatusRegistry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::audit;
use super::error_codes::ListenError;
use super::platform_token::PlatformTokenProvider;
use super::session::{SessionRefs, Shared};

/// A gateway with its sockets bound that serves no request yet.
#[derive(Debug)]
pub(super) struct BuiltGateway {
    options: config::Gateway,
    sockets: Vec<Listener>,
    gateway: Gateway,
    usage_stats: Arc<UsageStats>,
    local: LocalTokenManager,
    token: PlatformTokenProvider,
    config_file: Option<TerraformConfigFile>,
    child: Option<(ChildEnv, CredentialWatch<ProvidedEnv>)>,
    health: HealthHandle,
    listener_metrics: ListenerMetrics,
    shared: Shared,
    #[cfg(feature = "ui")]
    ui_sources: keyward_ui::Sources,
}

/// The running gateway, if there is one, with the inputs that it was built from.
#[derive(Debug, Default)]
pub(super) struct RunningGateway(Option<RunningInstance>);

#[derive(Debug)]
struct RunningInstance {
    options: config::Gateway,
    sockets: Vec<Listener>,
    usage_stats: Arc<UsageStats>,
    child: Option<CredentialWatch<ProvidedEnv>>,
    status_registry: StatusRegistry,
    #[cfg(feature = "ui")]
    ui_sources: keyward_ui::Sources,
    stop: CancellationToken,
    /// Cancelled if no other gateway replaces it: idle connections close then.
    close_idle: CancellationToken,
    /// Cancelled if another gateway writes its `terraform_config_file` from now on.
    file_handed_over: CancellationToken,
}

/// Change of the gateway by a new configuration. Dropping it changes nothing.
#[derive(Debug)]
pub(super) enum GatewayPlan {
    /// Nothing changes.
    Same,
    /// The running gateway stops.
    Stop,
    /// This one starts, and replaces a running one.
    Start(Box<BuiltGateway>),
}

impl GatewayPlan {
    /// Bound addresses of the gateway that will start; empty if none will.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        self.new_gateway().map(BuiltGateway::endpoints).unwrap_or_default()
    }

    /// Sockets of the gateway that will start, with their configured addresses; empty if none will.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (&Endpoint, &Listener)> {
        self.new_gateway().into_iter().flat_map(|gateway| gateway.options.endpoints.iter().zip(&gateway.sockets))
    }

    fn new_gateway(&self) -> Option<&BuiltGateway> {
        match self {
            Self::Start(gateway) => Some(gateway),
            Self::Same | Self::Stop => None,
        }
    }
}

const NO_TCP_SOCKET: &str = "programs cannot call the gateway: none of its sockets is on TCP";

impl BuiltGateway {
    fn build(
        options: &config::Gateway,
        running: Option<&RunningInstance>,
        inherited: &ActivatedSockets,
        sessions: SessionRefs<'_>,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let (local, accepted) = LocalTokenManager::open(options.local_token.clone(), shared.clock.clone())
            .context("the gateway cannot keep its local token")?;
        let (token, source) = PlatformTokenProvider::build(options, sessions, shared)?;
        let register = |component: &str, waiting: &str| shared.health.register(component, options.required, waiting);
        let usage_stats = running.map(|running| Arc::clone(&running.usage_stats)).unwrap_or_default();
        let platform = source.watch.clone();
        let parts = GatewayDependencies {
            clock: shared.clock.clone(),
            status_registry: shared.status_registry.clone(),
            health: shared.health.clone(),
            metrics: shared.metrics.clone(),
            token_health: register("gateway/platform", "not serving yet"),
            source,
            local: accepted.clone(),
            usage: Arc::clone(&usage_stats),
        };
        let gateway = Gateway::build(options.proxy.clone(), parts).context("the gateway cannot call the platform")?;
        let sockets = bind(&options.endpoints, running, inherited)?;
        let content = |token_kind| match token_kind {
            ClientTokenKind::PlatformToken => anyhow::Ok(ClientTokenSource::Platform(platform.clone())),
            ClientTokenKind::LocalToken => {
                let address = sockets.iter().find_map(Listener::tcp_address);
                Ok(ClientTokenSource::Local(accepted.clone(), format!("http://{}", address.context(NO_TCP_SOCKET)?)))
            }
        };
        let child = match options.process_token.zip(options.process_files.as_ref()) {
            None => None,
            Some((token_kind, reads)) => {
                let platform = options.proxy.upstream.as_str().trim_end_matches('/').to_owned();
                let folder = options.local_token.file.parent().filter(|_| token_kind == ClientTokenKind::LocalToken);
                let client = folder.map(|folder| GatewayClient {
                    terraform: ProgramCliConfig::new(folder.to_owned(), reads.clone()),
                    proxy_exceptions: options.process_proxy_exceptions.clone(),
                });
                let clock = shared.clock.clone();
                Some(ChildEnv::new(content(token_kind)?, options.host.clone(), platform, client, clock))
            }
        };
        let config_file = match &options.terraform_config_file {
            None => None,
            Some(config_file) => {
                let content = content(config_file.token_kind)?;
                let health = register("gateway/terraform_config_file", "not written yet");
                Some(TerraformConfigFile::new(config_file.clone(), content, shared.clock.clone(), health))
            }
        };
        let health = register("listener/gateway", "not serving yet");
        let listener_metrics = ListenerMetrics { metrics: shared.metrics.clone(), listener: "gateway".to_owned() };
        Ok(Self {
            options: options.clone(),
            sockets,
            gateway,
            usage_stats,
            local,
            token,
            config_file,
            child,
            health,
            listener_metrics,
            shared: shared.clone(),
            #[cfg(feature = "ui")]
            ui_sources: shared.ui_sources.clone(),
        })
    }

    /// Returns true if a gateway with these options has written the same `terraform_config_file`.
    fn writes_the_file_of(&self, other: &config::Gateway) -> bool {
        let path =
            |options: &config::Gateway| options.terraform_config_file.as_ref().map(|options| options.file.clone());
        path(other).is_some_and(|file| path(&self.options) == Some(file))
    }

    /// Bound addresses; a port 0 of the configuration is replaced by the actual port.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let actual_endpoint = |(endpoint, socket): (&Endpoint, &Listener)| {
            socket.tcp_address().map_or_else(|| endpoint.clone(), Endpoint::Tcp)
        };
        self.options.endpoints.iter().zip(&self.sockets).map(actual_endpoint).collect()
    }

    /// Serves until `stop`, then drains for at most `drain`; token sources stop afterwards. A replaced gateway keeps idle
    /// connections for one more request, until then or until `close_idle`.
    async fn run(
        self,
        drain: Duration,
        stop: CancellationToken,
        close_idle: CancellationToken,
        file_handed_over: CancellationToken,
    ) -> anyhow::Result<()> {
        let drained = CancellationToken::new();
        let endpoints = self.endpoints().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        self.health.set_target(endpoints);
        let mut tasks = JoinSet::new();
        // A replaced gateway rotates no more: its successor rotates the same files.
        tasks.spawn(self.local.run(stop.clone()));
        tasks.spawn(self.token.run(drained.clone()));
        let gateway = self.gateway.clone();
        let stopped = stop.clone();
        tasks.spawn(async move { gateway.probe_platform(stopped).await });
        if let Some(config_file) = self.config_file {
            tasks.spawn(config_file.run(drained.clone(), file_handed_over));
        }
        if let Some((child, _)) = self.child {
            tasks.spawn(child.run(drained.clone()));
        }
        let mut serving = JoinSet::new();
        for socket in self.sockets {
            let limits = ListenerLimits {
                idle_timeout: IDLE_TIMEOUT,
                drain,
                replaced_until: Some(close_idle.clone()),
                listener_metrics: Some(self.listener_metrics.clone()),
                refused_heads: Some(audit::refused_heads(&self.shared, "gateway", "gateway")),
                ..ListenerLimits::default()
            };
            let service = self.gateway.service(socket.tcp_address(), self.listener_metrics.clone());
            let service = audit::gateway(&self.shared, "gateway").wrap(service);
            serving.spawn(socket.serve(service, limits, stop.clone()));
        }
        self.health.set_ready();
        serving.join_all().await;
        drained.cancel();
        tasks.join_all().await;
        Ok(())
    }
}

/// Longer than clients keep an idle connection (90 s in Go), so a request never meets a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// Binds the gateway's addresses, or reuses the sockets of a running gateway. New unix sockets are not placed yet.
fn bind(
    endpoints: &[Endpoint],
    running: Option<&RunningInstance>,
    inherited: &ActivatedSockets,
) -> Result<Vec<Listener>, ListenError> {
    let open = |endpoint: &Endpoint| {
        let running_socket = running.and_then(|running| {
            let mut all = running.options.endpoints.iter().zip(&running.sockets);
            all.find(|(candidate, _)| *candidate == endpoint).map(|(_, socket)| socket)
        });
        running_socket
            .map_or_else(|| Listener::open_unplaced(endpoint, inherited), Listener::try_clone)
            .and_then(Listener::require_loopback)
            .map_err(|error| ListenError::new("the gateway", endpoint, error))
    };
    endpoints.iter().map(open).collect()
}

impl RunningGateway {
    /// Builds and binds the gateway of `new` unless it runs already; a socket whose address stays is reused.
    /// `rebuilt` returns true for sessions that start anew: a gateway that uses one is rebuilt too.
    ///
    /// # Errors
    /// A file cannot be used, or an address cannot be bound. Nothing has changed then.
    pub(super) fn plan(
        &self,
        new: Option<&config::Gateway>,
        inherited: &ActivatedSockets,
        sessions: SessionRefs<'_>,
        rebuilt: impl Fn(&String) -> bool,
        shared: &Shared,
    ) -> anyhow::Result<GatewayPlan> {
        let running = self.0.as_ref();
        match new {
            None if running.is_none() => Ok(GatewayPlan::Same),
            None => Ok(GatewayPlan::Stop),
            Some(new)
                if running.is_some_and(|running| running.options == *new)
                    && !new.token.session().is_some_and(rebuilt) =>
            {
                Ok(GatewayPlan::Same)
            }
            Some(new) => {
                let built = BuiltGateway::build(new, running, inherited, sessions, shared)?;
                Ok(GatewayPlan::Start(Box::new(built)))
            }
        }
    }

    /// Name and watch of the variables that the child process gets once the plan is in force; `None` without
    /// `gateway.process_token`.
    pub(super) fn for_child(&self, plan: &GatewayPlan) -> Option<(String, CredentialWatch<ProvidedEnv>)> {
        let watch = match plan {
            GatewayPlan::Same => self.0.as_ref()?.child.clone()?,
            GatewayPlan::Stop => return None,
            GatewayPlan::Start(built) => built.child.as_ref()?.1.clone(),
        };
        Some(("gateway".to_owned(), watch))
    }

    /// Stops the removed or replaced gateway, and starts the one that the plan built.
    pub(super) fn commit(&mut self, plan: GatewayPlan, tasks: &mut TaskGroup, drain: Duration) {
        if matches!(plan, GatewayPlan::Same) {
            return;
        }
        if let Some(running) = self.0.take() {
            if matches!(plan, GatewayPlan::Stop) {
                running.status_registry.remove_section(PlatformStatus::KEY);
                #[cfg(feature = "ui")]
                running.ui_sources.set_gateway(None);
                running.close_idle.cancel();
            }
            if let GatewayPlan::Start(built) = &plan
                && built.writes_the_file_of(&running.options)
            {
                running.file_handed_over.cancel();
            }
            running.stop.cancel();
        }
        if let GatewayPlan::Start(mut built) = plan {
            if let Some((child, _)) = &mut built.child {
                child.commit();
            }
            let stop = tasks.stop_token().child_token();
            let close_idle = tasks.stop_token().child_token();
            let file_handed_over = CancellationToken::new();
            #[cfg(feature = "ui")]
            built.ui_sources.set_gateway(Some(InProcessService::new(built.gateway.admin_service())));
            // Copies of the sockets stay here, so that a reload can hand them over.
            let sockets = built.sockets.iter().map(Listener::try_clone).collect::<Result<_, _>>();
            self.0 = sockets.ok().map(|sockets| RunningInstance {
                options: built.options.clone(),
                sockets,
                usage_stats: Arc::clone(&built.usage_stats),
                child: built.child.as_ref().map(|(_, watch)| watch.clone()),
                status_registry: built.shared.status_registry.clone(),
                #[cfg(feature = "ui")]
                ui_sources: built.ui_sources.clone(),
                stop: stop.clone(),
                close_idle: close_idle.clone(),
                file_handed_over: file_handed_over.clone(),
            });
            tasks.start("gateway", built.run(drain, stop, close_idle, file_handed_over));
        }
    }
}
