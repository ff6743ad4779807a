//! Listeners, built from their options and joined to their sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::api_proxy::{ApiProxy, ApiProxyDeps, ProxyCache};
use keyward_agent::identity_api::{self, IdentityApiDeps, IdentityApiOptions};
use keyward_agent::local_api::{self, ListenerKind, LocalApiDeps, LocalApiOptions};
use keyward_agent::token::SessionHandle;
use keyward_config as config;
use keyward_config::Serves;
use keyward_http::server::{Endpoint, Listener, ListenerLimits, ListenerMetrics};
use keyward_http::tls::ServerTls;
use keyward_telemetry::health::HealthHandle;
use tokio_util::sync::CancellationToken;

use super::caller_tokens::CallerTokensPlan;
use super::error_codes::{self, ListenError};
use super::reconciler::{Claim, Group, Plan, Work};
use super::session::{PlanContext, bound_to};
use super::systemd_credentials::{self, CredentialInputs};
#[cfg(feature = "ui")]
use super::ui;
use super::{audit, callers, derived_tokens, identities};

/// Listeners, by name.
pub(super) type Listeners = Group<config::Listener, ListenerHandle>;

/// Change of the listeners by a new configuration. Dropping it changes nothing.
pub(super) type ListenersPlan = Plan<config::Listener, ListenerHandle>;

/// Parts of a listener that another one takes over, and the signal that it does.
pub(super) struct ListenerHandle {
    /// A copy of the socket.
    pub(super) socket: Listener,
    /// `None` for a listener without a cache.
    cache: Option<ProxyCache>,
    /// Cancelled before the listener stops, if another of its name waits for the saved cache.
    replaced: CancellationToken,
}

/// Parts that a listener is built from, besides its options and its socket.
#[derive(Clone, Copy)]
struct ListenerInputs<'a> {
    /// Sources of the credentials that it serves to systemd.
    credentials: &'a CredentialInputs,
    /// Tokens of callers' own.
    caller_tokens: &'a CallerTokensPlan,
    context: &'a PlanContext<'a>,
}

/// Plans and binds the listeners. A socket whose address stays is taken over, whatever the name of its listener. `tokens` returns the
/// handles by which a listener reads the tokens of its sessions.
pub(super) fn plan(
    running: &Listeners,
    mut tokens: impl FnMut(&config::Listener, &[String]) -> anyhow::Result<BTreeMap<String, SessionHandle>>,
    credentials: &CredentialInputs,
    caller_tokens: &CallerTokensPlan,
    context: &PlanContext<'_>,
) -> anyhow::Result<ListenersPlan> {
    let mut plan = context.plan();
    let inputs = ListenerInputs { credentials, caller_tokens, context };
    for options in &context.config.listeners {
        // Probes and pages use no token of a session: their connections outlive one.
        let sessions: &[String] = if options.serves.uses_tokens() { &options.sessions } else { &[] };
        let before = running.running.values().find(|before| before.options.endpoint == options.endpoint);
        let before = before.map(|before| &before.handle.socket);
        let sources = tokens(options, sessions)?;
        let claim = running.claim(&options.name, &used_parts(options, sessions));
        let build = |claim: &Claim| build(options, claim, sources, inputs, before);
        let planned = running.plan(&mut plan, claim, options.clone(), build);
        let bound = running.running.iter().filter_map(|(name, part)| Some((name, part.handle.socket.tcp_address()?)));
        planned.map_err(|error| error_codes::name_port_holder(error, bound))?;
    }
    Ok(plan)
}

/// Returns the sessions and identities that a listener is built anew with.
fn used_parts(options: &config::Listener, sessions: &[String]) -> Vec<String> {
    match &options.serves {
        Serves::Identity(identities) => identities.iter().map(|name| identities::part_name(name)).collect(),
        _ => sessions.to_vec(),
    }
}

