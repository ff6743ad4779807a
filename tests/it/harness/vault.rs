//! A small Vault that a test scripts, and an API proxy in front of it, on sockets of this process. The server
//! records its requests.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::scripted;
use super::scripted::{Answer, Scripted, count, down, whole};
use super::session::{Session, World};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use keyward_agent::api_proxy::{
    AllowedNamespaces, ApiProxy, ApiProxyDeps, ApiProxyOptions, CacheOptions, Exemption, Rule, Rules, TokenMode,
};
use keyward_agent::caller_tokens::CallerTokens;
use keyward_agent::callers::CallerGate;
use keyward_agent::secrets::DerivedTokenOptions;
use keyward_agent::server_client;
use keyward_agent::token::{ClientToken, Generation, Lease, Token, TokenKind, TokenPublisher, TokenWatch};
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_http::guard::{self, AccessMode};
use keyward_http::server::{
    Endpoint, IncomingBody, IncomingBodyError, Listener, ListenerLimits, ListenerMetrics, UnixSocket,
};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::metrics::Metrics;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The server: what a script answers, or of itself
///
/// | path | response |
/// |---|---|
/// | `/v1/down/N` | N MiB |
/// | `/v1/up` | how many bytes came |
/// | `/v1/never` | none |
/// | `/v1/half` | a piece of a body, and then nothing |
/// | `/v1/trailer` | a body with the trailer `x-sum` |
/// | any other | `{"data": {}}` |
#[derive(Clone, Default)]
pub(crate) struct Vault {
    scripted: Scripted,
    /// Calls that are under way.
    open: Arc<AtomicUsize>,
    /// Bytes of `/v1/down/N` that were sent.
    sent: Arc<AtomicUsize>,
    gate: Arc<Mutex<Option<Arc<Semaphore>>>>,
}

impl Deref for Vault {
    type Target = Scripted;

    fn deref(&self) -> &Scripted {
        &self.scripted
    }
}

impl Vault {
    /// Each response waits for a permit from here.
    pub(crate) fn holds(&self, gate: Arc<Semaphore>) {
        *self.gate.lock() = Some(gate);
    }

    /// How many calls are under way.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Number of bytes of `/v1/down/N` that the client has read.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    /// Serves on a free port of loopback.
    pub(crate) fn serve(&self, limits: ListenerLimits, servers: &mut JoinSet<()>) -> SocketAddr {
        let this = self.clone();
        let response = move |request| {
            let this = this.clone();
            async move { this.answer(request).await }
        };
        scripted::serve(scripted::FREE, response, limits, servers)
    }

    async fn answer(&self, request: Request<IncomingBody>) -> Answer {
        let _under_way = UnderWay::new(&self.open);
        let (parts, body) = request.into_parts();
        if parts.uri.path() == "/v1/up" {
            return whole(200, JSON, count(body).await.to_string());
        }
        let recorded = self.take(parts, body).await;
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        if let Some(response) = self.scripted(&recorded) {
            return response;
        }
        match recorded.target.as_str() {
            "/v1/never" => std::future::pending().await,
            "/v1/half" => {
                let in_flight = UnderWay::new(&self.open);
                let piece = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"half")))]);
                let rest = futures_util::stream::once(async move {
                    let _in_flight = in_flight;
                    std::future::pending::<Result<Frame<Bytes>, IncomingBodyError>>().await
                });
                Response::new(StreamBody::new(futures_util::StreamExt::chain(piece, rest)).boxed_unsync())
            }
            "/v1/trailer" => {
                let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "42".parse().unwrap())]);
                let body =
                    Full::from("body").map_err(|never| match never {}).with_trailers(async { Some(Ok(trailers)) });
                let mut response = Response::new(body.boxed_unsync());
                response.headers_mut().insert("trailer", "x-sum".parse().unwrap());
                response.headers_mut().insert("transfer-encoding", "chunked".parse().unwrap());
                response
            }
            target => match target.strip_prefix("/v1/down/") {
                Some(mib) => {
                    let (in_flight, sent) = (UnderWay::new(&self.open), Arc::clone(&self.sent));
                    down(mib.parse().unwrap(), move |bytes| {
                        let _in_flight = &in_flight;
                        sent.fetch_add(bytes, Ordering::SeqCst);
                    })
                }
                None => whole(200, JSON, r#"{"data":{}}"#),
            },
        }
    }
}

struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(open))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

const JSON: &str = "application/json";

