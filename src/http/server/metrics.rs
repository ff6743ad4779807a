//! Metrics of HTTP listeners, in all parts.

use keyward_telemetry::metrics::{MetricRegistry, MetricSet};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Metrics of HTTP listeners.
#[derive(Debug, Clone)]
pub struct HttpMetrics {
    /// Requests answered by a listener, refused ones included, by HTTP status. The gateway is the listener `gateway`.
    pub requests: Family<ResponseLabels, Counter>,
    /// Requests and connections that a listener's guard refused.
    pub refused: Family<RefusalLabels, Counter>,
    /// Connections open at a listener. The ACL server is the listener `acl`.
    pub connections: Family<ListenerLabel, Gauge>,
}

impl MetricSet for HttpMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            requests: registry.add("local_requests", "Requests answered, by status"),
            refused: registry.add("local_refused", "Requests that the guard refused"),
            connections: registry.add("local_connections", "Connections open at a listener"),
        }
    }
}

/// Label of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ListenerLabel {
    /// Name from the configuration.
    pub listener: String,
}

/// Labels of a response.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResponseLabels {
    /// Name of the listener.
    pub listener: String,
    /// The HTTP status.
    pub code: u16,
}

/// Labels of a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// Name of the listener.
    pub listener: String,
    /// Reason from a fixed set, such as `host`.
    pub reason: &'static str,
}
