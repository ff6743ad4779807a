use std::sync::Arc;
use std::time::SystemTime;

use keyward_credentials::credential_watch::{Availability, CredentialPublisher, credential_channel};
use keyward_machine::clock::TestClock;
use keyward_machine::command::{EmulatedProgram, ProvidedEnv};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::Health;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::process::{RestartLimit, RestartMode};

fn publish(publisher: &CredentialPublisher<ProvidedEnv>, value: &str) {
    let variable = ProvidedEnv::Variable("A".to_owned(), SecretString::from(value));
    publisher.publish(Availability::Available(Arc::new(variable)), None);
}

/// A supervisor of a process, its inputs, its health and its metrics.
struct Running {
    supervisor: JoinHandle<Option<u8>>,
    publisher: CredentialPublisher<ProvidedEnv>,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
    _signals: mpsc::Sender<Signal>,
    _inputs: watch::Sender<ProcessInputs>,
}

/// Starts the supervisor of a process that no signal ends, and waits until it runs.
async fn start() -> Running {
    start_with(Launcher::unending(), None).await
}

#[expect(clippy::disallowed_methods, reason = "a test awaits or aborts its own tasks")]
async fn start_with(launcher: Launcher, max_restarts_per: Option<RestartLimit>) -> Running {
    let metrics = Metrics::default();
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
        max_restarts_per,
        restart: RestartMode::Never,
        stop_signal: Signal::TERM,
        stop_timeout: Duration::from_secs(5),
        debounce: Duration::from_millis(100),
    };
    let deps = SupervisorDeps {
        signals,
        launcher,
        clock: Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)),
        health: health.register("process", true, "not started yet"),
        metrics: metrics.clone(),
    };
    let mut changes = health.changes();
    let supervisor = tokio::spawn(Supervisor::new(options, received, deps).run(stop.clone()));
    while !health.is_ready() {
        changes.changed().await.unwrap();
    }
    Running { supervisor, publisher, health, metrics, stop, _signals: sender, _inputs: inputs }
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

impl Running {
    /// Restarts for changed variables, and if one waits.
    fn restarts(&self) -> (u64, i64) {
        let metrics = self.metrics.get::<ProcessMetrics>();
        let restarts = metrics.starts.get_or_create(&ProcessStartLabels { reason: "changed" }).get();
        (restarts, metrics.restart_pending.get())
    }

    fn warning(&self) -> Option<String> {
        self.health.statuses().remove("process").unwrap().warning.map(|warning| warning.reason)
    }

    /// Changes the variable, and waits for longer than the debounce interval.
    async fn change(&self, value: &str) {
        publish(&self.publisher, value);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A launcher whose programs end by the first signal.
fn obedient() -> Launcher {
    Launcher::emulated(|_| EmulatedProgram::Obedient)
}

const LIMIT_OF_RESTARTS: RestartLimit = RestartLimit { max: 2, span: Duration::from_hours(1) };

#[tokio::test(start_paused = true)]
async fn more_restarts_than_the_limit_are_one_restart_once_it_allows() {
    let running = start_with(obedient(), Some(LIMIT_OF_RESTARTS)).await;
    running.change("1").await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    running.change("2").await;
    assert_eq!((running.restarts(), running.warning()), ((2, 0), None));
    for value in ["3", "4", "5"] {
        running.change(value).await;
        assert_eq!(running.restarts(), (2, 1));
        let warning = running.warning().unwrap();
        assert!(warning.contains("max_restarts_per = \"2/1h\" allows the restart at 1970-01-01T01:00:0"), "{warning}");
    }
    assert!(running.health.is_ready(), "the process runs on");
    tokio::time::sleep(Duration::from_mins(49)).await;
    assert_eq!(running.restarts(), (2, 1));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!((running.restarts(), running.warning()), ((3, 0), None));
    // The second one was ten minutes after the first.
    running.change("6").await;
    assert_eq!(running.restarts(), (3, 1));
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert_eq!(running.restarts(), (3, 1));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(running.restarts(), (4, 0));
    running.stop.cancel();
    assert_eq!(running.supervisor.await.unwrap(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_postponed_restart_is_dropped_if_the_value_is_as_it_was() {
    let running = start_with(obedient(), Some(LIMIT_OF_RESTARTS)).await;
    for value in ["1", "2", "3"] {
        running.change(value).await;
    }
    assert_eq!(running.restarts(), (2, 1));
    running.change("2").await;
    assert_eq!((running.restarts(), running.warning()), ((2, 0), None));
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(running.restarts(), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_every_change_restarts_the_process() {
    let running = start_with(obedient(), None).await;
    for at in 1..=20 {
        running.change(&at.to_string()).await;
        assert_eq!(running.restarts(), (at, 0));
    }
}
