//! Resource use of the process.

use std::time::{Duration, SystemTime};

use keyward_agent::sinks::{FileSink, OnExpiry, SinkFormat, SinkOptions};
use keyward_credentials::credential_watch::{Availability, credential_channel};
use keyward_machine::clock::{Clock, TestClock};
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::harness::vault::token;
use crate::harness::world::run_in_network_namespace;

/// vault#24900, vault#28876, consul-template#1644: memory grows with each failed write of a file, and with each new token.
#[test]
fn two_thousand_tokens_for_an_unwritable_file_take_no_memory() {
    // A separate process, so that its memory can be measured.
    run_in_network_namespace(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let (clock, metrics) = (Clock::Test(TestClock::starting_at(SystemTime::now())), Metrics::default());
            let (publisher, tokens) = credential_channel("not logged in yet");
            let health = Health::default();
            let mut running = tokio::task::JoinSet::new();
            for (name, path) in [("good", folder.path().join("good")), ("bad", folder.path().to_owned())] {
                let options = SinkOptions {
                    name: name.to_owned(),
                    path,
                    format: SinkFormat::Raw,
                    encrypt: None,
                    mode: 0o600,
                    owner: None,
                    group: None,
                    on_expiry: OnExpiry::Keep,
                    on_missing: None,
                    shared_folder: false,
                    required: true,
                };
                let health = health.register(format!("sink/{name}"), true, "not written yet");
                let mut sink = FileSink::new(options, tokens.clone(), clock.clone(), health, metrics.clone());
                running.spawn(async move { sink.run(CancellationToken::new()).await });
            }
            let round = async |from: usize| {
                for number in from..from + 500 {
                    publisher
                        .publish(Availability::Available(token(&format!("token-{number}")).into()), Some(clock.now()));
                    tokio::time::sleep(Duration::from_secs(10)).await;
                }
                resident()
            };
            let before = round(0).await;
            round(500).await;
            round(1000).await;
            let after = round(1500).await;
            assert_eq!(std::fs::read_to_string(folder.path().join("good")).unwrap(), "token-1999");
            let text = metrics.text();
            let failures = text.lines().find(|line| line.starts_with("keyward_sink_failures_total")).unwrap();
            assert!(failures.rsplit(' ').next().unwrap().parse::<u64>().unwrap() > 100, "{failures}");
            assert!(after < before + 768, "{before} KiB, and {after} KiB after fifteen hundred tokens more");
        });
    });
}

/// Returns the resident memory in KiB without mapped files, whose pages come in as the program first runs through them.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
