//! Metrics of the endpoints for tools.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of the endpoints for tools.
    pub struct IdentityApiMetrics {
        /// Requests of tools for a token, by the form of the endpoint. `outcome` is `ok`, `not_listed` for a resource that is not
        /// listed, `unavailable`, `denied` for a caller without the right, or `invalid`.
        pub(crate) requests: Family<IdentityRequestLabels, Counter> = "keyward_identity_requests";
    }
}

/// Labels of a request for a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct IdentityRequestLabels {
    /// Name of the identity.
    pub identity: String,
    /// Form of the endpoint, such as `app-service`.
    pub form: &'static str,
    /// `ok`, `not_listed`, `unavailable`, `denied` or `invalid`.
    pub outcome: &'static str,
}
