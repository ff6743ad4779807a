//! Reports the end of the spawner, after which no program can be started and no executable opened, and the time
//! for which it does not answer.

use keyward_machine::command::{ExecutableOpener, Launcher};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::{Metrics, metric_set};
use keyward_telemetry::outage::Outage;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

metric_set! {
    /// Metrics of the spawner.
    pub(super) struct SpawnerMetrics {
        /// 1 while the process runs that starts programs and opens the executables of callers, else 0.
        pub(super) up: Gauge = "keyward_spawner_up";
    }
}

/// Reports in log, status and readiness when the spawner ends: the programs have ended with it, and the agent, which has given
/// up its rights, cannot start another one. While it does not answer, log and status warn.
pub(super) async fn watch(
    launcher: Launcher,
    executables: ExecutableOpener,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let up = metrics.get::<SpawnerMetrics>().up.clone();
    up.set(1);
    let component = health.register("spawner", true, "");
    component.set_ready();
    let mut silence = executables.silence();
    let mut outage = Outage::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = launcher.spawner_ended() => {
                up.set(0);
                tracing::error!(event = "spawner.ended", "{ENDED}");
                component.set_failed(ErrorCode::ProcessNotStarted, ENDED);
                stop.cancelled().await;
            }
            is_silent = changed(&mut silence) => {
                if is_silent {
                    outage.record_failure(health.now());
                    tracing::error!(event = "spawner.silent", "{SILENT}");
                    component.warn(None, SILENT);
                } else {
                    let lasted_seconds = outage.record_success(health.now());
                    tracing::info!(event = "spawner.recovered", lasted_seconds, "the helper process keyward-spawner answers again");
                    component.clear_warning();
                }
            }
        }
    }
    Ok(())
}

/// Waits until the spawner falls silent or answers again; forever where none is asked.
async fn changed(silence: &mut Option<watch::Receiver<bool>>) -> bool {
    let Some(silence) = silence else { return std::future::pending().await };
    match silence.changed().await {
        Ok(()) => *silence.borrow_and_update(),
        Err(_) => std::future::pending().await,
    }
}

const ENDED: &str = "the helper process keyward-spawner, which starts programs, has ended, and its programs with it; callers matched by executable are refused; restart keyward";

const SILENT: &str = "the helper process keyward-spawner, which starts programs, does not respond: callers matched by executable are refused; continue the process (SIGCONT) or restart keyward";