/// A token with a TTL of an hour.
pub(crate) fn token(text: &str) -> Token {
    let now = Clock::System.now();
    Token {
        secret: ClientToken::parse(SecretString::from(text)).unwrap(),
        accessor: Some(format!("accessor-of-{text}")),
        lease: Lease { ttl: Duration::from_hours(1), renewable: true },
        kind: TokenKind::Service,
        policies: vec!["default".to_owned()],
        obtained: now,
        expires: Some(now + Duration::from_hours(1)),
        generation: Generation::new(),
    }
}

/// Options of a proxy that allows everything.
pub(crate) fn options() -> ApiProxyOptions {
    ApiProxyOptions {
        token_mode: TokenMode::WhenMissing,
        rules: Rules::default(),
        namespaces: AllowedNamespaces::default(),
        logins: true,
        request_header: true,
        connections: 64,
        response_timeout: Duration::from_secs(20),
        cache: None,
        callers: Vec::new(),
    }
}

/// The same with a response cache: maximum age of values, and while the server is unreachable.
pub(crate) fn cache(max_age: Duration, stale_if_error: Duration) -> CacheOptions {
    let limits = keyward_agent::api_proxy::CacheLimits { bytes: 1 << 20, max_age, stale_if_error };
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).unwrap()).collect();
    CacheOptions {
        limits,
        values: rules(&["secret/*", "kv/*"]),
        leases: rules(&["+/creds/*", "auth/+/login"]),
        persist: None,
    }
}

pub(crate) fn rules(allow: &[&str], deny: &[&str], lift: &[&str]) -> Rules {
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).unwrap()).collect();
    let exempt = lift.iter().map(|name| Exemption::parse(name).unwrap()).collect();
    Rules { allow: rules(allow), deny: rules(deny), exempt }
}

/// A proxy's listener on loopback and on a unix socket, and its upstream.
pub(crate) struct Proxied {
    pub(crate) vault: Vault,
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    pub(crate) socket: PathBuf,
    pub(crate) metrics: Metrics,
    pub(crate) client: reqwest::Client,
    /// Publishes the session's token, which is `tok1` at first.
    pub(crate) publisher: Option<TokenPublisher>,
    pub(crate) refresh_signal: RefreshSignal,
    pub(crate) stop: CancellationToken,
    _folder: tempfile::TempDir,
    pub(crate) servers: JoinSet<()>,
}

impl Proxied {
    pub(crate) fn start() -> Self {
        Self::with(|_, _| {})
    }

    /// The same with other options, and a server at another place.
    pub(crate) fn with(change: impl FnOnce(&mut ApiProxyOptions, &mut server_client::ServerClientOptions)) -> Self {
        Self::admitting(AccessMode::AnyLocalUser, change)
    }

    pub(crate) fn admitting(
        admit: AccessMode,
        change: impl FnOnce(&mut ApiProxyOptions, &mut server_client::ServerClientOptions),
    ) -> Self {
        Self::in_namespace(None, admit, change)
    }

    /// The same with a session that has logged in to a namespace.
    pub(crate) fn in_namespace(
        namespace: Option<&str>,
        admit: AccessMode,
        change: impl FnOnce(&mut ApiProxyOptions, &mut server_client::ServerClientOptions),
    ) -> Self {
        let (vault, mut servers) = (Vault::default(), JoinSet::new());
        let server = vault.serve(ListenerLimits::default(), &mut servers);
        let (publisher, tokens) = credential_channel("no login has succeeded yet");
        publisher.publish(Availability::Available(Arc::new(token("tok1"))), None);
        let refresh_signal = RefreshSignal::new(Clock::System);
        let mut options = options();
        let mut upstream = super::secrets::options(&format!("http://{server}"));
        change(&mut options, &mut upstream);
        let namespace = namespace.map(str::to_owned);
        let parts = ApiProxyDeps { namespace, ..parts(upstream, tokens, refresh_signal, Clock::System) };
        let mut this = Self::serve(admit, options, parts, servers);
        this.publisher = Some(publisher);
        this.vault = vault;
        this
    }

    /// Starts a proxy in front of an existing server, with the session of another world.
    pub(crate) fn for_world(world: &World, session: &Session) -> Self {
        Self::for_world_with(world, session, options())
    }

    pub(crate) fn for_world_with(world: &World, session: &Session, options: ApiProxyOptions) -> Self {
        Self::for_child_token(world, session, options, None)
    }

