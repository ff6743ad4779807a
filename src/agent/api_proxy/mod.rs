//! The secrets server's API on a socket of this machine: clients of the server work here unchanged, with the session's token
//! put on their requests.
//!
//! `brought`, `path` and `rules` decide and are pure; `credential` holds the token; `call` makes one call of the server, and `heal` asks
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

pub use answer::Answered;
pub use namespace::{AllowedNamespaces, NamespacePattern};
pub use response_cache::CacheOptions;
pub use rules::{Lift, Rule, Rules};

use crate::agent::secrets::cache::{self, Cache, Tender};
use crate::agent::secrets::{ArchiveError, ChildOptions};
use crate::agent::server_client::{self, Upstream};
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
use response_cache::Keeping;
use screen::Screen;
use server_dialect::Wire;
use session_token::Credential;
use token_recovery::Doubt;

/// What one listener lets through, and with whose token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which requests the session's token is put on.
    pub put: Put,
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
    pub answer_timeout: Duration,
    /// Which answers are kept, if any are.
    pub cache: Option<CacheOptions>,
}

/// Which requests the session's token is put on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// All; a token that a caller brings is taken off.
    Always,
    /// Those whose caller brings none.
    WhenMissing,
}

/// What it is joined to.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Tells when the token has ended.
    pub clock: Clock,
    /// The session's token.
    pub watch: TokenWatch,
    /// Rung where the server refuses the token.
    pub refresh_signal: RefreshSignal,
    /// The server that the session logs in to.
    pub upstream: server_client::Options,
    /// The namespace that the session logs in to.
    pub namespace: Option<String>,
    /// Where a cache counts, and under which name.
    pub listener_metrics: ListenerMetrics,
    /// What the token is in place of the session's own: another at each start.
    pub child: Option<ChildOptions>,
    /// The session, and how it logs in: what was kept over a restart is given again for the same alone.
    pub bound_to: Vec<String>,
}

/// The API of one session's server. Clones share its connections.
#[derive(Debug, Clone)]
pub struct ApiProxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    refresh_signal: RefreshSignal,
    credential: Credential,
    forwarder: Forwarder,
    wire: Wire,
    /// For bodies that may have to be sent once more.
    buffers: BufferBudget,
    /// Whether the server did not answer when it was last called.
    failing: AtomicBool,
    /// True if it let the time of a call run out since it last answered one.
    unresponsive: AtomicBool,
    /// Queue of probes, which [`ApiProxy::tend`] runs.
    probes: mpsc::Sender<Probe>,
    /// Held by the one probe at a time.
    probing: Arc<Semaphore>,
    doubt: Doubt,
    screen: Arc<Screen>,
    keeping: Option<Arc<Keeping>>,
    /// What keeps the cache's leases alive; taken when it runs.
    tender: Mutex<Option<Tending>>,
}

/// Background work of a cache.
#[derive(Debug)]
struct Tending {
    tender: Tender,
    probes: mpsc::Receiver<Probe>,
}

impl ApiProxy {
    /// Reads the certificates that the server's options name. No connection is made yet.
    ///
    /// # Errors
    /// A file cannot be used, or the server has no host that could be called.
    pub fn build(options: Options, parts: Parts) -> Result<Self, BuildError> {
        let Parts { clock, watch, refresh_signal, upstream, namespace, listener_metrics, child, bound_to } = parts;
        let UpstreamTarget { target, tls, host, prefix } = UpstreamTarget::resolve(&upstream.client)?;
        let label = metrics::ListenerLabel { listener: listener_metrics.listener.clone() };
        let keeping = options.cache.clone().map(|cached| {
            let bytes = listener_metrics.metrics.cache_bytes.get_or_create(&label).clone();
            Arc::new(Keeping { cache: Cache::new(cached.kept, clock.clone(), Some(bytes)), options: cached })
        });
        let tender = match &keeping {
            None => None,
            Some(keeping) => {
                let (tokens, session, namespace) = (watch.clone(), refresh_signal.clone(), namespace.clone());
                let upstream = Upstream::build(&upstream)?;
                let rules = format!("{:?} {:?} {child:?}", keeping.options.values, keeping.options.leases);
                let mut bound: Vec<&str> = bound_to.iter().map(String::as_str).collect();
                bound.extend([upstream.address(), &listener_metrics.listener, &rules]);
                let parts = cache::Parts {
                    tokens,
                    outlives_restarts: child.is_none(),
                    session,
                    upstream: upstream.clone(),
                    namespace,
                };
                let tender = Tender::new(&keeping.cache, parts);
                Some(match &keeping.options.persist {
                    Some(persist) => tender.persisting(persist, &bound)?,
                    None => tender,
                })
            }
        };
        let forwarder = Forwarder::new(reverse_proxy::ForwarderOptions {
            target,
            tls,
            connections: options.connections,
            idle: KEPT,
            connect_timeout: upstream.client.connect_timeout,
            body_idle: None,
        });
        let leaks = listener_metrics.metrics.proxy_leaks.get_or_create(&label).clone();
        let screen = Arc::new(Screen::new(upstream.name.clone(), leaks));
        let wire = Wire::new(upstream.kind, upstream.name, host, prefix, namespace.as_deref());
        let credential = Credential::new(watch, clock.clone());
        let buffers = BufferBudget::new(ALL_COPIES);
        let (failing, doubt) = (AtomicBool::new(false), Doubt::new(clock));
        let (probes, waiting) = mpsc::channel(1);
        let tender = Mutex::new(tender.map(|tender| Tending { tender, probes: waiting }));
        Ok(Self(Arc::new(Inner {
            options,
            refresh_signal,
            credential,
            forwarder,
            wire,
            buffers,
            failing,
            unresponsive: AtomicBool::new(false),
            probes,
            probing: Arc::new(Semaphore::new(1)),
            doubt,
            screen,
            keeping,
            tender,
        })))
    }

    /// Takes up what the cache of the last process has left; to be called before anything is served.
    pub async fn resume(&self) {
        let Some(mut tending) = self.tender().take() else { return };
        tending.tender.resume().await;
        *self.tender() = Some(tending);
    }

    fn tender(&self) -> MutexGuard<'_, Option<Tending>> {
        self.0.tender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what the cache holds alive, and runs its probes, until `stop`. Does nothing the second time, or without a cache.
    pub async fn tend(&self, stop: CancellationToken) {
        let tending = self.tender().take();
        if let Some(Tending { tender, probes }) = tending {
            tokio::join!(tender.run(stop.clone()), probe::run(probes, stop));
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
    Archive(#[from] ArchiveError),
}

/// Less than the usual load balancer in front of a server keeps a connection.
const KEPT: Duration = Duration::from_secs(30);

/// Memory for callers' bodies that are held, for all of them together, in bytes.
const ALL_COPIES: usize = 16 * 1024 * 1024;
