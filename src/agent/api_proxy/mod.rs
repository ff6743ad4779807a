//! The secrets server's API on a socket of this machine: clients of the server work here unchanged, with the session's token
//! put on their requests.
//!
//! `brought`, `path` and `rules` decide and are pure; `session_token` holds the token; `call` makes one call of the server, and `heal` asks
//! after a token that the server has refused.

mod answer;
mod request_headers;
mod response_cache;
mod send;
mod cache_clear;
mod session_token;
mod listener_metrics;
mod token_recovery;
mod invalidation;
mod namespace;
mod needle;
mod redact_token;
mod path;
mod probe;
mod query;
mod request_body;
mod rules;
mod screen;
mod serve;
mod server_dialect;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

pub use answer::ProxyBody;
pub use namespace::{AllowedNamespaces, NamespacePattern};
pub use response_cache::CacheOptions;
pub use rules::{Exemption, Rule, Rules};

use crate::agent::secrets::cache::{self, Cache, LeaseRenewer};
use crate::agent::secrets::{DerivedTokenOptions, EncryptedFileError};
use crate::agent::server_client::{self, ServerClient};
use crate::agent::token::TokenWatch;
use crate::clock::Clock;
use crate::credential_watch::RefreshSignal;
use crate::http::body_buffer::BufferBudget;
use crate::http::client;
use crate::http::guard;
use crate::http::reverse_proxy::{self, Forwarder, UpstreamTarget, UpstreamTargetError};
use crate::http::server::ListenerMetrics;
use crate::metrics;
use probe::Probe;
use response_cache::CachePolicy;
use screen::LeakFilter;
use server_dialect::ServerDialect;
use session_token::SessionToken;
use token_recovery::SuspicionLimiter;

/// What one listener lets through, and with whose token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiProxyOptions {
    /// Which requests the session's token is put on.
    pub token_mode: TokenMode,
    /// What is let through.
    pub rules: Rules,
    /// Namespaces that callers may name.
    pub namespaces: AllowedNamespaces,
    /// Whether callers may log in through it, with a login of their own.
    pub logins: bool,
    /// Whether a caller must send `X-Vault-Request: true`.
    pub request_header: bool,
    /// Connections to the server at once.
    pub connections: usize,
    /// Time to the head of an answer of the server's, from the last piece of the request.
    pub response_timeout: Duration,
    /// Which answers are kept, if any are.
    pub cache: Option<CacheOptions>,
}

/// Which requests the session's token is put on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenMode {
    /// All; a token that a caller brings is taken off.
    Always,
    /// Those whose caller brings none.
    WhenMissing,
}

/// What it is joined to.
#[derive(Debug, Clone)]
pub struct ApiProxyDeps {
    /// Tells when the token has ended.
    pub clock: Clock,
    /// The session's token.
    pub watch: TokenWatch,
    /// Rung where the server refuses the token.
    pub refresh_signal: RefreshSignal,
    /// The server that the session logs in to.
    pub upstream: server_client::ServerClientOptions,
    /// The namespace that the session logs in to.
    pub namespace: Option<String>,
    /// Where a cache counts, and under which name.
    pub listener_metrics: ListenerMetrics,
    /// What the token is in place of the session's own: another at each start.
    pub derived_token: Option<DerivedTokenOptions>,
    /// The session, and how it logs in: what was kept over a restart is given again for the same alone.
    pub bound_to: Vec<String>,
}

/// The API of one session's server. Clones share its connections.
#[derive(Debug, Clone)]
pub struct ApiProxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: ApiProxyOptions,
    refresh_signal: RefreshSignal,
    session_token: SessionToken,
    forwarder: Forwarder,
    dialect: ServerDialect,
    /// For bodies that may have to be sent once more.
    buffers: BufferBudget,
    /// Whether the server did not answer when it was last called.
    failing: AtomicBool,
    /// True if it let the time of a call run out since it last answered one.
    unresponsive: AtomicBool,
    /// Queue of probes, which [`ApiProxy::tend`] runs.
    probes: mpsc::Sender<Probe>,
    /// Held by the one probe at a time.
    probe_permit: Arc<Semaphore>,
    suspicions: SuspicionLimiter,
    leak_filter: Arc<LeakFilter>,
    policy: Option<Arc<CachePolicy>>,
    /// What keeps the cache's leases alive; taken when it runs.
    cache_tasks: Mutex<Option<CacheTasks>>,
}

/// Background work of a cache.
#[derive(Debug)]
struct CacheTasks {
    cache_tasks: LeaseRenewer,
    probes: mpsc::Receiver<Probe>,
}

