use std::sync::Arc;
use std::time::SystemTime;

use keyward_credentials::credential_watch::{Availability, CredentialPublisher, credential_channel};
use keyward_machine::clock::TestClock;
use keyward_machine::command::ProvidedEnv;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::Health;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::process::RestartMode;

fn publish(publisher: &CredentialPublisher<ProvidedEnv>, value: &str) {
    let variable = ProvidedEnv::Variable("A".to_owned(), SecretString::from(value));
    publisher.publish(Availability::Available(Arc::new(variable)), None);
}

/// A supervisor of a process that no signal ends, its inputs, and its health.
struct Running {
    supervisor: JoinHandle<Option<u8>>,
    publisher: CredentialPublisher<ProvidedEnv>,
    health: Health,
    stop: CancellationToken,
    _signals: mpsc::Sender<Signal>,
    _inputs: watch::Sender<ProcessInputs>,
}

/// Starts the supervisor, and waits until its process runs.
#[expect(clippy::disallowed_methods, reason = "a test awaits or aborts its own tasks")]
async fn start() -> Running {
    let health = Health::default();
    let stop = CancellationToken::new();
    let (publisher, variable) = credential_channel("not read yet");
    publish(&publisher, "first");
    let (inputs, received) = watch::channel(vec![("env_template/A".to_owned(), variable)]);
    let (sender, signals) = mpsc::channel(1);
    let options = ProcessOptions {
        command: vec!["program".to_owned()],
        variables: EnvVars::default(),
        on_change: OnChange::Restart,
        restart: RestartMode::Never,
        stop_signal: Signal::TERM,
        stop_timeout: Duration::from_secs(5),
        debounce: Duration::from_millis(100),
    };
    let deps = SupervisorDeps {
        signals,
        launcher: Launcher::unending(),
        clock: Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)),
        health: health.register("process", true, "not started yet"),
        metrics: Metrics::default(),
    };
    let mut changes = health.changes();
    let supervisor = tokio::spawn(Supervisor::new(options, received, deps).run(stop.clone()));
    while !health.is_ready() {
        changes.changed().await.unwrap();
    }
    Running { supervisor, publisher, health, stop, _signals: sender, _inputs: inputs }
}

const LIMIT: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn a_stop_gives_up_a_killed_process_that_does_not_end() {
    let running = start().await;
    let begun = Instant::now();
    running.stop.cancel();
    let code = tokio::time::timeout(LIMIT, running.supervisor).await.expect("it gives up").unwrap();
    assert_eq!((code, begun.elapsed().as_secs()), (Some(1), 15));
}

#[tokio::test(start_paused = true)]
async fn a_restart_reports_a_killed_process_that_does_not_end_and_waits_for_it() {
    let running = start().await;
    let mut changes = running.health.changes();
    publish(&running.publisher, "second");
    let reported = async {
        while running.health.is_ready() {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(LIMIT, reported).await.expect("it is reported");
    let component = running.health.components().remove("process").unwrap();
    assert_eq!(component.code, Some(ErrorCode::ProcessStuck));
    tokio::time::sleep(LIMIT).await;
    assert!(!running.supervisor.is_finished(), "no second process runs beside it");
    running.stop.cancel();
    tokio::time::timeout(LIMIT, running.supervisor).await.expect("a stop gives up").unwrap();
}
