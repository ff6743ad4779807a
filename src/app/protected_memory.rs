//! Reports how the memory of secrets is protected: a metric, and a warning where it may be swapped out.

use keyward_machine::os::{self, MemoryProtection};
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::{Metrics, metric_set};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

metric_set! {
    /// Metrics of the memory of secrets.
    pub(super) struct ProtectedMemoryMetrics {
        /// Memory that holds only secrets. `protection` is `secret_memory`, `locked`, `unlocked` (may be swapped out) or `plain`
        /// (ordinary memory).
        pub(super) bytes: Family<ProtectionLabels, Gauge> = "keyward_protected_memory_bytes";
    }
}

/// Labels of a kind of memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProtectionLabels {
    /// `secret_memory`, `locked`, `unlocked` or `plain`.
    pub(super) protection: &'static str,
}

const fn name(protection: MemoryProtection) -> &'static str {
    match protection {
        MemoryProtection::SecretMemory => "secret_memory",
        MemoryProtection::Locked => "locked",
        MemoryProtection::Unlocked => "unlocked",
        MemoryProtection::Plain => "plain",
    }
}

/// Counts the memory of secrets, and warns once in log and status when secrets are in memory that may be swapped out.
pub(super) async fn report(health: Health, metrics: Metrics, stop: CancellationToken) -> anyhow::Result<()> {
    let metrics = metrics.get::<ProtectedMemoryMetrics>();
    let mut warning = None;
    loop {
        for (protection, bytes) in os::protected_memory() {
            let gauge = metrics.bytes.get_or_create(&ProtectionLabels { protection: name(protection) });
            gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            if bytes > 0 && protection >= MemoryProtection::Unlocked && warning.is_none() {
                tracing::warn!(event = "memory.unlocked", protection = name(protection), "{UNLOCKED}");
                let component = health.register("memory", false, "");
                component.set_ready();
                component.warn(None, UNLOCKED);
                warning = Some(component);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = os::protected_memory_changed() => {}
        }
    }
}

const UNLOCKED: &str = "secrets may be swapped out: the limit of locked memory is reached; raise LimitMEMLOCK= (or the \
    container's memlock limit), or disable swap";