/// Stops removed and replaced listeners.
pub(super) fn stop(listeners: &mut Listeners, plan: &ListenersPlan) {
    for part in listeners.take_ended(plan) {
        if plan.built.iter().any(|next| next.options.endpoint == part.options.endpoint) {
            part.handle.socket.hand_over();
        }
        if let Some(next) = plan.find(&part.claim.name) {
            if let (Some(cache), Some(successor)) = (&part.handle.cache, &next.handle.cache) {
                cache.set_successor(successor);
            }
            part.handle.replaced.cancel();
        }
        listeners.stop(part.claim);
    }
}

/// Binds the socket, or takes over that of a running listener. A new unix socket is not placed yet.
fn build(
    options: &config::Listener,
    claim: &Claim,
    sources: BTreeMap<String, SessionHandle>,
    inputs: ListenerInputs<'_>,
    before: Option<&Listener>,
) -> anyhow::Result<(ListenerHandle, Work)> {
    let PlanContext { shared, inherited, .. } = *inputs.context;
    let socket = match before {
        Some(socket) => socket.clone_for_successor(),
        None => Listener::open_unplaced(&options.endpoint, inherited),
    };
    let is_open = options.serves.allows_other_machines();
    let socket = if is_open { socket } else { socket.and_then(Listener::require_loopback) };
    let origin = || format!("listener {}", options.name);
    let socket = socket.and_then(|socket| Ok((socket.try_clone()?, socket)));
    let (copy, socket) = socket.map_err(|error| ListenError::new(origin(), &options.endpoint, error))?;
    let mut pairs = inputs.caller_tokens.pairs_for(options);
    for (name, source) in &sources {
        let (_, parent) = inputs.context.session(name)?;
        pairs.push((parent.watch.clone(), source.watch.clone()));
    }
    let health = shared.health.register(format!("listener/{}", options.name), options.required, "not serving yet");
    let address = socket.tcp_address().map_or_else(|| options.endpoint.clone(), Endpoint::Tcp);
    health.set_target(address.to_string());
    let health = Arc::new(health);
    let mut handle = ListenerHandle { socket: copy, cache: None, replaced: CancellationToken::new() };
    let serving = serve(options, claim, socket, sources, &health, &mut handle, inputs).with_context(origin)?;
    let has_cache = handle.cache.is_some();
    let (stop, released) = (claim.stop.clone(), claim.released.clone());
    let work = async move {
        if !has_cache {
            // There is nothing that the listener after it would wait for.
            released.cancel();
        }
        health.set_ready();
        derived_tokens::wait_for_first_tokens(pairs, stop).await;
        serving.await;
    };
    Ok((handle, Box::pin(work)))
}

