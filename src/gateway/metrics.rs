//! Metrics of the gateway.

use keyward_telemetry::metrics::{LatencyHistogram, latency_histogram, metric_set};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

metric_set! {
    /// Metrics of the gateway.
    pub struct GatewayMetrics {
        /// Calls that the gateway retried because the upstream had rejected its platform token.
        pub(crate) replays: Counter = "keyward_gateway_replays";
        /// 1 while the upstream rejects the platform token.
        pub(crate) token_refused: Gauge = "keyward_gateway_token_refused";
        /// 1 while the gateway has no platform token.
        pub(crate) token_missing: Gauge = "keyward_gateway_token_missing";
        /// Time at which the platform token in use was loaded, in seconds since 1970; 0 without one.
        pub(crate) token_loaded: Gauge = "keyward_gateway_token_loaded_timestamp_seconds";
        /// Time that calls waited for the platform's rate limit, in seconds. Calls that need not wait are not counted.
        pub(crate) queue_seconds: LatencyHistogram = "keyward_gateway_queue_seconds", latency_histogram();
        /// Calls that an API deprecation or removal affects, by the id of the change. `what` is `deprecated`, `warned` or
        /// `refused`.
        pub(crate) deprecated_calls: Family<DeprecatedCallLabels, Counter> = "keyward_gateway_deprecated_calls";
    }
}

/// Labels of a call that an API deprecation or removal affects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DeprecatedCallLabels {
    /// Id of the change, such as `2021-06-08/d1`.
    pub change: String,
    /// Client by its `User-Agent`, from a bounded set.
    pub client: String,
    /// `deprecated`, `warned` or `refused`.
    pub what: &'static str,
}
