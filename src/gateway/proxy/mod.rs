//! Forwards calls of local clients to the platform with the current platform token, and serves the gateway's own
//! endpoints.
//!
//! | request | response |
//! |---|---|
//! | `/api/v2/...`, `/api/registry/...`, `/api/meta/ip-ranges` | the platform's, its links rewritten to the gateway |
//! | `GET /api/state-versions/ID/hosted_state` and similar | the platform's: a redirect to the state, or the state |
//! | `GET /.well-known/terraform.json` | service discovery: the services of the gateway |
//! | `GET /v1/platform/changes` | dated history of the platform's API, with filters and pages |
//! | `GET /v1/platform/report` | deprecated calls by client, and their replacements |
//! | `GET /v1/platform/tokens` | tokens by source and age, and callers; never a token |
//! | `GET /v1/platform/status` | status of the process as in the local API, without sessions |
//!
//! All but service discovery requires the local token. An error is a JSON:API document with `errors`.

mod response;
mod body;
mod upstream_call;
mod deprecation;
mod rate_limiter;
mod link_rewriter;
mod page_merge;
mod origins;
mod outcome;
mod admin_api;
mod path;
mod server_probe;
mod usage_stats;
mod serve;
mod token_making;
mod token_state;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderValue;
use url::Url;

use origins::LinkPrefixes;
use token_state::TokenState;

pub use body::GatewayBody;
pub use rate_limiter::RateLimit;
pub use token_making::Exemption;
pub use usage_stats::UsageStats;

use crate::clock::Clock;
use crate::credential_watch::CredentialWatch;
use crate::gateway::actions::{self, CallAssessor};
use crate::gateway::availability::ServerInfo;
use crate::gateway::local_token::AcceptedTokens;
use crate::gateway::platform_token::PlatformTokenSource;
use crate::health::{Health, HealthHandle};
use crate::http::body_buffer::BufferBudget;
use crate::http::client::{self, ProxyMode, ServerAddress, TlsOptions};
use crate::http::guard;
use crate::http::reverse_proxy::{self, Forwarder, UpstreamTarget, UpstreamTargetError};
use crate::http::server::ListenerMetrics;
use crate::metrics::Metrics;
use crate::status::StatusRegistry;

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
    pub actions: actions::ActionOptions,
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
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: GatewayOptions,
    dependencies: GatewayDependencies,
    forwarder: Forwarder,
    limiter: rate_limiter::RateLimiter,
    /// Memory for bodies that may have to be sent again.
    buffers: BufferBudget,
    /// The platform's origin.
    origin: String,
    /// Prefixes of links into the platform's API.
    link_prefixes: Arc<LinkPrefixes>,
    /// The platform's origin as the `Host` of requests.
    host: HeaderValue,
    /// Reachability of the platform.
    upstream_health: server_probe::UpstreamHealth,
    /// State of the platform token: accepted or rejected.
    token_state: TokenState,
    actions: CallAssessor,
    /// Product and release of the platform.
    server: Mutex<Arc<ServerInfo>>,
    /// True once an encoded response has been logged.
    warned_encoded: AtomicBool,
}

impl Gateway {
    /// Reads the CA file. Opens no connection yet.
    ///
    /// # Errors
    /// The CA file cannot be used, or the address has no host that TLS could verify.
    pub fn build(options: GatewayOptions, dependencies: GatewayDependencies) -> Result<Self, GatewayBuildError> {
        let upstream = &options.upstream;
        let client_options = client::ClientOptions {
            address: ServerAddress::Url(upstream.clone()),
            tls: TlsOptions { ca_file: options.ca_file.clone(), ..TlsOptions::default() },
            proxy: options.proxy.clone(),
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
        };
        let UpstreamTarget { target, tls, host, .. } = UpstreamTarget::resolve(&client_options)?;
        let forwarder = Forwarder::new(reverse_proxy::ForwarderOptions {
            target,
            tls,
            connections: options.connections,
            idle: IDLE_TIMEOUT,
            connect_timeout: options.connect_timeout,
            body_idle: Some(options.response_timeout),
        });
        let origin = upstream.origin().ascii_serialization();
        let link_prefixes = Arc::new(LinkPrefixes::new(std::iter::once(upstream).chain(&options.aliases)));
        let limiter = rate_limiter::RateLimiter::new(options.limit);
        let actions = CallAssessor::new(options.actions.clone());
        let token_state = TokenState::new(options.connections);
        let buffers = BufferBudget::new(body::BUFFER_BUDGET);
        let (upstream_health, server) = (server_probe::UpstreamHealth::default(), Mutex::default());
        Ok(Self(Arc::new(Inner {
            options,
            dependencies,
            forwarder,
            limiter,
            buffers,
            origin,
            link_prefixes,
            host,
            upstream_health,
            token_state,
            actions,
            server,
            warned_encoded: AtomicBool::new(false),
        })))
    }

    /// Builds the guard of a listener bound to `address` (`None` for a unix socket). Callers are authorised by the
    /// local token, and on a unix socket by its mode too.
    fn guard(&self, address: Option<SocketAddr>, listener_metrics: ListenerMetrics) -> guard::Guard {
        let admit = if address.is_some() { guard::AccessMode::AnyLocalUser } else { guard::AccessMode::SocketPeers };
        let options = guard::GuardOptions { allowed_hosts: self.0.options.allowed_hosts.clone(), admit };
        guard::Guard::new(options, address, Some(listener_metrics)).with_bodies(u64::MAX).without_request_header()
    }
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
