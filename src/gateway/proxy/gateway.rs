//! A gateway: its parts, built from options, and its background work.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request};
use keyward_credentials::credential_watch::CredentialWatch;
use keyward_http::client::{ClientOptions, ProxyMode, ServerAddress, TlsOptions};
use keyward_http::reverse_proxy::{Forwarder, ForwarderOptions, UpstreamRecorder, UpstreamTarget, UpstreamTargetError};
use keyward_http::server::{IncomingBody, ListenerMetrics, Peer, ResponseFuture};
use keyward_machine::clock::Clock;
use keyward_telemetry::health::{Health, HealthHandle};
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status_registry::StatusRegistry;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::admin_api::AdminApi;
use super::body::GatewayBody;
use super::deprecation::Deprecations;
use super::discovery::Discovery;
use super::forward::CallForwarder;
use super::minting_guard::Exemption;
use super::page_merge::PageFetcher;
use super::path::PATH_CLASSES;
use super::platform_info::{PlatformInfo, UpstreamHealth};
use super::rate_limiter::{RateLimit, RateLimiter};
use super::response_rewriter::ResponseRewriter;
use super::router::{GatewayListener, GatewayRouter};
use super::server_probe::ServerProbe;
use super::token_monitor::TokenMonitor;
use super::token_state::TokenState;
use super::upstream::Upstream;
use super::usage_stats::UsageStats;
use crate::GatewayMetrics;
use crate::actions::ActionOptions;
use crate::local_token::AcceptedTokens;
use crate::platform_token::PlatformTokenSource;

/// Settings of the proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayOptions {
    /// The platform's address: scheme, host and port only.
    pub upstream: Url,
    /// Other addresses of the platform that links in its responses may begin with: scheme, host and port only.
    pub aliases: Vec<Url>,
    /// PEM file of the CA bundle to use instead of the system store.
    pub ca_file: Option<PathBuf>,
    /// Proxy to the platform.
    pub proxy: ProxyMode,
    /// Maximum of concurrent connections to the platform.
    pub connections: usize,
    /// Time limit for a connection, TLS included.
    pub connect_timeout: Duration,
    /// Time limit for the response head, and for a pause in its body.
    pub response_timeout: Duration,
    /// Time that a call waits for a new token after the platform has rejected the current one.
    pub token_wait: Duration,
    /// Requests per second that are sent to the platform.
    pub limit: RateLimit,
    /// Handling of calls that the API history is about.
    pub actions: ActionOptions,
    /// Kinds of token-minting calls that are allowed.
    pub exempt: BTreeSet<Exemption>,
    /// Names that `Host` may have besides the listener's own address and `localhost`, without port.
    pub allowed_hosts: BTreeSet<String>,
}

/// Handles to the rest of the process that a gateway needs.
#[derive(Debug)]
pub struct GatewayDependencies {
    /// Time source for the end of the previous local token.
    pub clock: Clock,
    /// Registry that shows the detected platform.
    pub status_registry: StatusRegistry,
    /// Health served by `/v1/platform/status`.
    pub health: Health,
    /// Request metrics.
    pub metrics: Metrics,
    /// Health of the platform token: not ready while the platform rejects it.
    pub token_health: HealthHandle,
    /// Source of the platform token.
    pub source: PlatformTokenSource,
    /// Watch of the tokens that callers may present.
    pub local: CredentialWatch<AcceptedTokens>,
    /// Usage by client, handed from one gateway to its replacement on a reload.
    pub usage: Arc<UsageStats>,
}

/// A gateway to one platform. Clones share its connections, rate limit and counters.
#[derive(Debug, Clone)]
pub struct Gateway {
    router: Arc<GatewayRouter>,
    probe: Arc<ServerProbe>,
    token_monitor: Arc<TokenMonitor>,
}

