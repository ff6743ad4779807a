//! Metrics of the ACL server.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::{MetricRegistry, MetricSet};

/// Metrics of the ACL server.
#[derive(Debug, Clone)]
pub struct AclMetrics {
    /// Requests answered by the ACL server, by operation, such as `token.read`, and HTTP status.
    pub(crate) requests: Family<AclRequestLabels, Counter>,
    /// Blocking queries that wait for a change.
    pub(crate) blocking_queries: Gauge,
    /// Expired tokens that were deleted.
    pub(crate) tokens_swept: Counter,
    /// Unreadable records of the ACL store, each counted once.
    pub(crate) unreadable: Counter,
}

impl MetricSet for AclMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            requests: registry.add("acl_requests", "Requests answered by the ACL server"),
            blocking_queries: registry.add("acl_blocking_queries", "Blocking queries that wait for a change"),
            tokens_swept: registry.add("acl_tokens_swept", "Expired tokens deleted"),
            unreadable: registry.add("acl_unreadable_records", "Records that cannot be read, each counted once"),
        }
    }
}

/// Labels of a response of the ACL server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AclRequestLabels {
    /// Operation, such as `token.read`.
    pub operation: &'static str,
    /// The HTTP status.
    pub code: u16,
}
