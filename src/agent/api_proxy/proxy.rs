//! An API proxy: its parts, built from options, and its background work.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use keyward_credentials::credential_watch::RefreshSignal;
use keyward_http::audited::AuditedService;
use keyward_http::client;
use keyward_http::guard;
use keyward_http::reverse_proxy::{self, Forwarder, UpstreamRecorder, UpstreamTarget, UpstreamTargetError};
use keyward_http::server::{IncomingBody, ListenerLabel, ListenerMetrics, Peer, ResponseFuture};
use keyward_machine::clock::Clock;
use keyward_telemetry::audit::Auditor;
use keyward_telemetry::health::HealthHandle;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::cache::{Cache, LeaseRenewer, LeaseRenewerDeps};
use super::leak_filter::LeakFilter;
use super::metrics::{CacheMetrics, ProxyMetrics};
use super::options::{ApiProxyOptions, CacheOptions};
use super::response::{ProxyBody, error_response};
use super::response_cache::{Probe, ResponseCache, run_probes};
use super::router::{CallerTokenResolver, ProxyRouter};
use super::send::RequestSender;
use super::server_dialect::ServerDialect;
use super::token_recovery::TokenRecovery;
use crate::caller_tokens::{CallerTokens, TokenMap};
use crate::callers::CallerGate;
use crate::encrypted_file::KeyDerivationError;
use crate::secrets::DerivedTokenOptions;
use crate::server_client::{self, PathClass, ServerClient};
use crate::token::{SessionHandle, TokenWatch};

/// Collaborators of one API proxy.
#[derive(Debug, Clone)]
pub struct ApiProxyDeps {
    /// Compares the current time with the end of tokens.
    pub clock: Clock,
    /// The session's token.
    pub watch: TokenWatch,
    /// Requests a check by the session after the server refused the token.
    pub refresh_signal: RefreshSignal,
    /// The server that the session logs in to.
    pub upstream: server_client::ServerClientOptions,
    /// The namespace that the session logs in to; `None` for the root.
    pub namespace: Option<String>,
    /// Metrics, and the listener's name in them.
    pub listener_metrics: ListenerMetrics,
    /// Options of the token that stands in for the session's; another one is created at each start.
    pub derived_token: Option<DerivedTokenOptions>,
    /// Rights of callers; the default lets every admitted request pass.
    pub callers: CallerGate,
    /// Tokens that callers get instead of the session's; the default has none.
    pub caller_tokens: CallerTokens,
    /// Component of the listener, which warns while the server does not respond.
    pub health: Option<Arc<HealthHandle>>,
    /// Names of the session and of its login. Entries of the previous process are restored only for the same names.
    pub bound_to: Vec<String>,
}

/// The API of one session's server. Clones share its connections.
#[derive(Debug, Clone)]
pub struct ApiProxy {
    router: Arc<ProxyRouter>,
    /// Taken when the background work starts.
    cache_tasks: Arc<Mutex<Option<CacheTasks>>>,
}

/// The cache of a proxy.
#[derive(Debug, Clone)]
pub struct ProxyCache(Cache);

impl ProxyCache {
    /// Repeats what its proxy's requests in flight invalidate in the cache of the proxy that takes over.
    pub fn set_successor(&self, successor: &Self) {
        self.0.set_successor(&successor.0);
    }
}

/// Background work of a cache.
#[derive(Debug)]
struct CacheTasks {
    renewer: LeaseRenewer,
    probes: mpsc::Receiver<Probe>,
}

