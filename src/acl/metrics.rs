//! Metrics of the ACL server.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of the ACL server.
    pub struct AclMetrics {
        /// Requests answered by the ACL server, by operation, such as `token.read`, and HTTP status.
        pub(crate) requests: Family<AclRequestLabels, Counter> = "keyward_acl_requests";
        /// Blocking queries that wait for a change.
        pub(crate) blocking_queries: Gauge = "keyward_acl_blocking_queries";
        /// Expired tokens that were deleted.
        pub(crate) tokens_swept: Counter = "keyward_acl_tokens_swept";
        /// Unreadable records of the ACL store, each counted once.
        pub(crate) unreadable: Counter = "keyward_acl_unreadable_records";
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
