//! Sinks and listeners, built from their options and joined to their sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::api_proxy::{ApiProxy, ApiProxyDeps, ProxyCache};
use keyward_agent::caller_tokens::CallerTokens;
use keyward_agent::callers::CallerGate;
use keyward_agent::local_api::{self, ListenerKind, LocalApiDeps, LocalApiOptions};
use keyward_agent::secrets::DerivedTokenManager;
use keyward_agent::sinks::FileSink;
use keyward_agent::systemd_credentials::CredentialServer;
use keyward_agent::token::{SessionHandle, TokenWatch};
use keyward_config as config;
use keyward_config::Serves;
use keyward_http::peer::PeerReader;
use keyward_http::server::{ActivatedSockets, Endpoint, Listener, ListenerLimits, ListenerMetrics};
use keyward_http::tls::ServerTls;
use keyward_telemetry::health::HealthHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::caller_tokens::CallerTokensPlan;
use super::derived_tokens::{self, DerivedTokens};
use super::error_codes::ListenError;
use super::session::{FileFingerprint, Shared, bound_to, file_fingerprint};
use super::stopping::OutputPredecessors;
use super::systemd_credentials::{self, CredentialInputs};
#[cfg(feature = "ui")]
use super::ui;
use super::{audit, callers};

/// A sink that has written nothing yet.
#[derive(Debug)]
pub(super) struct BuiltSink {
    pub(super) options: config::Sink,
    /// Fingerprint of the reader's public key file at the time it was read.
    pub(super) public_key: Option<FileFingerprint>,
    watch: TokenWatch,
    /// Manager of the derived token; `None` if the session's own token is written.
    derived: Option<DerivedTokenManager>,
    health: HealthHandle,
    shared: Shared,
}

/// Signals to and from a running sink.
#[derive(Debug, Clone, Default)]
pub(super) struct SinkControl {
    /// Cancelled to stop it.
    pub(super) stop: CancellationToken,
    /// Cancelled before `stop` if the token is revoked, so that the file is cleared first.
    pub(super) clear: CancellationToken,
    /// Cancelled by the sink once it no longer uses its file.
    pub(super) done: CancellationToken,
}

impl BuiltSink {
    /// Joins a sink to its session.
    pub(super) fn build(
        options: config::Sink,
        source: &SessionHandle,
        session: Option<&config::Session>,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let sink = &options.options;
        let public_key = public_key_fingerprint(&options);
        let mut watch = source.watch.clone();
        let mut derived = None;
        if let (Some(derive), Some(session)) = (&options.derive, session) {
            let output = format!("sink {}", sink.name);
            let (manager, derived_handle) =
                derived_tokens::build_manager(output, None, derive.clone(), session, source, None, shared)?;
            (watch, derived) = (derived_handle.watch, Some(manager));
        }
        let health = shared.health.register(format!("sink/{}", sink.name), sink.required, "not written yet");
        Ok(Self { options, public_key, watch, derived, health, shared: shared.clone() })
    }

    pub(super) fn name(&self) -> &str {
        &self.options.options.name
    }

    /// Writes the file until it is stopped. Starts after its predecessors: a file has one writer at a time.
    pub(super) async fn run(self, control: SinkControl, follows: OutputPredecessors) -> anyhow::Result<()> {
        let _done = control.done.drop_guard();
        follows.wait().await;
        let Shared { clock, metrics, outputs, .. } = self.shared;
        let mut sink =
            FileSink::new(self.options.options, self.watch, clock, self.health, metrics).with_output_watch(outputs);
        let derived = async {
            if let Some(derived) = self.derived {
                derived.run(control.stop.clone()).await;
            }
        };
        tokio::join!(sink.run(control.stop.clone()), derived);
        if control.clear.is_cancelled() {
            sink.clear().await;
        }
        Ok(())
    }
}

/// Fingerprint of the file with the key of a sink's reader.
pub(super) fn public_key_fingerprint(sink: &config::Sink) -> Option<FileFingerprint> {
    file_fingerprint(&sink.options.encrypt.as_ref()?.public_key_file)
}

/// Parts that a listener is built from, besides its options and its socket.
#[derive(Debug)]
pub(super) struct ListenerInputs<'a> {
    /// Sessions that it serves, by name.
    pub(super) sources: BTreeMap<String, SessionHandle>,
    /// All sessions.
    pub(super) sessions: &'a [config::Session],
    /// Sources of the credentials that it serves to systemd.
    pub(super) credentials: &'a CredentialInputs,
    /// Tokens of callers' own.
    pub(super) caller_tokens: &'a CallerTokensPlan,
}

