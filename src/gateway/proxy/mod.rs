//! Forwards the calls of local clients to the platform with the current platform token, and answers what is the gateway's
//! own.
//!
//! | request | answer |
//! |---|---|
//! | `/api/v2/...`, `/api/registry/...`, `/api/meta/ip-ranges` | the platform's, its links moved to the gateway |
//! | `GET /api/state-versions/ID/hosted_state` and its like | the platform's: a redirect to the state, or the state |
//! | `GET /.well-known/terraform.json` | where the platform's services are: here |
//! | `GET /v1/platform/changes` | the dated history of the platform's API, with filters and pages |
//! | `GET /v1/platform/report` | which client makes which deprecated call, and what replaces it |
//! | `GET /v1/platform/tokens` | which tokens there are, by source and age, and who calls; never a token |
//! | `GET /v1/platform/status` | what the process is doing, as the local API's status tells it, without sessions |
//!
//! All but service discovery asks for the local token. An error is a JSON:API document with `errors`.

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

/// How the platform is reached and called.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayOptions {
    /// Where it is: scheme, host and port alone.
    pub upstream: Url,
    /// Other addresses of it that links in its answers may begin with: scheme, host and port alone.
    pub aliases: Vec<Url>,
    /// PEM file of the authorities to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// The proxy on the way there.
    pub proxy: ProxyMode,
    /// Connections to it at once.
    pub connections: usize,
    /// Time to get a connection, TLS included.
    pub connect_timeout: Duration,
    /// Time from sending a request to the head of its answer, and that its body may bring nothing.
    pub response_timeout: Duration,
    /// How long a call waits for another token where the platform refuses the one that there is.
    pub token_wait: Duration,
    /// How many requests a second it takes.
    pub limit: RateLimit,
    /// What is done with what the history of the platform's API says of calls.
    pub actions: actions::ActionOptions,
    /// Calls that make platform tokens and are allowed.
    pub exempt: BTreeSet<Exemption>,
    /// Names that `Host` may carry besides the listener's own address and `localhost`, without port.
    pub allowed_hosts: BTreeSet<String>,
}

/// What the gateway is joined to.
#[derive(Debug)]
pub struct GatewayDependencies {
    /// Tells when a local token has ended.
    pub clock: Clock,
    /// Where it is shown what the platform is.
    pub status_registry: StatusRegistry,
    /// Served by `/v1/platform/status`.
    pub health: Health,
    /// Where requests are counted.
    pub metrics: Metrics,
    /// Reports that the platform refuses the token.
    pub token_health: HealthHandle,
    /// The platform token.
    pub source: PlatformTokenSource,
    /// What callers may present.
    pub local: CredentialWatch<AcceptedTokens>,
    /// Who called: handed on from one gateway to the next that a reload makes.
    pub usage: Arc<UsageStats>,
}

/// A gateway to one platform. Clones share its connections, its limit and its counts.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: GatewayOptions,
    dependencies: GatewayDependencies,
    forwarder: Forwarder,
    limiter: rate_limiter::RateLimiter,
    /// For bodies that may have to be sent once more.
    buffers: BufferBudget,
    /// The platform's origin.
    origin: String,
    /// How links into its API begin.
    link_prefixes: Arc<LinkPrefixes>,
    /// The same as the `Host` of requests.
    host: HeaderValue,
    /// Whether the platform answers.
    upstream_health: server_probe::UpstreamHealth,
    /// State of the platform token: taken or refused.
    token_state: TokenState,
    actions: CallAssessor,
    /// What the platform has told of itself.
    server: Mutex<Arc<ServerInfo>>,
    /// True if an encoded answer was told of in the log.
    warned_encoded: AtomicBool,
}

impl Gateway {
    /// Reads the authorities' file. No connection is made yet.
    ///
    /// # Errors
    /// The file cannot be used, or the address has no host that TLS could be spoken with.
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

    /// What a listener bound to `address` (`None` for a unix socket) is guarded by. Who may call is for the local token
    /// to say, and on a unix socket for its mode too.
    fn guard(&self, address: Option<SocketAddr>, listener_metrics: ListenerMetrics) -> guard::Guard {
        let admit = if address.is_some() { guard::AccessMode::AnyLocalUser } else { guard::AccessMode::SocketPeers };
        let options = guard::GuardOptions { allowed_hosts: self.0.options.allowed_hosts.clone(), admit };
        guard::Guard::new(options, address, Some(listener_metrics)).with_bodies(u64::MAX).without_request_header()
    }
}

/// Less than the usual load balancer in front of a platform keeps a connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayBuildError {
    /// Its address has no host, its proxy is none, or the authorities cannot be had.
    #[error(transparent)]
    UpstreamTarget(#[from] UpstreamTargetError),
}
