//! Metrics of callers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of callers; only configurations with `[caller.NAME]` have values.
    pub struct CallerMetrics {
        /// Requests that a caller's routes admitted, by route. Its sessions and rules may refuse one afterwards.
        pub(crate) admitted: Family<AdmissionLabels, Counter> = "keyward_caller_admitted";
        /// Requests that were refused to a caller, by the reason. `caller` is empty for a process that no rule matches.
        pub(crate) refused: Family<CallerRefusalLabels, Counter> = "keyward_caller_refused";
        /// Connections that a caller has open, of those that have sent a request.
        pub(crate) connections: Family<CallerLabel, Gauge> = "keyward_caller_connections";
    }
}

/// Labels of an admitted request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AdmissionLabels {
    /// Name of the caller.
    pub caller: String,
    /// Name of the route, such as `token`.
    pub route: &'static str,
}

/// Labels of a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallerRefusalLabels {
    /// Name of the caller; empty if no rule matches.
    pub caller: String,
    /// Name of the listener.
    pub listener: String,
    /// Reason from a fixed set, such as `route`.
    pub reason: &'static str,
}

/// Label of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallerLabel {
    /// Name of the caller.
    pub caller: String,
}