/// A listener that is bound and serves no request yet.
#[derive(Debug)]
pub(super) struct BoundListener {
    pub(super) options: config::Listener,
    pub(super) socket: Listener,
    serving: ListenerService,
    tls: Option<ServerTls>,
    callers: CallerGate,
    peer_reader: Option<Arc<PeerReader>>,
    derived_tokens: DerivedTokens,
    health: Arc<HealthHandle>,
    shared: Shared,
}

/// The cache of a running listener, and the signals about it.
#[derive(Debug, Clone, Default)]
pub(super) struct CacheControl {
    /// `None` for a listener without a cache.
    cache: Option<ProxyCache>,
    /// Cancelled before the listener stops, if another of its name waits for the saved cache.
    replaced: CancellationToken,
    /// Cancelled by the listener once it has saved its cache.
    saved: CancellationToken,
}

impl CacheControl {
    /// Prepares for the stop of the listener, and for the one of its name that replaces it. Returns a token that is cancelled
    /// once the cache is saved.
    pub(super) fn hand_over(&self, next: Option<&BoundListener>) -> CancellationToken {
        if let Some(next) = next {
            if let (Some(cache), Some(successor)) = (&self.cache, next.cache_control().cache) {
                cache.set_successor(&successor);
            }
            self.replaced.cancel();
        }
        self.saved.clone()
    }
}

/// Service of a listener, joined to its sessions.
#[derive(Debug)]
enum ListenerService {
    Own(LocalApiOptions, CallerTokens),
    Proxied(ApiProxy),
    SystemdCredentials(CredentialServer),
    #[cfg(feature = "ui")]
    Ui(Option<ServerTls>),
}

impl BoundListener {
    /// Binds the socket, or takes over that of a running listener. A new unix socket is not placed yet.
    pub(super) fn bind(
        options: config::Listener,
        inputs: ListenerInputs<'_>,
        running: Option<&Listener>,
        inherited: &ActivatedSockets,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let socket = match running {
            Some(socket) => socket.clone_for_successor(),
            None => Listener::open_unplaced(&options.endpoint, inherited),
        };
        let is_open = options.serves.allows_other_machines();
        let socket = if is_open { socket } else { socket.and_then(Listener::require_loopback) };
        let listener = || format!("listener {}", options.name);
        let socket = socket.map_err(|error| ListenError::new(listener(), &options.endpoint, error))?;
        let ListenerInputs { sources, sessions, credentials, caller_tokens } = inputs;
        let own_tokens = caller_tokens.tokens.clone();
        let (mut derived_tokens, sources) = DerivedTokens::build(&options, sources, sessions, shared)?;
        derived_tokens.wait_for(caller_tokens.pairs_for(&options));
        let health = shared.health.register(format!("listener/{}", options.name), options.required, "not serving yet");
        let address = socket.tcp_address().map_or_else(|| options.endpoint.clone(), Endpoint::Tcp);
        health.set_target(address.to_string());
        let health = Arc::new(health);
        let (callers, peer_reader) = callers::gate(&options, shared);
        let tls = options.tls.as_ref().map(ServerTls::new).transpose().with_context(listener)?;
        let local_api_options = |kind, sessions| LocalApiOptions { name: options.name.clone(), kind, sessions };
        let serving = match &options.serves {
            Serves::LocalApi => ListenerService::Own(local_api_options(ListenerKind::LocalApi, sources), own_tokens),
            Serves::Health => ListenerService::Own(local_api_options(ListenerKind::Health, sources), own_tokens),
            Serves::SystemdCredentials(served) => {
                let server = systemd_credentials::build_server(&options, served, &sources, credentials, shared)?;
                ListenerService::SystemdCredentials(server)
            }
            #[cfg(feature = "ui")]
            Serves::Ui(certificate) => {
                ListenerService::Ui(certificate.as_ref().map(ServerTls::new).transpose().with_context(listener)?)
            }
            Serves::ApiProxy(proxied) => {
                let find_session = |(name, source): (&String, _)| {
                    Some((sessions.iter().find(|session| session.name == *name)?, source))
                };
                let (session, source) = sources.iter().find_map(find_session).context("the listener has no session")?;
                let deps = ApiProxyDeps {
                    clock: shared.clock.clone(),
                    watch: source.watch.clone(),
                    refresh_signal: source.refresh_signal.clone(),
                    upstream: session.upstream.clone(),
                    namespace: session.login.namespace.clone(),
                    listener_metrics: ListenerMetrics {
                        metrics: shared.metrics.clone(),
                        listener: options.name.clone(),
                    },
                    derived_token: options.derived_token.clone(),
                    callers: callers.clone(),
                    caller_tokens: own_tokens,
                    health: Some(Arc::clone(&health)),
                    bound_to: bound_to(session),
                };
                let proxy = ApiProxy::build(proxied.as_ref().clone(), deps);
                ListenerService::Proxied(proxy.with_context(|| format!("listener {}", options.name))?)
            }
        };
        Ok(Self { options, socket, serving, tls, callers, peer_reader, derived_tokens, health, shared: shared.clone() })
    }

