//! Metrics of the process as a whole, and the list of all.

use std::time::SystemTime;

#[cfg(feature = "acl")]
use keyward_acl::AclMetrics;
use keyward_agent::api_proxy::{CacheMetrics, ProxyMetrics};
use keyward_agent::caller_tokens::CallerTokenMetrics;
use keyward_agent::callers::CallerMetrics;
use keyward_agent::certificates::IssuedCertificateMetrics;
use keyward_agent::identity_api::IdentityApiMetrics;
use keyward_agent::identity_tokens::IdentityTokenMetrics;
use keyward_agent::local_api::ReadyMetrics;
use keyward_agent::output_watch::OutputMetrics;
use keyward_agent::process::ProcessMetrics;
use keyward_agent::secrets::SecretMetrics;
use keyward_agent::sinks::SinkMetrics;
use keyward_agent::systemd_credentials::SystemdCredentialMetrics;
use keyward_agent::templates::TemplateMetrics;
use keyward_agent::token_lifecycle::{AttemptMetrics, ClockMetrics, SessionMetrics};
#[cfg(feature = "gateway")]
use keyward_gateway::GatewayMetrics;
use keyward_http::reverse_proxy::UpstreamMetrics;
use keyward_http::server::HttpMetrics;
use keyward_telemetry::audit::AuditMetrics;
use keyward_telemetry::metrics::{Metrics, metric_set};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::protected_memory::ProtectedMemoryMetrics;
use super::sandbox::SandboxMetrics;
use super::spawner::SpawnerMetrics;

/// Registers the metrics of all parts, in the order in which they are served. The process started at `started_at`.
pub(super) fn register_all(metrics: &Metrics, started_at: SystemTime) {
    let seconds = started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    // Set once, not by the clock of each reading: a change stands for a restart.
    metrics.get::<StartMetrics>().start_time.set(i64::try_from(seconds).unwrap_or(i64::MAX));
    metrics.register::<ReadyMetrics>();
    metrics.register::<UpstreamMetrics>();
    metrics.register::<AttemptMetrics>();
    metrics.register::<SecretMetrics>();
    metrics.register::<SessionMetrics>();
    metrics.register::<SinkMetrics>();
    metrics.register::<OutputMetrics>();
    metrics.register::<TemplateMetrics>();
    metrics.register::<IssuedCertificateMetrics>();
    metrics.register::<ProcessMetrics>();
    metrics.register::<HttpMetrics>();
    metrics.register::<CallerMetrics>();
    metrics.register::<CallerTokenMetrics>();
    metrics.register::<IdentityTokenMetrics>();
    metrics.register::<IdentityApiMetrics>();
    metrics.register::<SystemdCredentialMetrics>();
    #[cfg(feature = "acl")]
    metrics.register::<AclMetrics>();
    metrics.register::<ProxyMetrics>();
    metrics.register::<CacheMetrics>();
    #[cfg(feature = "gateway")]
    metrics.register::<GatewayMetrics>();
    metrics.register::<AuditMetrics>();
    metrics.register::<CertificateMetrics>();
    metrics.register::<ClockMetrics>();
    for outcome in ["ok", "failed"] {
        // A counter that appears with its first event has no increase that an alert could see.
        drop(metrics.get::<ReloadMetrics>().reloads.get_or_create(&OutcomeLabels { outcome }));
    }
    metrics.register::<ProtectedMemoryMetrics>();
    metrics.register::<SandboxMetrics>();
    metrics.register::<SpawnerMetrics>();
}

metric_set! {
    /// Metrics of the start.
    pub(super) struct StartMetrics {
        /// Start of the process, in seconds since 1970.
        pub(super) start_time: Gauge = "process_start_time_seconds";
    }
}

metric_set! {
    /// Metrics of certificate files.
    pub(super) struct CertificateMetrics {
        /// Expiry of the first certificate to expire in a file, in seconds since 1970, by the configuration key of the file.
        pub(super) expiry: Family<CertificateLabels, Gauge> = "keyward_certificate_expiry_timestamp_seconds";
        /// 1 while a certificate file is invalid and connections use the previous one, by configuration key.
        pub(super) rejected: Family<CertificateLabels, Gauge> = "keyward_certificate_rejected";
    }
}

metric_set! {
    /// Metrics of the configuration.
    pub(super) struct ReloadMetrics {
        /// Configuration reloads. `outcome` is `ok` or `failed`.
        pub(super) reloads: Family<OutcomeLabels, Counter> = "keyward_config_reloads";
    }
}

/// Label of a certificate file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CertificateLabels {
    /// The configuration key that names it, such as `server.main.ca_file`.
    pub(super) certificate: String,
}

/// Label of an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    /// `ok` or `failed`.
    pub(super) outcome: &'static str,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_start_is_served_by_its_common_name() {
        let metrics = Metrics::default();
        register_all(&metrics, SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_900));
        let text = metrics.text();
        assert!(text.lines().any(|line| line == "process_start_time_seconds 1700000000"), "{text}");
    }

    #[test]
    fn an_alert_sees_the_first_reload_that_fails_as_its_counter_is_there_before() {
        let metrics = Metrics::default();
        register_all(&metrics, SystemTime::UNIX_EPOCH);
        let text = metrics.text();
        for outcome in ["ok", "failed"] {
            let line = format!("keyward_config_reloads_total{{outcome=\"{outcome}\"}} 0");
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }
}
