//! The service as its users have it: on a socket, over HTTP.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use keyward::access::api;
use keyward::access::model::authorize::DefaultPolicy;
use keyward::access::model::cloud::{Bounds, Trust};
use keyward::access::service::issuer_keys::{self as keys, Authorities, Source};
use keyward::access::service::login::{self, RoleOptions};
use keyward::access::store::StoreOptions;
use keyward::access::{Options, Service};
use keyward::clock::Clock;
use keyward::http::listen::{Endpoint, Limits, Listener};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::Answer;
use crate::harness::issuer::{AUDIENCE, Issuer, PRINCIPAL};

/// A running service. It stops when it is dropped.
pub(super) struct Server {
    pub(super) url: String,
    http: reqwest::Client,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

/// Options with one method, `cloud`, and roles for the cases.
pub(super) fn options(folder: &Path, issuer: &Issuer) -> Options {
    let list = |entry: &str| vec![entry.to_owned()];
    let subscription = Bounds { subscriptions: list("SUB-1"), ..Bounds::default() };
    let roles = [
        ("principal", Bounds { principals: list(PRINCIPAL), ..Bounds::default() }),
        ("machine", Bounds { virtual_machines: list("web-1"), ..subscription.clone() }),
        ("set", Bounds { scale_sets: list("pool"), ..subscription.clone() }),
        ("group", Bounds { resource_groups: list("group-2"), ..subscription }),
        ("elsewhere", Bounds { subscriptions: list("sub-2"), ..Bounds::default() }),
    ];
    let role = |bounds| RoleOptions {
        bounds,
        policies: vec!["web-read".to_owned(), "web-write".to_owned()],
        ttl: Duration::from_mins(10),
    };
    let method = login::Options {
        trust: Trust { issuer: issuer.url.clone(), audience: AUDIENCE.to_owned() },
        keys: keys::Options {
            source: Source::Discovery(format!("{}.well-known/openid-configuration", issuer.url).parse().unwrap()),
            authorities: Authorities::System,
        },
        roles: roles.into_iter().map(|(name, bounds)| (name.to_owned(), role(bounds))).collect(),
    };
    Options {
        store: StoreOptions::Embedded { data_dir: folder.join("access") },
        key_file: None,
        datacenter: "dc1".to_owned(),
        default_policy: DefaultPolicy::Deny,
        api: api::Options::default(),
        methods: BTreeMap::from([("cloud".to_owned(), method)]),
    }
}

impl Server {
    pub(super) async fn start(options: &Options, clock: Clock) -> Self {
        let service = Service::open(options, clock, keyward::metrics::Metrics::default()).await.unwrap();
        let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let url = format!("http://{}", listener.tcp_address().unwrap());
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        serving.spawn(listener.serve(service.answering(), Limits::default(), stop.clone()));
        let until = stop.clone();
        serving.spawn(async move { service.run(until).await.unwrap() });
        Self { url, http: reqwest::Client::builder().no_proxy().build().unwrap(), stop, serving }
    }

    /// Stops it as a service manager would, and waits until its store is free.
    pub(super) async fn stop(self) {
        drop(self.http);
        self.stop.cancel();
        self.serving.join_all().await;
    }

    pub(super) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.url)).body(body.to_vec());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Answer { status, text: answer.text().await.unwrap(), headers }
    }

    pub(super) async fn login(&self, role: &str, jwt: &str) -> Answer {
        self.login_stating(role, jwt, &json!({})).await
    }

    /// A login that says more of itself than its token.
    pub(super) async fn login_stating(&self, role: &str, jwt: &str, fields: &Value) -> Answer {
        let mut body = json!({"role": role, "jwt": jwt});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.send("POST", "/v1/auth/cloud/login", &[], body.to_string().as_bytes()).await
    }

    pub(super) async fn read_self(&self, secret: &str) -> Answer {
        self.send("GET", "/v1/acl/token/self", &[("X-Service-Token", secret)], b"").await
    }

    pub(super) async fn look_up(&self, secret: &str) -> Answer {
        self.send("GET", "/v1/auth/token/lookup-self", &[("X-Vault-Token", secret)], b"").await
    }
}
