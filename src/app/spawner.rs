//! Reports the end of the spawner, after which no program can be started and no executable opened.

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use crate::command::Launcher;
use crate::error_code::ErrorCode;
use crate::health::Health;
use crate::metrics::{MetricRegistry, MetricSet, Metrics};

/// Metrics of the spawner.
#[derive(Debug, Clone)]
pub(super) struct SpawnerMetrics {
    /// 1 while the process runs that starts programs and opens the executables of callers, else 0.
    pub(super) up: Gauge,
}

impl MetricSet for SpawnerMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            up: registry.add(
                "spawner_up",
                "1 while the process runs that starts programs and opens the executables of callers, else 0",
            ),
        }
    }
}

/// Waits for the end of the spawner, and reports it in log, status and readiness: the programs have ended with it, and the
/// agent, which has given up its rights, cannot start another spawner.
pub(super) async fn watch(
    launcher: Launcher,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let up = metrics.get::<SpawnerMetrics>().up.clone();
    up.set(1);
    let component = health.register("spawner", true, "");
    component.ready();
    tokio::select! {
        () = stop.cancelled() => {}
        () = launcher.spawner_ended() => {
            up.set(0);
            tracing::error!(event = "spawner.ended", "{ENDED}");
            component.failed(ErrorCode::ProcessNotStarted, ENDED);
            stop.cancelled().await;
        }
    }
    Ok(())
}

const ENDED: &str = "the spawner has ended, and its programs with it; callers that are known by their executables are refused; restart keyward";
