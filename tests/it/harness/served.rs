//! ACL server on a socket of this process.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keyward_acl::store::Store;
use keyward_acl::{AclOpenError, AclOptions, AclServer, store};
use keyward_http::server::{Endpoint, Listener, ListenerLimits};
use keyward_machine::clock::Clock;
use keyward_telemetry::metrics::Metrics;
use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Running ACL server; stops on drop.
pub(crate) struct Served {
    pub(crate) url: String,
    pub(crate) metrics: Metrics,
    clock: Clock,
    pub(crate) http: reqwest::Client,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

/// Response to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) headers: reqwest::header::HeaderMap,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// Returns the only error of a Vault-style response.
    pub(crate) fn error(&self) -> String {
        let body = self.json();
        let errors = body["errors"].as_array().unwrap_or_else(|| panic!("{self:?}"));
        assert_eq!((body.as_object().unwrap().len(), errors.len()), (1, 1), "{self:?}");
        errors[0].as_str().unwrap().to_owned()
    }

    /// Returns the secret of a login's response.
    pub(crate) fn secret(&self) -> String {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["auth"]["client_token"].as_str().unwrap().to_owned()
    }
}

/// Opens a store that may still be in use for a moment: a process that another test just starts holds this one's files until
/// it runs its own program.
pub(crate) async fn free<T, E: std::fmt::Debug>(
    open: impl AsyncFn() -> Result<T, E>,
    in_use: impl Fn(&E) -> bool,
) -> T {
    for _ in 0..100 {
        match open().await {
            Err(error) if in_use(&error) => tokio::time::sleep(Duration::from_millis(20)).await,
            opened => return opened.unwrap(),
        }
    }
    open().await.unwrap()
}

impl Served {
    pub(crate) async fn start(options: &AclOptions, clock: Clock) -> Self {
        let metrics = Metrics::default();
        let opened = async || AclServer::open(options, clock.clone(), metrics.clone()).await;
        let service = free(opened, |error| matches!(error, AclOpenError::Store(store::OpenError::InUse { .. }))).await;
        Self::from_service(&service, metrics, clock).with_background(service)
    }

    /// Serves over an open store.
    pub(crate) async fn serve_store(store: Arc<dyn Store>, options: &AclOptions, clock: Clock) -> Self {
        let metrics = Metrics::default();
        let service = AclServer::with_store(store, options, clock.clone(), metrics.clone()).await.unwrap();
        Self::from_service(&service, metrics, clock).with_background(service)
    }

    /// Serves an open store, without the deletion of expired or marked records.
    pub(crate) async fn without_background(store: Arc<dyn Store>, options: &AclOptions, clock: Clock) -> Self {
        let metrics = Metrics::default();
        let service = AclServer::with_store(store, options, clock.clone(), metrics.clone()).await.unwrap();
        Self::from_service(&service, metrics, clock)
    }

    fn with_background(mut self, service: AclServer) -> Self {
        let until = self.stop.clone();
        self.serving.spawn(async move { service.run(until).await.unwrap() });
        self
    }

    fn from_service(service: &AclServer, metrics: Metrics, clock: Clock) -> Self {
        let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let url = format!("http://{}", listener.tcp_address().unwrap());
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let answering = service.handler(listener.tcp_address());
        // A busy machine may keep a client from its first byte for seconds.
        let limits = ListenerLimits { first_byte_timeout: Duration::from_mins(1), ..ListenerLimits::default() };
        serving.spawn(listener.serve(answering, limits, stop.clone()));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { url, metrics, clock, http, stop, serving }
    }

    /// Waits until a blocking query waits for a change.
    pub(crate) async fn until_a_query_waits(&self) {
        while self.metrics.text().contains("keyward_acl_blocking_queries 0") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Stops the server, and waits until its store is free.
    pub(crate) async fn stop(self) {
        drop(self.http);
        self.stop.cancel();
        self.serving.join_all().await;
    }

    /// Returns the server's wall-clock time.
    pub(crate) fn now(&self) -> SystemTime {
        self.clock.now().wall
    }

    /// Sends a request, with a token if given.
    pub(crate) async fn call(&self, method: &str, path: &str, token: Option<&str>, body: Option<Value>) -> Answer {
        let headers: Vec<(&str, &str)> = token.map(|token| ("X-Service-Token", token)).into_iter().collect();
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.send(method, path, &headers, body.as_bytes()).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url)).body(body.to_vec());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, text: response.text().await.unwrap(), headers }
    }
}
