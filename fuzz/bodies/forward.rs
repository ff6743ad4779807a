//! Requests of local callers through a listener and the API proxy to a small server. hyper's server must read each request that arrives
//! there from the same bytes.
#![allow(clippy::disallowed_methods, reason = "the runtime of one input ends its tasks")]

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use keyward_agent::api_proxy::{AllowedNamespaces, ApiProxy, ApiProxyDeps, ApiProxyOptions, Rules, TokenMode};
use keyward_agent::caller_tokens::CallerTokens;
use keyward_agent::callers::CallerGate;
use keyward_agent::server_client::{ServerClientOptions, ServerKind};
use keyward_agent::token::{ClientToken, Generation, Lease, Token, TokenKind};
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_http::client::{ClientOptions, ProxyMode, ServerAddress, TlsOptions};
use keyward_http::guard::GuardOptions;
use keyward_http::server::{Endpoint, Listener, ListenerLimits, ListenerMetrics, UnixSocket};
use keyward_machine::clock::Clock;
use keyward_telemetry::metrics::Metrics;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::messages::{Message, parse_by_hyper, read_request, read_response};

/// Token of the session, which the proxy adds to requests.
const SESSION_TOKEN: &str = "canary-5ession";

/// Time-out after which a connection counts as hanging; far more than any machine needs.
const HANG_TIMEOUT: Duration = Duration::from_mins(2);

/// Sends bytes to a listener of the API proxy, and compares what arrives at the server with the requests that hyper reads.
pub(crate) fn requests(bytes: &[u8]) {
    let _ = count_forwarded(bytes);
}

/// Sends the bytes, and returns how many requests have arrived.
pub(crate) fn count_forwarded(bytes: &[u8]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (requests, (responses, arrived)) = runtime.block_on(async {
        let requests = parse_by_hyper(bytes).await;
        let exchange = tokio::time::timeout(HANG_TIMEOUT, exchange(bytes, &requests)).await;
        (requests, exchange.expect("the connection hangs"))
    });
    let complete = requests.iter().take_while(|request| request.body.is_some()).count();
    assert!(responses <= requests.len() + 1, "more responses than requests and one error");
    assert!(complete == 0 || responses > 0, "a request without a response");
    let mut complete_requests = requests.iter().filter(|request| request.body.is_some());
    for forwarded in &arrived {
        let sent = complete_requests.find(|sent| sent.start == forwarded.start && sent.body == forwarded.body);
        let sent = sent.unwrap_or_else(|| panic!("the caller has not sent {forwarded:?}, or only once"));
        compare_headers(&sent.headers, &forwarded.headers);
    }
    arrived.len()
}

/// Asserts that the proxy forwards the caller's headers, without those of the connection and with its own.
fn compare_headers(sent: &HeaderMap, forwarded: &HeaderMap) {
    let values = |headers: &HeaderMap, name: &str| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        (values(forwarded, "host"), values(forwarded, "x-vault-request")),
        (vec!["localhost".parse().unwrap()], vec!["true".parse().unwrap()])
    );
    let token = values(forwarded, "x-vault-token");
    assert!(token.len() <= 1, "a token is repeated");
    assert!(
        token.is_empty() || token == [SESSION_TOKEN] || token == values(sent, "x-vault-token"),
        "the token is neither the session's nor the caller's"
    );
    for name in ["x-keyward-key", "expect", "upgrade", "keep-alive", "proxy-authorization", "cookie", "origin"] {
        assert!(!forwarded.contains_key(name), "{name} is forwarded");
    }
    assert!(values(forwarded, "connection").iter().all(|value| value == "te"), "a header of the caller's connection");
    let proxy_headers =
        ["host", "x-vault-request", "x-vault-token", "connection", "te", "content-length", "transfer-encoding"];
    for name in forwarded.keys().map(http::HeaderName::as_str).filter(|name| !proxy_headers.contains(name)) {
        let is_identity_encoding = name == "accept-encoding" && values(forwarded, name) == ["identity"];
        assert!(is_identity_encoding || values(sent, name) == values(forwarded, name), "the values of {name} differ");
    }
}

