//! Metrics of secrets.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of secrets.
    pub struct SecretMetrics {
        /// Reads of secrets and renewals of their leases. `call` is `read` or `renew`.
        pub(crate) calls: Family<SecretCallLabels, Counter> = "keyward_secret_calls";
        /// Polls of the versions of secrets in key-value version 2. `outcome` is `unchanged`, `changed`, `denied` or `failed`.
        pub(crate) version_polls: Family<VersionPollLabels, Counter> = "keyward_secret_version_polls";
        /// 1 while a session follows the events of its server.
        pub(crate) events_connected: Family<EventSessionLabels, Gauge> = "keyward_secret_events_connected";
        /// Events of a session's server. `outcome` is `read` (of a secret that is used), `other` or `invalid`.
        pub(crate) events: Family<EventLabels, Counter> = "keyward_secret_events";
        /// Connections for events. `outcome` is `open`, `ended` (after it was open), `refused` or `failed`.
        pub(crate) event_connections: Family<EventLabels, Counter> = "keyward_secret_event_connections";
    }
}

impl SecretMetrics {
    /// Counts a call for a secret.
    pub(super) fn count_call(&self, secret: &str, call: &'static str, ok: bool) {
        let outcome = if ok { "ok" } else { "failed" };
        let labels = SecretCallLabels { secret: secret.to_owned(), call, outcome };
        self.calls.get_or_create(&labels).inc();
    }
}

/// Labels of a poll of a secret's version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct VersionPollLabels {
    /// `unchanged`, `changed`, `denied` or `failed`.
    pub outcome: &'static str,
}

/// Label of a session's connection for events.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EventSessionLabels {
    /// The session's name.
    pub session: String,
}

/// Labels of an event, or of a connection for events.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EventLabels {
    /// The session's name.
    pub session: String,
    /// One of the metric's words.
    pub outcome: &'static str,
}

/// Labels of a call for a secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SecretCallLabels {
    /// The secret's name in the configuration.
    pub secret: String,
    /// `read` or `renew`.
    pub call: &'static str,
    /// `ok` or `failed`.
    pub outcome: &'static str,
}
