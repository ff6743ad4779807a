//! The API proxy as the agent serves it: the real listener, guard, rules and forwarder, with a token.
//! `proxy tcp 127.0.0.1:0 URL [CA_FILE]` or `proxy unix PATH URL [CA_FILE]`; prints its address, and ends on SIGTERM. With `--cached` it
//! caches responses; with `--audited` it records requests in the file `audit.jsonl` of the current folder; with `--callers` the rules of
//! six callers decide each request.
#![allow(clippy::print_stdout, clippy::too_many_lines, clippy::unwrap_used, missing_docs)]

mod audit_device;
mod counting_allocator;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keyward_agent::api_proxy::{
    AllowedNamespaces, ApiProxy, ApiProxyDeps, ApiProxyOptions, CacheLimits, CacheOptions, CallerProxyRules, Rule,
    Rules, TokenMode,
};
use keyward_agent::caller_tokens::CallerTokens;
use keyward_agent::callers::{
    CallerGate, CallerGateDeps, CallerGrants, CallerMatch, CallerPolicy, CallerRoute, CallerRule, NamePattern,
};
use keyward_agent::server_client;
use keyward_agent::token::{ClientToken, Generation, Lease, Token, TokenKind};
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_http::client::{self, ProxyMode, ServerAddress, TlsOptions};
use keyward_http::guard::{self, AccessMode};
use keyward_http::peer::{KernelSupport, PeerKernel, PeerReader};
use keyward_http::server::{Endpoint, Listener, ListenerLimits, ListenerMetrics, UnixSocket};
use keyward_machine::clock::Clock;
use keyward_machine::os::ZeroingAllocator;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::audit::{Auditor, RunningDevice};
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use audit_device::audit_options;
use counting_allocator::CountingAllocator;