/// Sends the bytes, waits for the responses, and closes the connection. Returns the number of responses, and the complete requests that
/// have arrived at the server.
async fn exchange(bytes: &[u8], requests: &[Message]) -> (usize, Vec<Message>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, upstream) = (folder.path().join("proxy.sock"), folder.path().join("server.sock"));
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let server = tokio::spawn(run_server(UnixListener::bind(&upstream).expect("a socket"), Arc::clone(&arrived)));
    let unix_socket = UnixSocket { path: socket.clone(), mode: 0o600, owner: None, group: None };
    let listener = Listener::bind(&Endpoint::Unix(unix_socket)).expect("a socket");
    let proxy = tokio::spawn(run_proxy(listener, ServerAddress::Unix(upstream)));

    let mut caller = UnixStream::connect(&socket).await.expect("a connection");
    let (first, rest) = bytes.split_at(super::part_length(bytes).min(bytes.len()));
    for part in [first, rest] {
        // The listener may close before all is sent.
        let _ = caller.write_all(part).await;
        tokio::task::yield_now().await;
    }
    let complete = requests.iter().take_while(|request| request.body.is_some()).count();
    let (mut received, mut open) = (Vec::new(), true);
    while open && count_responses(&received, requests) < complete {
        open = caller.read_buf(&mut received).await.is_ok_and(|count| count > 0);
    }
    let _ = caller.shutdown().await;
    while caller.read_buf(&mut received).await.is_ok_and(|count| count > 0) {}
    // Let the last forwarded bytes reach the server before it is stopped.
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    proxy.abort();
    server.abort();
    let arrived = std::mem::take(&mut *arrived.lock());
    (count_responses(&received, requests), arrived)
}

/// Counts complete responses without interim ones. Responses to `HEAD` have no body.
fn count_responses(mut received: &[u8], requests: &[Message]) -> usize {
    let mut count = 0;
    loop {
        let bodiless = requests.get(count).is_some_and(|request| request.start.starts_with("HEAD "));
        let Some((response, rest)) = read_response(received, bodiless).expect("the listener sends an invalid response")
        else {
            return count;
        };
        received = rest;
        count += usize::from(!response.start.starts_with('1'));
    }
}

async fn run_proxy(listener: Listener, address: ServerAddress) {
    let (publisher, watch) = credential_channel("no login has succeeded yet");
    publisher.publish(Availability::Available(Arc::new(session_token())), None);
    let client = ClientOptions {
        address,
        tls: TlsOptions::default(),
        proxy: ProxyMode::Direct,
        connect_timeout: HANG_TIMEOUT,
        response_timeout: HANG_TIMEOUT,
    };
    let upstream =
        ServerClientOptions { name: "test".to_owned(), kind: ServerKind::Vault, client, login_timeout: HANG_TIMEOUT };
    let listener_metrics = ListenerMetrics { metrics: Metrics::default(), listener: "vault".to_owned() };
    let deps = ApiProxyDeps {
        clock: Clock::System,
        watch,
        refresh_signal: RefreshSignal::new(Clock::System),
        upstream,
        namespace: None,
        listener_metrics: listener_metrics.clone(),
        derived_token: None,
        callers: CallerGate::default(),
        caller_tokens: CallerTokens::default(),
        health: None,
        bound_to: Vec::new(),
    };
    let options = ApiProxyOptions {
        token_mode: TokenMode::WhenMissing,
        rules: Rules::default(),
        namespaces: AllowedNamespaces::default(),
        logins: true,
        request_header: false,
        connections: 4,
        response_timeout: HANG_TIMEOUT,
        cache: None,
        callers: Vec::new(),
    };
    let service =
        ApiProxy::build(options, deps).expect("a proxy").service(GuardOptions::default(), None, listener_metrics);
    let limits = ListenerLimits {
        first_byte_timeout: HANG_TIMEOUT,
        header_timeout: HANG_TIMEOUT,
        idle_timeout: HANG_TIMEOUT,
        write_timeout: HANG_TIMEOUT,
        ..ListenerLimits::default()
    };
    listener.serve(service, limits, CancellationToken::new()).await;
    drop(publisher);
}

fn session_token() -> Token {
    let now = Clock::System.now();
    Token {
        secret: ClientToken::parse(SESSION_TOKEN.into()).expect("a token"),
        accessor: None,
        lease: Lease { ttl: Duration::from_hours(1), renewable: true },
        kind: TokenKind::Service,
        policies: Vec::new(),
        obtained: now,
        expires: Some(now + Duration::from_hours(1)),
        generation: Generation::new(),
    }
}

/// Parses requests strictly, and responds to each complete one.
async fn run_server(listener: UnixListener, arrived: Arc<Mutex<Vec<Message>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let arrived = Arc::clone(&arrived);
        tokio::spawn(async move {
            let mut received = Vec::new();
            while stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {
                while let Some((request, rest)) =
                    read_request(&received).expect("the server receives an invalid request")
                {
                    received = rest.to_vec();
                    let bodiless = request.start.starts_with("HEAD ");
                    arrived.lock().push(request);
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    let _ = stream.write_all(&response[..response.len() - if bodiless { 2 } else { 0 }]).await;
                }
            }
        });
    }
}
