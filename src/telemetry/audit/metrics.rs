//! Metrics of audit devices.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::metric_set;

metric_set! {
    /// Metrics of audit devices.
    pub struct AuditMetrics {
        /// Records of requests. `outcome` is `kept` or `lost`.
        pub(super) records: Family<AuditOutcomeLabels, Counter> = "keyward_audit_records";
        /// 1 while a device cannot keep records.
        pub(super) failing: Family<AuditLabels, Gauge> = "keyward_audit_failing";
    }
}

/// Label of a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AuditLabels {
    /// Name of the device.
    pub(super) audit: String,
}

/// Labels of a device's records.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AuditOutcomeLabels {
    /// Name of the device.
    pub(super) audit: String,
    /// `kept` or `lost`.
    pub(super) outcome: &'static str,
}