impl ApiProxy {
    /// Builds a proxy and reads the certificate files that the server's options name. Connects to nothing.
    pub fn build(mut options: ApiProxyOptions, deps: ApiProxyDeps) -> Result<Self, BuildError> {
        if deps.upstream.kind.is_consul_compatible() {
            options.fold_namespaces();
        }
        let UpstreamTarget { target, tls, host, prefix } = UpstreamTarget::resolve(&deps.upstream.client)?;
        let label = ListenerLabel { listener: deps.listener_metrics.listener.clone() };
        let built_cache = match &options.cache {
            None => None,
            Some(cache_options) => {
                let bytes = deps.listener_metrics.metrics.get::<CacheMetrics>().bytes.get_or_create(&label).clone();
                let cache = Cache::new(cache_options.limits, deps.clock.clone(), Some(bytes));
                let renewer = build_renewer(&cache, cache_options, &deps)?;
                Some((cache, cache_options.clone(), renewer))
            }
        };
        let session = deps.bound_to.first().map_or_else(Arc::default, |name| Arc::from(name.as_str()));
        let ApiProxyDeps {
            clock,
            watch,
            refresh_signal,
            upstream,
            namespace,
            listener_metrics,
            health,
            callers,
            caller_tokens,
            ..
        } = deps;
        let router_clock = clock.clone();
        let recorder = UpstreamRecorder::new(&listener_metrics.metrics, &upstream.name, &PathClass::NAMES);
        let forwarder = Forwarder::new(reverse_proxy::ForwarderOptions {
            target,
            tls,
            connections: options.connections,
            idle: IDLE_TIMEOUT,
            connect_timeout: upstream.client.connect_timeout,
            body_idle: None,
            recorder: Some(recorder.clone()),
        });
        let leaks = listener_metrics.metrics.get::<ProxyMetrics>().leaks.get_or_create(&label).clone();
        let leak_filter = LeakFilter::new(upstream.name.clone(), leaks);
        let dialect = ServerDialect::new(upstream.kind, upstream.name, host, prefix, namespace.as_deref());
        let tokens = Arc::new(TokenRecovery::from_handle(SessionHandle { watch, refresh_signal }, clock.clone()));
        let timeout = options.response_timeout;
        let sender =
            Arc::new(RequestSender::new(dialect, tokens, forwarder, recorder, leak_filter, timeout, clock, health));
        let (probes, queue) = mpsc::channel(1);
        let (cache, cache_tasks) = match built_cache {
            None => (None, None),
            Some((cache, cache_options, renewer)) => {
                let sender = Arc::clone(&sender);
                let probe_permit = Arc::new(Semaphore::new(1));
                let cache = ResponseCache { cache, options: cache_options, sender, probes, probe_permit };
                (Some(Arc::new(cache)), Some(CacheTasks { renewer, probes: queue }))
            }
        };
        let caller_tokens =
            CallerTokenResolver { tokens: caller_tokens, recoveries: TokenMap::default(), clock: router_clock };
        let router = Arc::new(ProxyRouter { options, sender, cache, callers, caller_tokens, session });
        Ok(Self { router, cache_tasks: Arc::new(Mutex::new(cache_tasks)) })
    }

    /// Builds the service of one listener, bound to `address` (`None` for a unix socket), for
    /// [`keyward_http::server::Listener::serve`].
    pub fn service(
        &self,
        access: guard::GuardOptions,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
    ) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<ProxyBody> + Clone + Send + Sync + 'static {
        Arc::clone(&self.router).service(access, address, listener_metrics)
    }

    /// Builds the service of one listener like [`ApiProxy::service`], with an audit of its requests.
    pub fn audited_service(
        &self,
        access: guard::GuardOptions,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
        auditor: Auditor,
    ) -> impl Fn(Peer, Request<IncomingBody>) -> ResponseFuture<ProxyBody> + Clone + Send + Sync + 'static {
        let audited = AuditedService {
            auditor,
            part: "agent",
            listener: listener_metrics.listener.as_str().into(),
            route: |_| Some("proxy"),
            decides_by_status: false,
            unavailable: |message| error_response(StatusCode::SERVICE_UNAVAILABLE, message),
        };
        audited.wrap(self.service(access, address, listener_metrics))
    }

    /// Restores the cache of the previous process. Call it before the first request is served.
    pub async fn restore_cache(&self) {
        let Some(mut tasks) = self.cache_tasks.lock().take() else { return };
        tasks.renewer.restore().await;
        *self.cache_tasks.lock() = Some(tasks);
    }

    /// Returns the cache; `None` without one.
    pub fn cache(&self) -> Option<ProxyCache> {
        self.router.cache.as_ref().map(|cache| ProxyCache(cache.cache.clone()))
    }

    /// Renews the cache's leases and runs its probes until `stop` is cancelled, and saves the cache. Saves it again when `served`
    /// is ready: after the last request. Returns at once the second time, or without a cache.
    pub async fn run_cache(&self, stop: CancellationToken, served: impl Future<Output = ()>) {
        let tasks = self.cache_tasks.lock().take();
        if let Some(CacheTasks { renewer, probes }) = tasks {
            tokio::join!(renewer.run(stop.clone(), served), run_probes(probes, stop));
        }
    }
}

