//! Metrics of the injector.

use keyward_telemetry::metrics::{LatencyHistogram, latency_histogram, metric_set};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

metric_set! {
    /// Metrics of the injector.
    pub struct InjectorMetrics {
        /// Reviews that the injector answered. `outcome` is `injected`, `unchanged` (nothing to add), `refused`, or `invalid` (not a
        /// review of a pod).
        pub(crate) reviews: Family<ReviewLabels, Counter> = "keyward_injector_reviews";
        /// Time to the answer of a review, in seconds.
        pub(crate) review_seconds: LatencyHistogram = "keyward_injector_review_seconds", latency_histogram();
        /// Expiry of the certificate that the injector serves, in seconds since 1970; 0 without one.
        pub(crate) certificate_expiry: Gauge = "keyward_injector_certificate_expiry_timestamp_seconds";
        /// Calls of the Kubernetes API by the injector. `outcome` is `ok`, `conflict` (another replica was first) or `failed`.
        pub(crate) api_calls: Family<ApiCallLabels, Counter> = "keyward_injector_api_calls";
    }
}

/// Labels of a review.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReviewLabels {
    /// `injected`, `unchanged`, `refused` or `invalid`.
    pub outcome: &'static str,
}

/// Labels of a call of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ApiCallLabels {
    /// `ok`, `conflict` or `failed`.
    pub outcome: &'static str,
}
