//! Metrics of listeners for systemd.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use keyward_telemetry::metrics::{MetricRegistry, MetricSet};

/// Metrics of listeners for systemd.
#[derive(Debug, Clone)]
pub struct SystemdCredentialMetrics {
    /// Requests for credentials. `outcome` is `granted`; nothing written: `peer` (not root), `name` (not systemd's),
    /// `not_granted`, `busy`, `not_ready` or `unaudited`; or `failed` (the peer went away).
    pub(super) requests: Family<CredentialOutcomeLabels, Counter>,
}

impl MetricSet for SystemdCredentialMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self { requests: registry.add("systemd_credentials", "Requests of systemd for credentials, by outcome") }
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
