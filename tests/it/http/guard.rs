//! Requests of a web page, a forwarding proxy or another user's program to the local API, over a raw socket and with the
//! right key: none gets a token.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keyward_agent::caller_tokens::CallerTokens;
use keyward_agent::callers::CallerGate;
use keyward_agent::local_api::{self, ListenerKind, LocalApiDeps, LocalApiOptions};
use keyward_agent::rotation::RotationRegistry;
use keyward_agent::secrets::SecretRegistries;
use keyward_agent::session_status::SessionStatusRegistry;
use keyward_agent::token::{ClientToken, Generation, Lease, SessionHandle, Token, TokenKind};
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_http::guard::{self, AccessMode};
use keyward_http::server::{Endpoint, Listener, ListenerLimits, ListenerMetrics};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status_registry::StatusRegistry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::log;
use crate::harness::raw::{Answer, Raw};

const CANARY: &str = "hvs.canary-behind-the-guard";
const KEY: &str = "key-0123456789abcdef0123456789abcdef";

/// A local API on loopback TCP that takes a key, with a token to serve.
struct Scene {
    address: SocketAddr,
    metrics: Metrics,
    _servers: JoinSet<()>,
}

impl Scene {
    fn new(admit: AccessMode) -> Self {
        let listener = Listener::bind(&Endpoint::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.tcp_address().unwrap();
        let (publisher, watch) = credential_channel("not logged in yet");
        let now = Clock::System.now();
        let token = Token {
            secret: ClientToken::parse(SecretString::from(CANARY)).unwrap(),
            accessor: None,
            lease: Lease { ttl: Duration::from_hours(1), renewable: true },
            kind: TokenKind::Service,
            policies: Vec::new(),
            obtained: now,
            expires: Some(now + Duration::from_hours(1)),
            generation: Generation::new(),
        };
        publisher.publish(Availability::Available(Arc::new(token)), Some(now));
        let source = SessionHandle { watch, refresh_signal: RefreshSignal::new(Clock::System) };
        let options = LocalApiOptions {
            name: "local".to_owned(),
            kind: ListenerKind::LocalApi,
            sessions: BTreeMap::from([("web".to_owned(), source)]),
        };
        let (metrics, stop) = (Metrics::default(), CancellationToken::new());
        let parts = LocalApiDeps {
            clock: Clock::System,
            metrics: metrics.clone(),
            health: Health::default(),
            status_registry: StatusRegistry::default(),
            session_statuses: SessionStatusRegistry::default(),
            secrets: SecretRegistries::default(),
            rotations: RotationRegistry::default(),
            callers: CallerGate::default(),
            caller_tokens: CallerTokens::default(),
            guard: guard::GuardOptions { admit, ..guard::GuardOptions::default() },
            address: Some(address),
            stop: stop.clone(),
        };
        let listener_metrics = Some(ListenerMetrics { metrics: metrics.clone(), listener: "local".to_owned() });
        let mut servers = JoinSet::new();
        let limits = ListenerLimits { listener_metrics, ..ListenerLimits::default() };
        servers.spawn(listener.serve(local_api::service(options, parts), limits, stop));
        Self { address, metrics, _servers: servers }
    }

    fn with_key() -> Self {
        Self::new(AccessMode::Key(SecretString::from(KEY)))
    }

    /// Sends a head (lines without their ends) on a separate connection.
    async fn ask(&self, lines: &[&str]) -> Answer {
        let head = lines.join("\r\n").replace("PORT", &self.address.port().to_string());
        Raw::tcp(self.address).await.ask(format!("{head}\r\n\r\n")).await
    }

    async fn refused(&self, lines: &[&str], status: u16, message: &str) {
        let response = self.ask(lines).await;
        assert_eq!(response.status, status, "{lines:?}: {response:?}");
        assert!(response.error().contains(message), "{lines:?}: {response:?}");
        assert!(!response.body.contains(CANARY) && !response.head.contains(CANARY));
        for header in ["access-control-allow-origin", "access-control-allow-headers", "set-cookie", "location"] {
            assert_eq!(response.header(header), None, "{lines:?}");
        }
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
}

const GET: &str = "GET /agent/v1/token HTTP/1.1";
const HOST: &str = "Host: 127.0.0.1:PORT";
const ASKED: &str = "X-Vault-Request: true";
const WITH_KEY: &str = "X-Vault-Token: key-0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn a_valid_request_is_served() {
    let scene = Scene::with_key();
    let (bearer, own_header) = (format!("Authorization: Bearer {KEY}"), format!("X-Keyward-Key: {KEY}"));
    for lines in [
        &[GET, HOST, ASKED, WITH_KEY][..],
        &[GET, HOST, ASKED, &bearer],
        &[GET, HOST, ASKED, &own_header],
        &[
            GET,
            HOST,
            ASKED,
            &own_header,
            "X-Vault-Token: other",
            "Authorization: Basic bTpz",
            "Connection: keep-alive, x-a",
        ],
        &[GET, "Host: localhost", ASKED, WITH_KEY],
        &[GET, "Host: [::1]:PORT", ASKED, WITH_KEY],
        &["GET http://127.0.0.1:PORT/agent/v1/token HTTP/1.1", HOST, ASKED, WITH_KEY],
        &[GET, HOST, ASKED, WITH_KEY, "User-Agent: curl/8.0", "Accept: */*", "X-Vault-Namespace: a"],
    ] {
        let response = scene.ask(lines).await;
        assert_eq!((response.status, response.json()["token"].as_str()), (200, Some(CANARY)), "{lines:?}");
    }
}

#[tokio::test]
async fn t02_dns_rebinding_and_web_pages_are_rejected() {
    let scene = Scene::with_key();
    for host in [
        "evil.example",
        "evil.example:PORT",
        "127.0.0.1.evil.example",
        "0.0.0.0:PORT",
        "localhost.:PORT",
        "user@127.0.0.1:PORT",
        "127.0.0.1:1",
        "127.1",
        "[::]",
    ] {
        scene.refused(&[GET, &format!("Host: {host}"), ASKED, WITH_KEY], 421, "the Host header must be one of").await;
    }
    scene.refused(&[GET, ASKED, WITH_KEY], 400, "the Host header is missing or unreadable").await;
    scene.refused(&[GET, HOST, HOST, ASKED, WITH_KEY], 400, "more than one Host").await;
    scene.refused(&[GET, HOST, "Host: evil.example", ASKED, WITH_KEY], 400, "more than one Host").await;
    let absolute = "GET http://evil.example/agent/v1/token HTTP/1.1";
    scene.refused(&[absolute, HOST, ASKED, WITH_KEY], 421, "another host than the Host header").await;
    for header in [
        "Origin: null",
        "Origin: http://127.0.0.1:PORT",
        "Origin:",
        "Referer: http://localhost/",
        "Cookie: a=b",
        "Sec-Fetch-Site: same-origin",
        "Sec-Fetch-Mode: no-cors",
    ] {
        scene.refused(&[GET, HOST, ASKED, WITH_KEY, header], 403, "requests from web pages are not allowed").await;
    }
    let preflight = ["OPTIONS /agent/v1/token HTTP/1.1", HOST, "Access-Control-Request-Method: GET"];
    scene.refused(&preflight, 403, "requests from web pages are not allowed").await;
    scene.refused(&["OPTIONS * HTTP/1.1", HOST], 412, "X-Vault-Request: true is missing").await;
}

#[tokio::test]
async fn t08_requests_forwarded_by_a_proxy_are_rejected() {
    let scene = Scene::with_key();
    for name in [
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Real-IP",
        "X-Client-IP",
        "CF-Connecting-IP",
        "True-Client-IP",
        "X-Envoy-External-Address",
        "Proxy-Connection",
        "x-forwarded-FOR",
    ] {
        for value in ["192.0.2.1", ""] {
            let header = format!("{name}: {value}");
            scene.refused(&[GET, HOST, ASKED, WITH_KEY, &header], 400, "forwarded by a proxy").await;
        }
    }
}

#[tokio::test]
async fn t01_no_path_is_open_without_the_header_and_the_key() {
    let scene = Scene::with_key();
    let wrong = "X-Vault-Token: key-0123456789abcdef0123456789abcdeF";
    for line in [
        "GET /agent/v1/token",
        "GET /agent/v1/status",
        "POST /agent/v1/check",
        "GET /livez",
        "GET /readyz",
        "GET /startupz",
        "GET /metrics",
        "GET /",
        "PUT /agent/v1/quit",
    ] {
        let line = format!("{line} HTTP/1.1");
        scene.refused(&[&line, HOST, WITH_KEY], 412, "the header X-Vault-Request: true is missing").await;
        scene.refused(&[&line, HOST, ASKED, ASKED, WITH_KEY], 400, "more than one X-Vault-Request").await;
        scene.refused(&[&line, HOST, "X-Vault-Request: TRUE", WITH_KEY], 412, "X-Vault-Request must be true").await;
        scene.refused(&[&line, HOST, ASKED], 401, "this listener requires its key").await;
        scene.refused(&[&line, HOST, ASKED, wrong], 403, "wrong key for this listener").await;
        scene.refused(&[&line, HOST, ASKED, WITH_KEY, wrong], 400, "more than one key").await;
    }
    let in_query = format!("GET /agent/v1/token?key={KEY} HTTP/1.1");
    scene.refused(&[&in_query, HOST, ASKED], 401, "this listener requires its key").await;
    assert_eq!(scene.ask(&[GET, HOST, ASKED]).await.header("www-authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn ambiguous_requests_are_rejected() {
    let scene = Scene::with_key();
    let good = [HOST, ASKED, WITH_KEY];
    let with = |line: &'static str, more: &[&'static str]| [&[line][..], &good[..], more].concat();
    let chunked = "Transfer-Encoding: chunked";
    scene.refused(&with(GET, &[chunked]), 400, "the body must have a Content-Length").await;
    scene.refused(&with(GET, &["Content-Length: 5", chunked]), 400, "the body must have a Content-Length").await;
    scene.refused(&with(GET, &[chunked, "Content-Length: 5"]), 400, "the body must have a Content-Length").await;
    scene.refused(&with(GET, &["Content-Length: 65537"]), 413, "the body is larger than 65536 bytes").await;
    scene.refused(&with(GET, &["Connection: Upgrade", "Upgrade: websocket"]), 400, "Upgrade is not served").await;
    for named in ["X-Vault-Request", "keep-alive, x-keyward-KEY", "Authorization,close", "host"] {
        let connection = format!("Connection: {named}");
        scene.refused(&[GET, HOST, ASKED, WITH_KEY, &connection], 400, "Connection must not name a header").await;
    }
    scene.refused(&with("GET /agent/v1/token HTTP/1.0", &[]), 505, "HTTP/1.1 is required").await;
    scene.refused(&with("TRACE /agent/v1/token HTTP/1.1", &[]), 405, "CONNECT and TRACE are not served").await;
    scene.refused(&with("CONNECT 127.0.0.1:PORT HTTP/1.1", &[]), 405, "CONNECT and TRACE are not served").await;
    let long = format!("GET /{} HTTP/1.1", "a".repeat(4096));
    scene.refused(&[&long, HOST, ASKED, WITH_KEY], 414, "the URI is longer than 4096 bytes").await;
    let many = ["X-Many: 1"; 62];
    scene.refused(&[&[GET][..], &good[..], &many].concat(), 431, "there are more than 64 headers").await;
    // The parser refuses these before the guard sees them.
    for lines in [
        with(GET, &["Content-Length: 5", "Content-Length: 6"]),
        with(GET, &["Content-Length: -1"]),
        with(GET, &["Content-Length: +5"]),
        with(GET, &["Transfer-Encoding: chunked, identity"]),
        with(GET, &["Bad Name: x"]),
        with("GET /agent/v1/token HTTP/3.0", &[]),
        with("GET /a b HTTP/1.1", &[]),
    ] {
        assert_eq!(scene.ask(&lines).await.status, 400, "{lines:?}");
    }
    assert!(scene.ask(&[GET, HOST, ASKED, WITH_KEY]).await.json()["token"].is_string(), "it still serves");
}

#[tokio::test]
async fn t11_heads_and_bodies_are_served_up_to_their_bounds_and_refused_one_above() {
    let scene = Scene::with_key();
    let ask = async |line: String, more: &[String]| {
        let lines: Vec<&str> =
            [line.as_str(), HOST, ASKED, WITH_KEY].into_iter().chain(more.iter().map(String::as_str)).collect();
        scene.ask(&lines).await.status
    };
    let path = |bytes: usize| format!("GET /{} HTTP/1.1", "a".repeat(bytes - 1));
    assert_eq!([ask(path(4096), &[]).await, ask(path(4097), &[]).await], [404, 414]);
    let headers = |count: usize| vec!["X-Many: 1".to_owned(); count - 3];
    assert_eq!([ask(GET.to_owned(), &headers(64)).await, ask(GET.to_owned(), &headers(65)).await], [200, 431]);
    let large = |bytes: usize| [format!("X-Large: {}", "x".repeat(bytes))];
    assert_eq!([ask(GET.to_owned(), &large(15 << 10)).await, ask(GET.to_owned(), &large(17 << 10)).await], [200, 431]);
    let post = async |length: usize| {
        let head = format!(
            "POST /agent/v1/token HTTP/1.1\r\nHost: localhost\r\n{ASKED}\r\n{WITH_KEY}\r\nContent-Length: {length}\r\n\r\n"
        );
        let mut caller = Raw::tcp(scene.address).await;
        caller.send(head).await;
        // A body that is too large is refused before it comes.
        let body = if length > 64 << 10 { String::new() } else { "x".repeat(length) };
        caller.ask(body).await.status
    };
    assert_eq!([post(usize::MAX >> 1).await, post((64 << 10) + 1).await], [413, 413]);
    assert_eq!(post(64 << 10).await, 405, "it is another rule that refuses it");
    let endless = ["Transfer-Encoding: chunked".to_owned()];
    assert_eq!(ask("POST /agent/v1/check HTTP/1.1".to_owned(), &endless).await, 400);
}

#[tokio::test]
async fn without_a_key_loopback_tcp_serves_no_caller_unless_any_local_user_is_set() {
    let closed = Scene::new(AccessMode::SocketPeers);
    closed.refused(&[GET, HOST, ASKED], 403, "the caller's user is unknown over TCP").await;
    let open = Scene::new(AccessMode::AnyLocalUser);
    assert_eq!(open.ask(&[GET, HOST, ASKED]).await.json()["token"], CANARY);
    open.refused(&[GET, "Host: evil.example", ASKED], 421, "the Host header must be one of").await;
}

#[tokio::test]
async fn each_rejection_is_counted_and_logged_once_without_a_secret() {
    log::keep();
    let scene = Scene::with_key();
    let query = "GET /agent/v1/token?session=query-canary HTTP/1.1";
    scene.refused(&[query, "Host: host-canary", ASKED, WITH_KEY], 421, "the Host header must be one of").await;
    scene.refused(&[GET, HOST, ASKED, "X-Vault-Token: key-canary"], 403, "wrong key for this listener").await;
    scene.refused(&["CANARY /canary HTTP/1.1", HOST], 412, "X-Vault-Request: true is missing").await;
    assert_eq!(scene.ask(&[GET, HOST, ASKED, WITH_KEY]).await.status, 200);
    let lines = log::lines();
    let refusals: Vec<_> = lines.iter().filter(|line| line["fields"]["event"] == "local.refused").collect();
    let requests: Vec<_> =
        refusals.iter().map(|line| (line["fields"]["reason"].clone(), line["fields"]["listener"].clone())).collect();
    let expected = ["host", "key", "request_header"].map(|reason| (reason.into(), "local".into()));
    assert_eq!(requests, expected);
    let granted = lines.iter().filter(|line| line["fields"]["event"] == "local.granted").count();
    assert_eq!(granted, 1, "and the grant, at debug level");
    let (text, metrics) = (log::text(), scene.metrics.text());
    for reason in ["host", "key", "request_header"] {
        let line = format!("keyward_local_refused_total{{listener=\"local\",reason=\"{reason}\"}} 1");
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    }
    for secret in [CANARY, KEY, "key-canary", "query-canary", "host-canary", "CANARY"] {
        assert!(!text.contains(secret) && !metrics.contains(secret), "{secret} in\n{text}\n{metrics}");
    }
}
