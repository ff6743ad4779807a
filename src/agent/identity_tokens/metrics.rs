//! Metrics of identities for tools.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of identities for tools.
    pub struct IdentityTokenMetrics {
        /// Requests of tokens for tools to the machine's identity, each with its retries. `outcome` is `ok` or `failed`.
        pub(crate) calls: Family<IdentityCallLabels, Counter> = "keyward_identity_calls";
    }
}

/// Labels of a call for a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct IdentityCallLabels {
    /// Name of the identity.
    pub identity: String,
    /// `ok` or `failed`.
    pub outcome: &'static str,
}
