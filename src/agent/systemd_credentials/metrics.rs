//! Metrics of listeners for systemd.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of listeners for systemd.
    pub struct SystemdCredentialMetrics {
        /// Requests for credentials. `outcome` is `granted`; nothing written: `peer` (not root), `name` (not systemd's),
        /// `not_granted`, `busy`, `not_ready` or `unaudited`; or `failed` (the peer went away).
        pub(super) requests: Family<CredentialOutcomeLabels, Counter> = "keyward_systemd_credentials";
    }
}

/// Labels of a request for a credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CredentialOutcomeLabels {
    /// Name of the listener.
    pub(super) listener: String,
    /// Outcome from a fixed set.
    pub(super) outcome: &'static str,
}
