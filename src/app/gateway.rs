//! Assembles the gateway from its options, its sockets and its token sources.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keyward_config as config;
use keyward_credentials::credential_watch::CredentialWatch;
use keyward_gateway::client_setup::{
    ChildEnv, ClientTokenKind, ClientTokenSource, GatewayClient, ProgramCliConfig, TerraformConfigFile,
};
use keyward_gateway::local_token::LocalTokenManager;
use keyward_gateway::proxy::{Gateway, GatewayDependencies, UsageStats};
#[cfg(feature = "ui")]
use keyward_http::in_process::InProcessService;
use keyward_http::server::{ActivatedSockets, Endpoint, Listener, ListenerLimits, ListenerMetrics};
use keyward_machine::command::ProvidedEnv;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::audit;
use super::error_codes::ListenError;
use super::platform_token::PlatformTokenProvider;
use super::reconciler::{Claim, Group, Part, Plan, Work};
use super::session::{PlanContext, Shared};

/// The gateway: at most one that runs, and others that drain.
pub(super) type Gateways = Group<config::Gateway, GatewayHandle>;

/// Change of the gateway by a new configuration. Dropping it changes nothing.
pub(super) type GatewayPlan = Plan<config::Gateway, GatewayHandle>;

/// Parts of a gateway that others use, and signals to it.
pub(super) struct GatewayHandle {
    /// Copies of its sockets, in the order of its endpoints, for the gateway that replaces it.
    pub(super) sockets: Vec<Listener>,
    usage_stats: Arc<UsageStats>,
    /// Publisher of the child process's variables; `None` once the gateway has started.
    child_env: Option<ChildEnv>,
    child_watch: Option<CredentialWatch<ProvidedEnv>>,
    #[cfg(feature = "ui")]
    pages: InProcessService,
    /// Cancelled if no other gateway replaces it: idle connections close then.
    close_idle: CancellationToken,
    /// Cancelled if another gateway writes its `terraform_config_file` from now on.
    file_handed_over: CancellationToken,
}

/// Plans the gateway. A socket whose address stays is reused.
///
/// # Errors
/// A file cannot be used, or an address cannot be bound. Nothing has changed then.
pub(super) fn plan(running: &Gateways, context: &PlanContext<'_>) -> anyhow::Result<GatewayPlan> {
    let mut plan = context.plan();
    if let Some(options) = &context.config.gateway {
        let claim = running.claim(NAME, options.token.session().map_or(&[], slice::from_ref));
        running.plan(&mut plan, claim, options.clone(), |claim| build(options, running, claim, context))?;
    }
    Ok(plan)
}

/// Name and watch of the variables that the child process gets once the plan is in force; `None` without `gateway.process_token`.
pub(super) fn for_child(running: &Gateways, plan: &GatewayPlan) -> Option<(String, CredentialWatch<ProvidedEnv>)> {
    let handle = running.planned(plan, NAME)?;
    Some((NAME.to_owned(), handle.child_watch.clone()?))
}

/// Bound addresses of the gateway that will start; empty if none will. A port 0 of the configuration is replaced by the actual port.
pub(super) fn endpoints(plan: &GatewayPlan) -> Vec<Endpoint> {
    plan.built.iter().flat_map(|part| bound_endpoints(&part.options, &part.handle.sockets)).collect()
}

fn bound_endpoints(options: &config::Gateway, sockets: &[Listener]) -> Vec<Endpoint> {
    let actual_endpoint = |(endpoint, socket): (&Endpoint, &Listener)| {
        socket.tcp_address().map_or_else(|| endpoint.clone(), Endpoint::Tcp)
    };
    options.endpoints.iter().zip(sockets).map(actual_endpoint).collect()
}

/// Stops the removed or replaced gateway, and starts the one that the plan built.
pub(super) fn commit(gateways: &mut Gateways, mut plan: GatewayPlan, shared: &Shared) {
    let file = |options: &config::Gateway| Some(options.terraform_config_file.as_ref()?.file.clone());
    for part in gateways.take_ended(&plan) {
        match plan.find(NAME) {
            None => {
                shared.status_registry.update(|status| status.platform = None);
                #[cfg(feature = "ui")]
                shared.ui_sources.set_gateway(None);
                part.handle.close_idle.cancel();
            }
            Some(next) if file(&next.options).is_some() && file(&next.options) == file(&part.options) => {
                part.handle.file_handed_over.cancel();
            }
            Some(_) => {}
        }
        gateways.stop(part.claim);
    }
    for part in &mut plan.built {
        // Before the child process starts: its variables name a file that is written here.
        if let Some(mut child_env) = part.handle.child_env.take() {
            child_env.commit();
            let ended = part.claim.ended.clone();
            gateways.tasks.start("variables of the gateway", async move {
                child_env.run(ended).await;
                Ok(())
            });
        }
        #[cfg(feature = "ui")]
        shared.ui_sources.set_gateway(Some(part.handle.pages.clone()));
    }
    gateways.start(plan);
}

const NAME: &str = "gateway";

const NO_TCP_SOCKET: &str = "programs cannot call the gateway: none of its sockets is on TCP";