impl ApiProxy {
    /// Reads the certificates that the server's options name. No connection is made yet.
    ///
    /// # Errors
    /// A file cannot be used, or the server has no host that could be called.
    pub fn build(options: ApiProxyOptions, parts: ApiProxyDeps) -> Result<Self, BuildError> {
        let ApiProxyDeps {
            clock,
            watch,
            refresh_signal,
            upstream,
            namespace,
            listener_metrics,
            derived_token,
            bound_to,
        } = parts;
        let UpstreamTarget { target, tls, host, prefix } = UpstreamTarget::resolve(&upstream.client)?;
        let label = metrics::ListenerLabel { listener: listener_metrics.listener.clone() };
        let policy = options.cache.clone().map(|cached| {
            let bytes = listener_metrics.metrics.cache_bytes.get_or_create(&label).clone();
            Arc::new(CachePolicy { cache: Cache::new(cached.limits, clock.clone(), Some(bytes)), options: cached })
        });
        let cache_tasks = match &policy {
            None => None,
            Some(policy) => {
                let (tokens, session, namespace) = (watch.clone(), refresh_signal.clone(), namespace.clone());
                let upstream = ServerClient::build(&upstream)?;
                let rules = format!("{:?} {:?} {derived_token:?}", policy.options.values, policy.options.leases);
                let mut bound: Vec<&str> = bound_to.iter().map(String::as_str).collect();
                bound.extend([upstream.address(), &listener_metrics.listener, &rules]);
                let parts = cache::LeaseRenewerDeps {
                    tokens,
                    outlives_restarts: derived_token.is_none(),
                    session,
                    upstream: upstream.clone(),
                    namespace,
                };
                let cache_tasks = LeaseRenewer::new(&policy.cache, parts);
                Some(match &policy.options.persist {
                    Some(persist) => cache_tasks.persisting(persist, &bound)?,
                    None => cache_tasks,
                })
            }
        };
        let forwarder = Forwarder::new(reverse_proxy::ForwarderOptions {
            target,
            tls,
            connections: options.connections,
            idle: IDLE_TIMEOUT,
            connect_timeout: upstream.client.connect_timeout,
            body_idle: None,
        });
        let leaks = listener_metrics.metrics.proxy_leaks.get_or_create(&label).clone();
        let leak_filter = Arc::new(LeakFilter::new(upstream.name.clone(), leaks));
        let dialect = ServerDialect::new(upstream.kind, upstream.name, host, prefix, namespace.as_deref());
        let session_token = SessionToken::new(watch, clock.clone());
        let buffers = BufferBudget::new(REPLAY_BUDGET);
        let (failing, suspicions) = (AtomicBool::new(false), SuspicionLimiter::new(clock));
        let (probes, waiting) = mpsc::channel(1);
        let cache_tasks = Mutex::new(cache_tasks.map(|cache_tasks| CacheTasks { cache_tasks, probes: waiting }));
        Ok(Self(Arc::new(Inner {
            options,
            refresh_signal,
            session_token,
            forwarder,
            dialect,
            buffers,
            failing,
            unresponsive: AtomicBool::new(false),
            probes,
            probe_permit: Arc::new(Semaphore::new(1)),
            suspicions,
            leak_filter,
            policy,
            cache_tasks,
        })))
    }

    /// Takes up what the cache of the last process has left; to be called before anything is served.
    pub async fn resume(&self) {
        let Some(mut tending) = self.cache_tasks().take() else { return };
        tending.cache_tasks.resume().await;
        *self.cache_tasks() = Some(tending);
    }

    fn cache_tasks(&self) -> MutexGuard<'_, Option<CacheTasks>> {
        self.0.cache_tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what the cache holds alive, and runs its probes, until `stop`. Does nothing the second time, or without a cache.
    pub async fn tend(&self, stop: CancellationToken) {
        let tending = self.cache_tasks().take();
        if let Some(CacheTasks { cache_tasks, probes }) = tending {
            tokio::join!(cache_tasks.run(stop.clone()), probe::run(probes, stop));
        }
    }

    /// What a listener bound to `address` (`None` for a unix socket) is guarded by.
    fn guard(
        &self,
        admit: guard::GuardOptions,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
    ) -> guard::Guard {
        let guard = guard::Guard::new(admit, address, Some(listener_metrics)).with_bodies(u64::MAX);
        if self.0.options.request_header { guard } else { guard.without_request_header() }
    }
}

/// Why a server's API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Nothing can be forwarded to the server.
    #[error(transparent)]
    UpstreamTarget(#[from] UpstreamTargetError),
    /// No client of it can be made, which the cache needs.
    #[error(transparent)]
    Client(#[from] client::BuildError),
    /// Nothing can be kept over a restart.
    #[error(transparent)]
    Archive(#[from] EncryptedFileError),
}

/// Less than the usual load balancer in front of a server keeps a connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Memory for callers' bodies that are held, for all of them together, in bytes.
const REPLAY_BUDGET: usize = 16 * 1024 * 1024;