fn build_renewer(cache: &Cache, options: &CacheOptions, deps: &ApiProxyDeps) -> Result<LeaseRenewer, BuildError> {
    let upstream = ServerClient::build(&deps.upstream)?.with_metrics(&deps.listener_metrics.metrics);
    let rules = rules_binding(options, deps.derived_token.as_ref());
    let mut bound_to: Vec<&str> = deps.bound_to.iter().map(String::as_str).collect();
    bound_to.extend([upstream.address(), &deps.listener_metrics.listener, &rules]);
    let renewer_deps = LeaseRenewerDeps {
        tokens: deps.watch.clone(),
        outlives_restarts: deps.derived_token.is_none(),
        session: deps.refresh_signal.clone(),
        upstream: upstream.clone(),
        namespace: deps.namespace.clone(),
    };
    let renewer = LeaseRenewer::new(cache, renewer_deps);
    Ok(match &options.persist {
        Some(persist) => renewer.with_file(persist, &bound_to)?,
        None => renewer,
    })
}

/// Returns the string that binds saved entries to the rules that they were saved under, and to the request for the derived
/// token. It is part of the file's key: with another form, later versions discard the file.
fn rules_binding(options: &CacheOptions, derived_token: Option<&DerivedTokenOptions>) -> String {
    let derived_token = derived_token.map(|token| json!({"path": token.path(), "body": token.to_body()}));
    json!({"values": options.values, "leases": options.leases, "derived_token": derived_token}).to_string()
}

/// Error of [`ApiProxy::build`].
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The forwarder has no target, or its TLS options are unusable.
    #[error(transparent)]
    UpstreamTarget(#[from] UpstreamTargetError),
    /// The client that renews the cache's leases cannot be built.
    #[error(transparent)]
    Client(#[from] client::BuildError),
    /// The file that keeps the cache over a restart has no usable key.
    #[error(transparent)]
    File(#[from] KeyDerivationError),
}

/// Time that an idle connection to the server is kept: less than the usual load balancer's.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_proxy::cache::CacheLimits;
    use crate::api_proxy::rules::Rule;

    #[test]
    fn the_binding_of_saved_entries_has_a_fixed_form() {
        let rules = |text: &str| vec![Rule::parse(text).unwrap()];
        let limits = CacheLimits { bytes: 1, max_age: Duration::ZERO, stale_if_error: Duration::ZERO };
        let values = rules("GET secret/+/a");
        let leases = rules("aws/creds/*");
        let options = CacheOptions { limits, values, leases, persist: None };
        let bound = r#""leases":[{"methods":255,"segments":[{"named":"aws"},{"named":"creds"},{"rest":""}]}],"values":[{"methods":1,"segments":[{"named":"secret"},"any",{"named":"a"}]}]}"#;
        assert_eq!(rules_binding(&options, None), format!(r#"{{"derived_token":null,{bound}"#));
        let policies = vec!["web".to_owned()];
        let ttl = Duration::from_hours(1);
        let child = DerivedTokenOptions { policies, ttl, ..DerivedTokenOptions::default() };
        let derived = r#"{"body":{"num_uses":0,"policies":["web"],"ttl":"3600s"},"path":"auth/token/create"}"#;
        assert_eq!(rules_binding(&options, Some(&child)), format!(r#"{{"derived_token":{derived},{bound}"#));
    }
}