fn build(
    options: &config::Gateway,
    gateways: &Gateways,
    claim: &Claim,
    context: &PlanContext<'_>,
) -> anyhow::Result<(GatewayHandle, Work)> {
    let shared = context.shared;
    let running = gateways.running.get(NAME);
    let (local, accepted) = LocalTokenManager::open(options.local_token.clone(), shared.clock.clone())
        .context("the gateway cannot keep its local token")?;
    let (token, source) = PlatformTokenProvider::build(options, context)?;
    let register = |component: &str, waiting: &str| shared.health.register(component, options.required, waiting);
    let usage_stats = running.map(|running| Arc::clone(&running.handle.usage_stats)).unwrap_or_default();
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
    let sockets = bind(&options.endpoints, running, context.inherited)?;
    let content = |token_kind| match token_kind {
        ClientTokenKind::PlatformToken => anyhow::Ok(ClientTokenSource::Platform(platform.clone())),
        ClientTokenKind::LocalToken => {
            let address = sockets.iter().find_map(Listener::tcp_address);
            Ok(ClientTokenSource::Local(accepted.clone(), format!("http://{}", address.context(NO_TCP_SOCKET)?)))
        }
    };
    let child_env = match options.process_token.zip(options.process_files.as_ref()) {
        None => None,
        Some((token_kind, reads)) => {
            let platform = options.proxy.upstream.as_str().trim_end_matches('/').to_owned();
            let folder = options.local_token.file.parent().filter(|_| token_kind == ClientTokenKind::LocalToken);
            let client = folder.map(|folder| GatewayClient {
                terraform: ProgramCliConfig::new(folder.to_owned(), reads.clone()),
                proxy_exceptions: options.process_proxy_exceptions.clone(),
            });
            Some(ChildEnv::new(content(token_kind)?, options.host.clone(), platform, client, shared.clock.clone()))
        }
    };
    let (child_env, child_watch) = child_env.unzip();
    let drained = CancellationToken::new();
    let file_handed_over = CancellationToken::new();
    // A replaced gateway rotates no more: its successor rotates the same files.
    let mut beside: Vec<Work> = vec![Box::pin(local.run(claim.stop.clone())), Box::pin(token.run(drained.clone()))];
    if let Some(file) = &options.terraform_config_file {
        let content = content(file.token_kind)?;
        let health = register("gateway/terraform_config_file", "not written yet");
        let file = TerraformConfigFile::new(file.clone(), content, shared.clock.clone(), health);
        beside.push(Box::pin(file.run(drained.clone(), file_handed_over.clone())));
    }
    let handle = GatewayHandle {
        sockets: sockets.iter().map(Listener::try_clone).collect::<Result<_, _>>().context("the gateway")?,
        usage_stats,
        child_env,
        child_watch,
        #[cfg(feature = "ui")]
        pages: InProcessService::new(gateway.admin_service()),
        close_idle: gateways.tasks.stop_token().child_token(),
        file_handed_over,
    };
    let health = register("listener/gateway", "not serving yet");
    let addresses = bound_endpoints(options, &sockets);
    health.set_target(addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    let limits = ListenerLimits {
        idle_timeout: IDLE_TIMEOUT,
        drain: context.config.agent.stop_grace,
        replaced_until: Some(handle.close_idle.clone()),
        threads: options.threads,
        ..ListenerLimits::default()
    };
    let serve = |socket| serve(&gateway, socket, limits.clone(), claim.stop.clone(), shared);
    let serving: Vec<Work> = sockets.into_iter().map(serve).collect();
    let stop = claim.stop.clone();
    beside.push(Box::pin(async move { gateway.probe_platform(stop).await }));
    let work = async move {
        let beside: JoinSet<()> = beside.into_iter().collect();
        let serving: JoinSet<()> = serving.into_iter().collect();
        health.set_ready();
        serving.join_all().await;
        drained.cancel();
        beside.join_all().await;
    };
    Ok((handle, Box::pin(work)))
}

/// Serves a socket until `stop`, then drains. A replaced gateway keeps idle connections for one more request, until the end of that
/// or of `limits.replaced_until`.
fn serve(
    gateway: &Gateway,
    socket: Listener,
    limits: ListenerLimits,
    stop: CancellationToken,
    shared: &Shared,
) -> Work {
    let listener_metrics = ListenerMetrics { metrics: shared.metrics.clone(), listener: NAME.to_owned() };
    let limits = ListenerLimits {
        listener_metrics: Some(listener_metrics.clone()),
        refused_heads: Some(audit::refused_heads(shared, NAME, NAME)),
        ..limits
    };
    let service = gateway.service(socket.tcp_address(), listener_metrics);
    Box::pin(socket.serve(audit::gateway(shared, NAME).wrap(service), limits, stop))
}

/// Longer than clients keep an idle connection (90 s in Go), so a request never meets a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// Binds the gateway's addresses, or reuses the sockets of a running gateway. New unix sockets are not placed yet.
fn bind(
    endpoints: &[Endpoint],
    running: Option<&Part<config::Gateway, GatewayHandle>>,
    inherited: &ActivatedSockets,
) -> Result<Vec<Listener>, ListenError> {
    let open = |endpoint: &Endpoint| {
        let running_socket = running.and_then(|running| {
            let mut all = running.options.endpoints.iter().zip(&running.handle.sockets);
            all.find(|(candidate, _)| *candidate == endpoint).map(|(_, socket)| socket)
        });
        running_socket
            .map_or_else(|| Listener::open_unplaced(endpoint, inherited), Listener::try_clone)
            .and_then(Listener::require_loopback)
            .map_err(|error| ListenError::new("the gateway", endpoint, error))
    };
    endpoints.iter().map(open).collect()
}
