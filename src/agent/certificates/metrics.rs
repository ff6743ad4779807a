//! Metrics of issued certificates.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of issued certificates.
    pub struct IssuedCertificateMetrics {
        /// State of an issued certificate: 0 in place, 1 is waiting for the session's token, 2 cannot be requested or written, 3 has ended.
        pub(crate) state: Family<IssuedCertificateLabels, Gauge> = "keyward_issued_certificate_state";
        /// Time at which an issued certificate was requested, in seconds since 1970; its beginning for one that was used again after a restart.
        pub(crate) issued: Family<IssuedCertificateLabels, Gauge> = "keyward_issued_certificate_issued_timestamp_seconds";
        /// Expiry of an issued certificate, in seconds since 1970.
        pub(crate) expiry: Family<IssuedCertificateLabels, Gauge> = "keyward_issued_certificate_expiry_timestamp_seconds";
        /// Time at which an issued certificate is to be replaced, in seconds since 1970; absent where SPIFFE's Workload API decides.
        pub(crate) renewal: Family<IssuedCertificateLabels, Gauge> = "keyward_issued_certificate_renewal_timestamp_seconds";
        /// Requests of a certificate. `outcome` is `ok` or `failed`.
        pub(crate) requests: Family<IssuedCertificateRunLabels, Counter> = "keyward_issued_certificate_requests";
        /// Runs of a certificate's command. `outcome` is `ok` or `failed`.
        pub(crate) commands: Family<IssuedCertificateRunLabels, Counter> = "keyward_issued_certificate_commands";
    }
}

impl IssuedCertificateMetrics {
    /// Creates the counters of a certificate. One that appears with the first failure has no increase that an alert could see.
    pub(super) fn create_counters(&self, certificate: &str, has_command: bool) {
        for is_ok in [true, false] {
            drop(self.requests.get_or_create(&IssuedCertificateRunLabels::new(certificate, is_ok)));
            if has_command {
                drop(self.commands.get_or_create(&IssuedCertificateRunLabels::new(certificate, is_ok)));
            }
        }
    }

    /// Counts a request.
    pub(super) fn count_request(&self, certificate: &str, is_ok: bool) {
        self.requests.get_or_create(&IssuedCertificateRunLabels::new(certificate, is_ok)).inc();
    }

    /// Counts a run of the command.
    pub(super) fn count_command(&self, certificate: &str, is_ok: bool) {
        self.commands.get_or_create(&IssuedCertificateRunLabels::new(certificate, is_ok)).inc();
    }

    /// Removes the gauges of a certificate that is kept no longer.
    pub(super) fn remove_gauges(&self, certificate: &str) {
        let label = IssuedCertificateLabels { certificate: certificate.to_owned() };
        for gauge in [&self.state, &self.issued, &self.expiry, &self.renewal] {
            gauge.remove(&label);
        }
    }
}

/// Label of an issued certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct IssuedCertificateLabels {
    /// Name from the configuration.
    pub certificate: String,
}

/// Labels of a request of a certificate or of its command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct IssuedCertificateRunLabels {
    /// Name from the configuration.
    pub certificate: String,
    /// `ok` or `failed`.
    pub outcome: &'static str,
}

impl IssuedCertificateRunLabels {
    fn new(certificate: &str, is_ok: bool) -> Self {
        Self { certificate: certificate.to_owned(), outcome: if is_ok { "ok" } else { "failed" } }
    }
}