    pub(super) fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns the listener's cache, with signals that are not cancelled yet.
    pub(super) fn cache_control(&self) -> CacheControl {
        let cache = if let ListenerService::Proxied(proxy) = &self.serving { proxy.cache() } else { None };
        CacheControl { cache, ..CacheControl::default() }
    }

    /// Serves until `stop`, then drains for at most `drain`. Waits until the listener in `follows` has saved its cache;
    /// `control` is that of its own.
    pub(super) async fn serve(
        self,
        drain: Duration,
        stop: CancellationToken,
        follows: Option<CancellationToken>,
        control: CacheControl,
    ) -> anyhow::Result<()> {
        let saved = control.saved.drop_guard();
        if let Some(other) = follows {
            // A disk that hangs delays no other task.
            let _ = tokio::time::timeout(WRITE_TIMEOUT, other.cancelled()).await;
        }
        let Self { options, socket, serving, tls, callers, peer_reader, derived_tokens, health, shared } = self;
        let listener_metrics = ListenerMetrics { metrics: shared.metrics.clone(), listener: options.name.clone() };
        let limits = ListenerLimits {
            drain,
            listener_metrics: Some(listener_metrics.clone()),
            peer_reader,
            refused_heads: Some(audit::refused_heads(&shared, "agent", &options.name)),
            ..ListenerLimits::default()
        };
        health.set_ready();
        let ends = stop.clone();
        let stop = stop;
        let serving = async {
            match serving {
                ListenerService::Own(served, caller_tokens) => {
                    let audited = audit::local_api(&shared, &options.name);
                    let deps = LocalApiDeps {
                        clock: shared.clock,
                        metrics: shared.metrics,
                        health: shared.health,
                        status_registry: shared.status_registry,
                        session_statuses: shared.session_statuses,
                        callers,
                        caller_tokens,
                        guard: options.guard,
                        address: socket.tcp_address(),
                        stop: stop.clone(),
                    };
                    socket.serve(audited.wrap(local_api::service(served, deps)), limits, stop).await;
                }
                ListenerService::SystemdCredentials(server) => {
                    // It has no cache that the listener after it would wait for.
                    drop(saved);
                    server.serve(socket, drain, stop).await;
                }
                #[cfg(feature = "ui")]
                ListenerService::Ui(tls) => {
                    if let Some(service) = ui::service(&options, &socket, tls.is_some(), &shared) {
                        socket.serve(service, ListenerLimits { tls, ..limits }, stop).await;
                    }
                }
                ListenerService::Proxied(proxy) => {
                    proxy.restore_cache().await;
                    let address = socket.tcp_address();
                    let service = proxy.audited_service(options.guard, address, listener_metrics, shared.auditor);
                    let serving = socket.serve(
                        service,
                        ListenerLimits { idle_timeout: IDLE_TIMEOUT, tls, ..limits },
                        stop.clone(),
                    );
                    serve_beside_cache(serving, &proxy, stop, control.replaced, saved).await;
                }
            }
        };
        Box::pin(derived_tokens.run_beside(serving, &ends)).await;
        Ok(())
    }
}

/// Serves a proxy. Its cache is saved at `stop`, and again after the last request. If the listener was `replaced`, it is saved
/// at `stop` only: the file is the next listener's from then on.
async fn serve_beside_cache(
    serving: impl Future<Output = ()>,
    proxy: &ApiProxy,
    stop: CancellationToken,
    replaced: CancellationToken,
    saved: DropGuard,
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
        drop(saved);
    };
    tokio::join!(serving, tending);
}

/// Time for a replaced listener to save its cache.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longer than clients of the server keep a connection (90 s in Go's): then it is never closed under a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);
