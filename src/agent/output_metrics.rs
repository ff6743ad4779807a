//! Metrics of outputs that others delete or change.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use keyward_telemetry::metrics::{MetricRegistry, MetricSet};

/// Metrics of outputs that others delete or change.
#[derive(Debug, Clone)]
pub struct OutputMetrics {
    /// Outputs (`sink/NAME`, `template/NAME`) that others deleted or changed. `outcome` is `restored` or `left`.
    pub(crate) changes: Family<OutputChangeLabels, Counter>,
}

impl MetricSet for OutputMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self { changes: registry.add("output_changes", "Outputs that another process deleted or changed") }
    }
}

/// Labels of an output that others deleted or changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OutputChangeLabels {
    /// Such as `sink/NAME` or `template/NAME`.
    pub output: String,
    /// `restored` or `left`.
    pub outcome: &'static str,
}