impl Gateway {
    /// Reads the CA file. Opens no connection yet.
    pub fn build(options: GatewayOptions, dependencies: GatewayDependencies) -> Result<Self, GatewayBuildError> {
        let GatewayDependencies { clock, status_registry, health, metrics, token_health, source, local, usage } =
            dependencies;
        let recorder = UpstreamRecorder::new(&metrics, "platform", &PATH_CLASSES);
        let (forwarder, host) = build_forwarder(&options, recorder.clone())?;
        let metrics = metrics.get::<GatewayMetrics>();
        let tokens = Arc::new(TokenState::new(source, options.connections, options.token_wait, clock.clone()));
        let origin = options.upstream.origin().ascii_serialization();
        token_health.set_target(origin.as_str());
        let platform = Arc::new(PlatformInfo::new(origin, status_registry.clone()));
        let token_health = Arc::new(token_health);
        let upstream = Arc::new(Upstream {
            forwarder,
            host,
            response_timeout: options.response_timeout,
            limiter: RateLimiter::new(options.limit),
            tokens: Arc::clone(&tokens),
            platform: Arc::clone(&platform),
            clock: clock.clone(),
            health: UpstreamHealth::default(),
            component: Arc::clone(&token_health),
            replays: metrics.replays.clone(),
            queue_seconds: metrics.queue_seconds.clone(),
            recorder,
        });
        let rewriter = Arc::new(ResponseRewriter::new(&options.upstream, &options.aliases, clock.clone()));
        let forwarder = CallForwarder::new(
            Deprecations::new(
                options.actions.clone(),
                Arc::clone(&upstream),
                Arc::clone(&usage),
                &metrics,
                clock.clone(),
            ),
            PageFetcher::new(Arc::clone(&upstream), Arc::clone(&rewriter), options.actions.merge_pages),
            rewriter,
        );
        let admin_api = AdminApi {
            platform: Arc::clone(&platform),
            tokens: Arc::clone(&tokens),
            local: local.clone(),
            usage: Arc::clone(&usage),
            status_registry,
            health,
            clock: clock.clone(),
        };
        let router = GatewayRouter {
            local,
            usage,
            exempt: options.exempt,
            allowed_hosts: options.allowed_hosts,
            clock: clock.clone(),
            admin_api,
            discovery: Arc::new(Discovery::new(Arc::clone(&upstream), options.upstream.clone())),
            forwarder: Arc::new(forwarder),
        };
        Ok(Self {
            router: Arc::new(router),
            probe: Arc::new(ServerProbe::new(Arc::clone(&upstream), Arc::clone(&tokens), platform, clock.clone())),
            token_monitor: Arc::new(TokenMonitor::new(tokens, upstream, token_health, &metrics, clock)),
        })
    }

    /// Creates the service of one listener bound to `address` (`None` for a unix socket), for
    /// [`keyward_http::server::Listener::serve`].
    pub fn service(
        &self,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
    ) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<GatewayBody> + Clone + Send + Sync + 'static {
        let listener = Arc::new(GatewayListener::new(address, listener_metrics, self.router.allowed_hosts.clone()));
        let router = Arc::clone(&self.router);
        move |peer, request| router.serve(&listener, &peer, request)
    }

    /// Creates the service of the gateway's own endpoints, for callers in this process: it asks for no local token.
    pub fn admin_service(
        &self,
    ) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<GatewayBody> + Clone + Send + Sync + 'static {
        let router = Arc::clone(&self.router);
        move |_, request| {
            let name = request.uri().path().strip_prefix("/v1/platform/").unwrap_or_default().to_owned();
            ResponseFuture::ready(router.admin_api.serve(&name, &request, None))
        }
    }

    /// Pings the platform once there is a token, and again after an outage, until `stop`. Failed pings are retried with
    /// backoff of at most 5 minutes; callers are served meanwhile.
    ///
    /// Also reports a rejected or missing token.
    pub async fn probe_platform(&self, stop: CancellationToken) {
        let both = async { tokio::join!(self.probe.run(), self.token_monitor.run()) };
        let _ = stop.run_until_cancelled(both).await;
        self.token_monitor.clear_metrics();
    }
}

/// Builds the connections to the platform, and the `Host` of requests.
fn build_forwarder(
    options: &GatewayOptions,
    recorder: UpstreamRecorder,
) -> Result<(Forwarder, HeaderValue), UpstreamTargetError> {
    let target = UpstreamTarget::resolve(&ClientOptions {
        address: ServerAddress::Url(options.upstream.clone()),
        tls: TlsOptions { ca_file: options.ca_file.clone(), ..TlsOptions::default() },
        proxy: options.proxy.clone(),
        connect_timeout: options.connect_timeout,
        response_timeout: options.response_timeout,
    })?;
    let forwarder = Forwarder::new(ForwarderOptions {
        target: target.target,
        tls: target.tls,
        connections: options.connections,
        idle: IDLE_TIMEOUT,
        connect_timeout: options.connect_timeout,
        body_idle: Some(options.response_timeout),
        recorder: Some(recorder),
    });
    Ok((forwarder, target.host))
}

/// Shorter than the idle timeout of common load balancers, so that no request meets a connection they close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Error of [`Gateway::build`].
#[derive(Debug, thiserror::Error)]
pub enum GatewayBuildError {
    /// The address has no host, the proxy is invalid, or the CA file cannot be used.
    #[error(transparent)]
    UpstreamTarget(#[from] UpstreamTargetError),
}
