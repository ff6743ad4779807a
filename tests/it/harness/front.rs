//! A small platform and a gateway in front of it, on sockets of this process. The platform knows a set of tokens, answers a few
//! paths in ways of their own and remembers what it was asked.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use keyward_credentials::credential_watch::CredentialWatch;
use keyward_gateway::local_token::{self, AcceptedTokens, LocalTokenManager};
use keyward_gateway::platform_token::PlatformTokenFile;
use keyward_gateway::proxy::{Gateway, GatewayDependencies, GatewayOptions, RateLimit};
use keyward_http::server::{Endpoint, IncomingBody, Listener, ListenerLimits, ListenerMetrics};
use keyward_machine::clock::Clock;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status_registry::StatusRegistry;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::scripted;
use super::scripted::{Answer, Scripted, count, down, whole};

/// The platform.
#[derive(Clone, Default)]
pub(crate) struct Platform {
    good: Arc<Mutex<BTreeSet<String>>>,
    scripted: Scripted,
}

impl Deref for Platform {
    type Target = Scripted;

    fn deref(&self) -> &Scripted {
        &self.scripted
    }
}

impl Platform {
    pub(crate) fn accept(&self, token: &str) {
        self.good.lock().insert(token.to_owned());
    }

    pub(crate) fn revoke(&self, token: &str) {
        self.good.lock().remove(token);
    }

    /// Serves on a free port of loopback.
    pub(crate) fn serve(&self, servers: &mut JoinSet<()>) -> SocketAddr {
        self.serve_with(ListenerLimits::default(), servers)
    }

    /// Serves on this port.
    pub(crate) fn serve_at(&self, address: SocketAddr, servers: &mut JoinSet<()>) {
        let this = self.clone();
        let response = move |request| {
            let this = this.clone();
            async move { this.answer(request).await }
        };
        scripted::serve(address, response, ListenerLimits::default(), servers);
    }

    /// The same over TLS, or with other limits.
    pub(crate) fn serve_with(&self, limits: ListenerLimits, servers: &mut JoinSet<()>) -> SocketAddr {
        let this = self.clone();
        let response = move |request| {
            let this = this.clone();
            async move { this.answer(request).await }
        };
        scripted::serve(scripted::FREE, response, limits, servers)
    }

    async fn answer(&self, request: Request<IncomingBody>) -> Answer {
        let (parts, body) = request.into_parts();
        let good = self.good.lock().contains(scripted::bearer(&parts.headers));
        if parts.uri.path() == "/api/v2/upload" && good {
            return whole(200, "text/plain", count(body).await.to_string());
        }
        let recorded = self.take(parts, body).await;
        if !good {
            return whole(401, "application/vnd.api+json", r#"{"errors":[{"status":"401","title":"unauthorized"}]}"#);
        }
        if let Some(response) = self.scripted(&recorded) {
            return response;
        }
        match recorded.target.split_once("/download/") {
            Some(("/api/v2", mib)) => down(mib.parse().unwrap(), |_| {}),
            _ => whole(200, "application/vnd.api+json", r#"{"data":[]}"#),
        }
    }
}

/// The platform with the gateway in front, and a token in a file.
pub(crate) struct Front {
    pub(crate) platform: Platform,
    /// Address of the platform.
    pub(crate) upstream: String,
    /// URL of the gateway.
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Metrics,
    pub(crate) client: reqwest::Client,
    pub(crate) token_file: PathBuf,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) status_registry: StatusRegistry,
    pub(crate) health: Health,
    local: CredentialWatch<AcceptedTokens>,
    gateway: Gateway,
    servers: JoinSet<()>,
}

impl Front {
    pub(crate) fn start() -> Self {
        Self::with(|_, _| {})
    }

    /// The same with other options, or another source of the platform token.
    pub(crate) fn with(change: impl FnOnce(&mut GatewayOptions, &mut GatewayDependencies)) -> Self {
        let (platform, mut servers) = (Platform::default(), JoinSet::new());
        platform.accept("tok1");
        let upstream = format!("http://{}", platform.serve(&mut servers));
        let folder = tempfile::tempdir().unwrap();
        let token_file = folder.path().join("platform.token");
        std::fs::write(&token_file, "tok1\n").unwrap();
        let file = folder.path().join("gateway.token");
        let owner = format!("{upstream} file {}", token_file.display());
        let options = local_token::LocalTokenOptions { file, max_age: None, grace: Duration::from_hours(1), owner };
        let (_, local) = LocalTokenManager::open(options, Clock::System).unwrap();
        let health = Health::default();
        let of_maker = health.register("gateway/token", true, "no token yet");
        let (token_file_source, source) = PlatformTokenFile::new(token_file.clone(), Clock::System, of_maker);
        let stop = CancellationToken::new();
        servers.spawn(token_file_source.run(stop.clone()));
        let metrics = Metrics::default();
        let mut options = GatewayOptions {
            upstream: upstream.parse().unwrap(),
            aliases: Vec::new(),
            ca_file: None,
            proxy: keyward_http::client::ProxyMode::Direct,
            connections: 256,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(20),
            token_wait: Duration::from_mins(1),
            limit: RateLimit::FromServer,
            exempt: BTreeSet::new(),
            actions: keyward_gateway::actions::ActionOptions::default(),
            allowed_hosts: BTreeSet::new(),
        };
        let status_registry = StatusRegistry::default();
        let of_gateway = health.register("gateway/platform", true, "not serving yet");
        let mut parts = GatewayDependencies {
            clock: Clock::System,
            status_registry: status_registry.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            token_health: of_gateway,
            source,
            local: local.clone(),
            usage: Arc::default(),
        };
        change(&mut options, &mut parts);
        let gateway = Gateway::build(options, parts).unwrap();
        let listener = Listener::bind(&Endpoint::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.tcp_address().unwrap();
        let listener_metrics = ListenerMetrics { metrics: metrics.clone(), listener: "gateway".to_owned() };
        let limits = ListenerLimits { listener_metrics: Some(listener_metrics.clone()), ..ListenerLimits::default() };
        servers.spawn(listener.serve(gateway.service(Some(address), listener_metrics), limits, stop));
        let client = scripted::client();
        let url = format!("http://{address}");
        Self {
            platform,
            upstream,
            url,
            address,
            metrics,
            client,
            token_file,
            folder,
            status_registry,
            health,
            local,
            gateway,
            servers,
        }
    }

    /// Starts the detection of the platform, as the gateway's task does.
    pub(crate) fn start_platform_detection(&mut self) {
        let gateway = self.gateway.clone();
        self.servers.spawn(async move { gateway.probe_platform(CancellationToken::new()).await });
    }

    /// The current local token.
    pub(crate) fn local(&self) -> String {
        match self.local.peek().availability {
            keyward_credentials::credential_watch::Availability::Available(accepted) => {
                accepted.current.expose_secret().to_owned()
            }
            keyward_credentials::credential_watch::Availability::Unavailable { reason, .. } => panic!("{reason}"),
        }
    }

    /// A request with the local token.
    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(self.local())
    }

    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        self.request("GET", path).send().await.unwrap()
    }

    /// Replaces the file of the platform token.
    pub(crate) fn put_token(&self, token: &str) {
        let next_file = self.folder.path().join("next");
        std::fs::write(&next_file, token).unwrap();
        std::fs::rename(&next_file, &self.token_file).unwrap();
    }
}
