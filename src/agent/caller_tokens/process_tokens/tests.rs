use std::os::unix::net::UnixStream;

use keyward_http::client::{ClientOptions, ProxyMode, ServerAddress, TlsOptions};
use keyward_http::peer::{KernelSupport, PeerKernel, PeerReader};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::Health;

use super::*;
use crate::server_client::{ServerClientOptions, ServerKind};
use crate::token::{ClientToken, Generation, Lease, Token, TokenKind};

/// Tokens of the caller `job` for a session with a token.
fn tokens(metrics: &Metrics) -> ProcessTokens {
    let clock = Clock::System;
    let minute = Duration::from_mins(1);
    let client = ClientOptions {
        address: ServerAddress::Url("http://127.0.0.1:9".parse().unwrap()),
        tls: TlsOptions::default(),
        proxy: ProxyMode::Direct,
        connect_timeout: minute,
        response_timeout: minute,
    };
    let server =
        ServerClientOptions { name: "main".to_owned(), kind: ServerKind::Vault, client, login_timeout: minute };
    let token = Token {
        secret: ClientToken::parse(SecretString::from("tok1")).unwrap(),
        accessor: None,
        lease: Lease { ttl: Duration::ZERO, renewable: false },
        kind: TokenKind::Service,
        policies: Vec::new(),
        obtained: clock.now(),
        expires: None,
        generation: Generation::new(),
    };
    let (publisher, watch) = credential_channel("starting");
    publisher.publish(Availability::Available(Arc::new(token)), None);
    ProcessTokens::new(ProcessTokenDeps {
        caller: "job".to_owned(),
        options: DerivedTokenOptions::default(),
        upstream: ServerClient::build(&server).unwrap(),
        namespace: None,
        session: SessionHandle { watch, refresh_signal: RefreshSignal::new(clock.clone()) },
        health: Health::default().register("derived_token/caller/job/web", false, "starting"),
        registry: CallerRegistry::default(),
        metrics: metrics.clone(),
        clock,
    })
}

#[test]
fn the_panic_of_a_task_is_counted_and_its_process_gets_another_token() {
    let reader = Arc::new(PeerReader::new(Arc::new(PeerKernel::new(KernelSupport::probe())), Vec::new()));
    let (near, _far) = UnixStream::pair().unwrap();
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let identity = PeerIdentity::from_unix(&reader, &near, std::process::id(), user, group);
    let metrics = Metrics::default();
    let tokens = tokens(&metrics);
    let stop = CancellationToken::new();
    tokens.get(&identity).unwrap();
    // Without a driver of descriptors and timers, the wait for the end of the process panics.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let stopping = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            stop.cancel();
        };
        tokio::join!(tokens.clone().run(stop.clone()), stopping);
    });
    let text = metrics.text();
    for line in [
        "keyward_caller_process_tokens{caller=\"job\"} 0",
        "keyward_caller_process_tokens_ended_total{caller=\"job\",outcome=\"failed\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    // The first token would be found in the table; another one is refused, as nothing runs any more.
    let second = tokens.get(&identity);
    assert!(matches!(second, Err(ProcessTokenRefusal::Unavailable { .. })), "{second:?}");
}