/// The allocator of the program, with counts.
#[global_allocator]
static ALLOCATOR: CountingAllocator<ZeroingAllocator> = CountingAllocator(ZeroingAllocator);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let mut take_flag = |flag: &str| {
        let count = arguments.len();
        arguments.retain(|it| it != flag);
        arguments.len() < count
    };
    let (cached, has_callers, audited) = (take_flag("--cached"), take_flag("--callers"), take_flag("--audited"));
    let [kind, address, server, ca_files @ ..] = arguments.as_slice() else {
        return println!("proxy tcp|unix ADDRESS|PATH URL [CA_FILE] [--cached] [--audited] [--callers]");
    };
    let (endpoint, admit) = if kind == "unix" {
        let socket = UnixSocket { path: PathBuf::from(address), mode: 0o600, owner: None, group: None };
        (Endpoint::Unix(socket), AccessMode::SocketPeers)
    } else {
        (Endpoint::Tcp(address.parse().unwrap()), AccessMode::AnyLocalUser)
    };
    let listener = Listener::bind(&endpoint).unwrap();
    let tcp_address = listener.tcp_address();
    let (publisher, watch) = credential_channel("no token yet");
    let now = Clock::System.now();
    let token = Token {
        secret: ClientToken::parse(SecretString::from(format!("hvs.{}", "x".repeat(91)))).unwrap(),
        accessor: Some("x".repeat(24)),
        lease: Lease { ttl: Duration::from_hours(1), renewable: true },
        kind: TokenKind::Service,
        policies: vec!["default".to_owned()],
        obtained: now,
        expires: Some(now + Duration::from_hours(24)),
        generation: Generation::new(),
    };
    publisher.publish(Availability::Available(Arc::new(token)), Some(now));
    let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).unwrap()).collect();
    let options = ApiProxyOptions {
        token_mode: TokenMode::WhenMissing,
        rules: Rules {
            allow: rules(&["GET,LIST secret/*", "+/creds/*", "pki/issue/+", "sys/health"]),
            deny: rules(&["secret/+/admin/*", "sys/raw/*"]),
            exempt: Vec::new(),
        },
        namespaces: AllowedNamespaces::default(),
        logins: true,
        request_header: true,
        connections: 256,
        response_timeout: Duration::from_secs(30),
        cache: cached.then(|| CacheOptions {
            limits: CacheLimits { bytes: 16 << 20, max_age: Duration::from_hours(1), stale_if_error: Duration::ZERO },
            values: rules(&["secret/*"]),
            leases: rules(&["+/creds/*"]),
            persist: None,
        }),
        callers: vec![
            Some(CallerProxyRules {
                rules: Rules { allow: rules(&["GET secret/*"]), ..Rules::default() },
                namespaces: None
            });
            6
        ],
    };
    let upstream = server_client::ServerClientOptions {
        name: "bench".to_owned(),
        kind: server_client::ServerKind::Vault,
        client: client::ClientOptions {
            address: ServerAddress::Url(server.parse().unwrap()),
            tls: TlsOptions { ca_file: ca_files.first().map(PathBuf::from), ..TlsOptions::default() },
            proxy: ProxyMode::Direct,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        },
        login_timeout: Duration::from_secs(90),
    };
    let refresh_signal = RefreshSignal::new(Clock::System);
    let listener_metrics = ListenerMetrics { metrics: Metrics::default(), listener: "bench".to_owned() };
    let deps = ApiProxyDeps {
        clock: Clock::System,
        watch,
        refresh_signal,
        upstream,
        namespace: None,
        listener_metrics: listener_metrics.clone(),
        derived_token: None,
        callers: if has_callers { build_gate(&listener_metrics.metrics) } else { CallerGate::default() },
        caller_tokens: CallerTokens::default(),
        health: None,
        bound_to: vec![],
    };
    let proxy = ApiProxy::build(options, deps).unwrap();
    let reader = || Arc::new(PeerReader::new(Arc::new(PeerKernel::new(KernelSupport::probe())), Vec::new()));
    let peer_reader = has_callers.then(reader);
    // More connections than any load opens: no other one is closed for a new one.
    let limits = ListenerLimits {
        connections: 16_384,
        per_user: 16_384,
        listener_metrics: Some(listener_metrics.clone()),
        peer_reader,
        ..ListenerLimits::default()
    };
    match tcp_address {
        Some(bound) => println!("{bound}"),
        None => println!("{address}"),
    }
    let auditor = Auditor::default();
    let (health, metrics) = (Health::default(), Metrics::default());
    let path = std::env::current_dir().unwrap().join("audit.jsonl");
    let device =
        audited.then(|| RunningDevice::start(audit_options(path), None, &health, &metrics, &Clock::System).unwrap());
    auditor.set_devices(device.iter().map(RunningDevice::handle).collect());
    let guard_options = guard::GuardOptions { admit, ..guard::GuardOptions::default() };
    let service = proxy.audited_service(guard_options, tcp_address, listener_metrics, auditor);
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let serving = async {
        tokio::join!(
            listener.serve(service, limits, CancellationToken::new()),
            proxy.run_cache(CancellationToken::new(), std::future::pending())
        )
    };
    tokio::select! {
        _ = serving => {}
        _ = terminate.recv() => counting_allocator::print_counts(),
    }
}

/// Returns a gate with six callers. The load generator matches the last one only: the others also name a unit.
fn build_gate(metrics: &Metrics) -> CallerGate {
    let own_uid = rustix::process::geteuid().as_raw();
    let matches = |at: u32| match at {
        5 => CallerMatch { uids: vec![own_uid], ..CallerMatch::default() },
        at => CallerMatch {
            uids: vec![own_uid, 5000 + at],
            units: vec![NamePattern::new(format!("web-{at}@*.service"))],
            ..CallerMatch::default()
        },
    };
    let grants = CallerGrants { routes: [CallerRoute::Proxy].into(), ..CallerGrants::default() };
    let rule = |at| CallerRule { name: format!("caller-{at}"), matches: matches(at), grants: grants.clone() };
    let policy = CallerPolicy::new((0..6).map(rule).collect()).unwrap();
    let deps = CallerGateDeps { metrics: metrics.clone(), ..CallerGateDeps::default() };
    CallerGate::new(policy, "bench".to_owned(), deps)
}
