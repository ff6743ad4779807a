//! Metrics of sinks.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of sinks.
    pub struct SinkMetrics {
        /// State of a sink: 0 holds the newest token, 1 is waiting for one, 2 is failing.
        pub(crate) state: Family<SinkLabels, Gauge> = "keyward_sink_state";
        /// Time of the last write of a sink, in seconds since 1970.
        pub(crate) written: Family<SinkLabels, Gauge> = "keyward_sink_written_timestamp_seconds";
        /// Writes of a sink that failed.
        pub(crate) failures: Family<SinkLabels, Counter> = "keyward_sink_failures";
    }
}

/// Label of a sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SinkLabels {
    /// Name from the configuration.
    pub sink: String,
}
