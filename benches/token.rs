//! A token read as the agent serves it: the real listener, guard and local API, with a token.
//! `token tcp|key 127.0.0.1:0` or `token unix PATH`; `key` requires a key of callers. Prints its address, and ends on SIGTERM.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod counting_allocator;

use std::collections::BTreeMap;
use std::path::PathBuf;
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
use keyward_http::server::{Endpoint, Listener, ListenerLimits, ListenerMetrics, UnixSocket};
use keyward_machine::clock::Clock;
use keyward_machine::os::ZeroingAllocator;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status_registry::StatusRegistry;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use counting_allocator::CountingAllocator;

/// The allocator of the program, with counts.
#[global_allocator]
static ALLOCATOR: CountingAllocator<ZeroingAllocator> = CountingAllocator(ZeroingAllocator);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let [kind, address] = arguments.as_slice() else { return println!("token tcp|key|unix ADDRESS|PATH") };
    let (endpoint, admit) = match kind.as_str() {
        "unix" => {
            let socket = UnixSocket { path: PathBuf::from(address), mode: 0o600, owner: None, group: None };
            (Endpoint::Unix(socket), AccessMode::SocketPeers)
        }
        "key" => (Endpoint::Tcp(address.parse().unwrap()), AccessMode::Key(SecretString::from("k".repeat(43)))),
        _ => (Endpoint::Tcp(address.parse().unwrap()), AccessMode::AnyLocalUser),
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
    let sessions = BTreeMap::from([(
        "web".to_owned(),
        SessionHandle { watch, refresh_signal: RefreshSignal::new(Clock::System) },
    )]);
    let options = LocalApiOptions { name: "bench".to_owned(), kind: ListenerKind::LocalApi, sessions };
    let (metrics, stop) = (Metrics::default(), CancellationToken::new());
    let deps = LocalApiDeps {
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
        address: tcp_address,
        stop: stop.clone(),
    };
    let limits = ListenerLimits {
        listener_metrics: Some(ListenerMetrics { metrics, listener: "bench".to_owned() }),
        ..ListenerLimits::default()
    };
    match tcp_address {
        Some(bound) => println!("{bound}"),
        None => println!("{address}"),
    }
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    tokio::select! {
        () = listener.serve(local_api::service(options, deps), limits, stop) => {}
        _ = terminate.recv() => counting_allocator::print_counts(),
    }
}