/// Returns the work of serving a socket until the listener is stopped, and draining then. Sets the cache of its handle.
fn serve(
    options: &config::Listener,
    claim: &Claim,
    socket: Listener,
    sources: BTreeMap<String, SessionHandle>,
    health: &Arc<HealthHandle>,
    handle: &mut ListenerHandle,
    inputs: ListenerInputs<'_>,
) -> anyhow::Result<Work> {
    let shared = inputs.context.shared.clone();
    let drain = inputs.context.config.agent.stop_grace;
    let (callers, peer_reader) = callers::gate(options, &shared);
    let listener_metrics = ListenerMetrics { metrics: shared.metrics.clone(), listener: options.name.clone() };
    let limits = ListenerLimits {
        drain,
        listener_metrics: Some(listener_metrics.clone()),
        peer_reader,
        refused_heads: Some(audit::refused_heads(&shared, "agent", &options.name)),
        ..ListenerLimits::default()
    };
    let stop = claim.stop.clone();
    Ok(match &options.serves {
        Serves::LocalApi | Serves::Health => {
            let is_health = matches!(options.serves, Serves::Health);
            let kind = if is_health { ListenerKind::Health } else { ListenerKind::LocalApi };
            let served = LocalApiOptions { name: options.name.clone(), kind, sessions: sources };
            let audited = audit::local_api(&shared, &options.name);
            let deps = LocalApiDeps {
                clock: shared.clock,
                metrics: shared.metrics,
                health: shared.health,
                status_registry: shared.status_registry,
                session_statuses: shared.session_statuses,
                secrets: shared.secrets,
                rotations: shared.rotations,
                callers,
                caller_tokens: inputs.caller_tokens.tokens.clone(),
                guard: options.guard.clone(),
                address: socket.tcp_address(),
                stop: stop.clone(),
            };
            Box::pin(socket.serve(audited.wrap(local_api::service(served, deps)), limits, stop))
        }
        Serves::Identity(served) => {
            let served = served.iter().filter_map(|name| inputs.context.identities.get_key_value(name));
            let identities = served.map(|(name, tokens)| (name.clone(), tokens.clone())).collect();
            let api = IdentityApiOptions { name: options.name.clone(), identities };
            let audited = audit::identity(&shared, &options.name);
            let guard = options.guard.clone();
            let deps = IdentityApiDeps { metrics: shared.metrics, callers, guard, address: socket.tcp_address() };
            Box::pin(socket.serve(audited.wrap(identity_api::service(api, deps)), limits, stop))
        }
        Serves::SystemdCredentials(served) => {
            let server = systemd_credentials::build_server(options, served, &sources, inputs.credentials, &shared)?;
            Box::pin(server.serve(socket, drain, stop))
        }
        #[cfg(feature = "ui")]
        Serves::Ui(certificate) => {
            let tls = certificate.as_ref().map(ServerTls::new).transpose()?;
            let options = options.clone();
            Box::pin(async move {
                if let Some(service) = ui::service(&options, &socket, tls.is_some(), &shared) {
                    socket.serve(service, ListenerLimits { tls, ..limits }, stop).await;
                }
            })
        }
        Serves::ApiProxy(proxied) => {
            let (name, source) = sources.iter().next().context("the listener has no session")?;
            let (session, _) = inputs.context.session(name)?;
            let deps = ApiProxyDeps {
                clock: shared.clock.clone(),
                watch: source.watch.clone(),
                refresh_signal: source.refresh_signal.clone(),
                upstream: session.upstream.clone(),
                namespace: session.login.namespace.clone(),
                listener_metrics: listener_metrics.clone(),
                derived_token: options.derived_token.clone(),
                callers,
                caller_tokens: inputs.caller_tokens.tokens.clone(),
                health: Some(Arc::clone(health)),
                bound_to: bound_to(session),
            };
            let proxy = ApiProxy::build(proxied.as_ref().clone(), deps)?;
            handle.cache = proxy.cache();
            let guard = options.guard.clone();
            let tls = options.tls.as_ref().map(ServerTls::new).transpose()?;
            let limits = ListenerLimits { idle_timeout: IDLE_TIMEOUT, tls, threads: options.threads, ..limits };
            let (replaced, saved) = (handle.replaced.clone(), claim.released.clone());
            Box::pin(async move {
                proxy.restore_cache().await;
                let address = socket.tcp_address();
                let service = proxy.audited_service(guard, address, listener_metrics, shared.auditor);
                let serving = socket.serve(service, limits, stop.clone());
                serve_beside_cache(serving, &proxy, stop, replaced, saved).await;
            })
        }
    })
}

/// Serves a proxy. Its cache is saved at `stop`, and again after the last request. If the listener was `replaced`, it is saved
/// at `stop` only: the file is the next listener's from then on.
async fn serve_beside_cache(
    serving: impl Future<Output = ()>,
    proxy: &ApiProxy,
    stop: CancellationToken,
    replaced: CancellationToken,
    saved: CancellationToken,
) {
    let served = CancellationToken::new();
    let serving = async {
        serving.await;
        served.cancel();
    };
    let last_save = async {
        tokio::select! {
            () = served.cancelled() => {}
            () = replaced.cancelled() => {}
        }
    };
    let tending = async {
        proxy.run_cache(stop, last_save).await;
        saved.cancel();
    };
    tokio::join!(serving, tending);
}

/// Time for a replaced listener to save its cache: a disk that hangs delays no other task.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longer than clients of the server keep a connection (90 s in Go's): then it is never closed under a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
