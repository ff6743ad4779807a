//! Metrics of the gateway.

use keyward_telemetry::metrics::{LatencyHistogram, MetricRegistry, MetricSet, latency_histogram};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of the gateway.
#[derive(Debug, Clone)]
pub struct GatewayMetrics {
    /// Calls that the gateway retried because the upstream had rejected its platform token.
    pub(crate) replays: Counter,
    /// 1 while the upstream rejects the platform token.
    pub(crate) token_refused: Gauge,
    /// 1 while the gateway has no platform token.
    pub(crate) token_missing: Gauge,
    /// Time at which the platform token in use was loaded, in seconds since 1970; 0 without one.
    pub(crate) token_loaded: Gauge,
    /// Time that calls waited for the platform's rate limit, in seconds. Calls that need not wait are not counted.
    pub(crate) queue_seconds: LatencyHistogram,
    /// Calls that an API deprecation or removal affects, by the id of the change. `what` is `deprecated`, `warned` or
    /// `refused`.
    pub(crate) deprecated_calls: Family<DeprecatedCallLabels, Counter>,
}

impl MetricSet for GatewayMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            replays: registry.add("gateway_replays", "Calls made once more with a newer platform token"),
            token_refused: registry.add("gateway_token_refused", "1 while the platform refuses the platform token"),
            token_missing: registry.add("gateway_token_missing", "1 while there is no platform token"),
            token_loaded: registry
                .add("gateway_token_loaded_timestamp_seconds", "When the platform token in use was loaded"),
            queue_seconds: registry.add_metric(
                "gateway_queue_seconds",
                "Waits for the rate limit",
                latency_histogram(),
            ),
            deprecated_calls: registry
                .add("gateway_deprecated_calls", "Calls that a change of the platform's API is about"),
        }
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
