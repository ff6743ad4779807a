//! Metrics of sinks.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::{MetricRegistry, MetricSet};

/// Metrics of sinks.
#[derive(Debug, Clone)]
pub struct SinkMetrics {
    /// State of a sink: 0 holds the newest token, 1 is waiting for one, 2 is failing.
    pub(crate) state: Family<SinkLabels, Gauge>,
    /// Time of the last write of a sink, in seconds since 1970.
    pub(crate) written: Family<SinkLabels, Gauge>,
    /// Writes of a sink that failed.
    pub(crate) failures: Family<SinkLabels, Counter>,
}

impl MetricSet for SinkMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            state: registry.add("sink_state", "0 newest token, 1 waiting, 2 failing"),
            written: registry.add("sink_written_timestamp_seconds", "When a sink was last written"),
            failures: registry.add("sink_failures", "Writes of a sink that failed"),
        }
    }
}

/// Label of a sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SinkLabels {
    /// Name from the configuration.
    pub sink: String,
}
