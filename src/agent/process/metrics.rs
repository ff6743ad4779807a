//! Metrics of the child process.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::{MetricRegistry, MetricSet};

/// Metrics of the child process.
#[derive(Debug, Clone)]
pub struct ProcessMetrics {
    /// Starts of the child process. `reason` is `first`, `changed` (a variable) or `ended` (by itself).
    pub(crate) starts: Family<ProcessStartLabels, Counter>,
    /// 1 while the child process runs.
    pub(crate) running: Gauge,
}

impl MetricSet for ProcessMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            starts: registry.add("process_starts", "Starts of the child process"),
            running: registry.add("process_running", "1 while the child process runs"),
        }
    }
}

/// Label of a start of the child process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProcessStartLabels {
    /// `first`, `changed` or `ended`.
    pub reason: &'static str,
}
