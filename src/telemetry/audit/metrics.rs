//! Metrics of audit devices.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{MetricRegistry, MetricSet};

/// Metrics of audit devices.
#[derive(Debug, Clone)]
pub struct AuditMetrics {
    /// Records of requests. `outcome` is `kept` or `lost`.
    pub(super) records: Family<AuditOutcomeLabels, Counter>,
    /// 1 while a device cannot keep records.
    pub(super) failing: Family<AuditLabels, Gauge>,
}

impl MetricSet for AuditMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            records: registry.add("audit_records", "Records of requests, kept or lost"),
            failing: registry.add("audit_failing", "1 while an audit device cannot keep records"),
        }
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
