//! Metrics of the child process.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of the child process.
    pub struct ProcessMetrics {
        /// Starts of the child process. `reason` is `first`, `changed` (a variable) or `ended` (by itself).
        pub(crate) starts: Family<ProcessStartLabels, Counter> = "keyward_process_starts";
        /// 1 while the child process runs.
        pub(crate) running: Gauge = "keyward_process_running";
        /// 1 while the restart for a changed variable waits, as `max_restarts_per` allows none now.
        pub(crate) restart_pending: Gauge = "keyward_process_restart_pending";
    }
}

/// Label of a start of the child process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProcessStartLabels {
    /// `first`, `changed` or `ended`.
    pub reason: &'static str,
}