    /// The same where the token is a child of the session's, only for its listener.
    pub(crate) fn for_child_token(
        world: &World,
        session: &Session,
        options: ApiProxyOptions,
        child: Option<DerivedTokenOptions>,
    ) -> Self {
        let upstream = super::secrets::options(world.secrets.url());
        let parts = parts(upstream, session.watch.clone(), session.refresh_signal.clone(), world.clock.clone());
        Self::serve(AccessMode::AnyLocalUser, options, ApiProxyDeps { derived_token: child, ..parts }, JoinSet::new())
    }

    fn serve(admit: AccessMode, options: ApiProxyOptions, parts: ApiProxyDeps, mut servers: JoinSet<()>) -> Self {
        let (folder, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let (listener_metrics, refresh_signal) = (parts.listener_metrics.clone(), parts.refresh_signal.clone());
        let metrics = listener_metrics.metrics.clone();
        let proxy = ApiProxy::build(options, parts).unwrap();
        let listener = Listener::bind(&Endpoint::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.tcp_address().unwrap();
        let socket = folder.path().join("vault.sock");
        let place = UnixSocket { path: socket.clone(), mode: 0o600, owner: None, group: None };
        let unix = Listener::bind(&Endpoint::Unix(place)).unwrap();
        let limits = ListenerLimits { listener_metrics: Some(listener_metrics.clone()), ..ListenerLimits::default() };
        let admit = guard::GuardOptions { admit, ..guard::GuardOptions::default() };
        let service = proxy.service(admit, Some(address), listener_metrics.clone());
        let serving = listener.serve(service, limits.clone(), stop.clone());
        let service = proxy.service(guard::GuardOptions::default(), None, listener_metrics);
        let beside = unix.serve(service, limits, stop.clone());
        let until = stop.clone();
        servers.spawn(async move {
            proxy.restore_cache().await;
            let served = CancellationToken::new();
            let serving = async {
                tokio::join!(serving, beside);
                served.cancel();
            };
            tokio::join!(serving, proxy.run_cache(until, served.cancelled()));
        });
        let client = scripted::client();
        let (vault, url) = (Vault::default(), format!("http://{address}"));
        Self {
            vault,
            address,
            url,
            socket,
            metrics,
            client,
            publisher: None,
            refresh_signal,
            stop,
            _folder: folder,
            servers,
        }
    }

    pub(crate) fn publish(&self, text: &str) {
        self.publisher
            .as_ref()
            .unwrap()
            .publish(Availability::Available(Arc::new(token(text))), Some(Clock::System.now()));
    }

    /// There is no token, for a reason.
    pub(crate) fn withdraw(&self, reason: &str, retry_after: Duration) {
        let state = Availability::Unavailable { reason: reason.into(), retry_after };
        self.publisher.as_ref().unwrap().publish(state, Some(Clock::System.now()));
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}/v1/{path}", self.url)).header("x-vault-request", "true")
    }

    pub(crate) async fn ask(&self, method: &str, path: &str) -> FetchedResponse {
        fetch(self.request(method, path)).await
    }

    pub(crate) async fn get(&self, path: &str) -> FetchedResponse {
        self.ask("GET", path).await
    }
}

fn parts(
    upstream: server_client::ServerClientOptions,
    watch: TokenWatch,
    refresh_signal: RefreshSignal,
    clock: Clock,
) -> ApiProxyDeps {
    let listener_metrics = ListenerMetrics { metrics: Metrics::default(), listener: "vault".to_owned() };
    let bound_to = vec!["web".to_owned()];
    ApiProxyDeps {
        clock,
        watch,
        refresh_signal,
        upstream,
        namespace: None,
        listener_metrics,
        derived_token: None,
        callers: CallerGate::default(),
        caller_tokens: CallerTokens::default(),
        health: None,
        bound_to,
    }
}

/// A response with its body.
#[derive(Debug)]
pub(crate) struct FetchedResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl FetchedResponse {
    /// `X-Cache` of the response; empty without it.
    pub(crate) fn cache(&self) -> &str {
        self.headers.get("x-cache").map_or("", |value| value.to_str().unwrap())
    }

    /// The first error in the body.
    pub(crate) fn error(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"));
        body["errors"][0].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("in time");
}

/// Sends a request and reads the response.
pub(crate) async fn fetch(request: reqwest::RequestBuilder) -> FetchedResponse {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    FetchedResponse { status, headers, text: response.text().await.unwrap() }
}
