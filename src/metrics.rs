//! Defines all metrics of the process in one place, so that names stay consistent. Labels never hold a secret or a
//! path.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

/// Metrics of the process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

/// The metric families; [`Metrics`] dereferences to them.
#[derive(Debug)]
pub struct Inner {
    registry: Registry,
    /// Logins tried. `outcome` is `ok` or `failed`; `reason` of a failure is `refused`, `unavailable`, `clock`, `bug` or
    /// `no_proof`.
    pub logins: Family<AttemptLabels, Counter>,
    /// Renewals tried. `reason` of a failure is `refused`, `dead` or `unavailable`.
    pub renewals: Family<AttemptLabels, Counter>,
    /// Look-ups of the token. `reason` of a failure is `refused`, `dead` or `unavailable`.
    pub checks: Family<AttemptLabels, Counter>,
    /// Reads of secrets and renewals of their leases. `call` is `read` or `renew`.
    pub secret_calls: Family<SecretCallLabels, Counter>,
    /// Expiry of the session's token, in seconds since 1970; 0 without a token, 253402300799 for one that never expires.
    pub token_expiry: Family<SessionLabels, Gauge<i64, AtomicI64>>,
    /// Consecutive failures of a session's calls to its server.
    pub session_failures: Family<SessionLabels, Gauge<i64, AtomicI64>>,
    /// State of a sink: 0 holds the newest token, 1 is waiting for one, 2 is failing.
    pub sink_state: Family<SinkLabels, Gauge<i64, AtomicI64>>,
    /// Time of the last write of a sink, in seconds since 1970.
    pub sink_written: Family<SinkLabels, Gauge<i64, AtomicI64>>,
    /// Writes of a sink that failed.
    pub sink_failures: Family<SinkLabels, Counter>,
    /// Outputs (`sink/NAME`, `template/NAME`) that others deleted or changed. `outcome` is `restored` or `left`.
    pub output_changes: Family<OutputChangeLabels, Counter>,
    /// State of a template: 0 rendered, 1 is waiting for its secrets, 2 is failing.
    pub template_state: Family<TemplateLabels, Gauge<i64, AtomicI64>>,
    /// Time of the last change of a template's file, in seconds since 1970.
    pub template_written: Family<TemplateLabels, Gauge<i64, AtomicI64>>,
    /// Renderings of a template. `outcome` is `ok` or `failed`.
    pub template_renders: Family<TemplateRunLabels, Counter>,
    /// Runs of a template's command. `outcome` is `ok` or `failed`.
    pub template_commands: Family<TemplateRunLabels, Counter>,
    /// Starts of the child process. `reason` is `first`, `changed` (a variable) or `ended` (by itself).
    pub process_starts: Family<ProcessStartLabels, Counter>,
    /// 1 while the child process runs.
    pub process_running: Gauge<i64, AtomicI64>,
    /// Requests answered by a listener, refused ones included, by HTTP status. The gateway is the listener `gateway`.
    pub local_requests: Family<ResponseLabels, Counter>,
    /// Requests and connections that a listener's guard refused.
    pub local_refused: Family<RefusalLabels, Counter>,
    /// Connections open at a listener. The ACL server is the listener `acl`.
    pub local_connections: Family<ListenerLabel, Gauge<i64, AtomicI64>>,
    /// Requests answered by the ACL server, by operation, such as `token.read`, and HTTP status.
    pub acl_requests: Family<AclRequestLabels, Counter>,
    /// Expired tokens that were deleted.
    pub acl_tokens_swept: Counter<u64, AtomicU64>,
    /// Unreadable records of the ACL store, each counted once.
    pub acl_unreadable: Counter<u64, AtomicU64>,
    /// Time from forwarding a request to the head of the server's response, in seconds.
    pub proxy_seconds: Family<ListenerLabel, LatencyHistogram, fn() -> LatencyHistogram>,
    /// Requests that an API proxy retried with a newer token.
    pub proxy_replays: Family<ListenerLabel, Counter>,
    /// Responses that an API proxy withheld because they repeat the session's token.
    pub proxy_leaks: Family<ListenerLabel, Counter>,
    /// Cacheable requests of an API proxy. `outcome` is `hit`, `miss` or `stale`.
    pub cache_requests: Family<CacheRequestLabels, Counter>,
    /// Size of an API proxy's cache in bytes.
    pub cache_bytes: Family<ListenerLabel, Gauge>,
    /// Calls that the gateway retried because the upstream had rejected its platform token.
    pub gateway_replays: Counter<u64, AtomicU64>,
    /// 1 while the upstream rejects the platform token.
    pub gateway_token_refused: Gauge<i64, AtomicI64>,
    /// 1 while the gateway has no platform token.
    pub gateway_token_missing: Gauge<i64, AtomicI64>,
    /// Calls that an API deprecation or removal affects, by the id of the change. `what` is `deprecated`, `warned` or
    /// `refused`.
    pub gateway_deprecated_calls: Family<DeprecatedCallLabels, Counter>,
    /// Expiry of the first certificate to expire in a file, in seconds since 1970, by the configuration key of the file.
    pub certificate_expiry: Family<CertificateLabels, Gauge<i64, AtomicI64>>,
    /// 1 while a certificate file is invalid and connections use the previous one, by configuration key.
    pub certificate_rejected: Family<CertificateLabels, Gauge<i64, AtomicI64>>,
    /// Number of times that the wall clock was set or the machine resumed from a suspend.
    pub clock_jumps: Counter<u64, AtomicU64>,
    /// Configuration reloads. `outcome` is `ok` or `failed`.
    pub reloads: Family<OutcomeLabels, Counter>,
}

impl std::ops::Deref for Metrics {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("keyward");
        registry.register("build", "Version of the program", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
        let proxy_seconds = Family::new_with_constructor(seconds as fn() -> LatencyHistogram);
        registry.register(
            "proxy_upstream_seconds",
            "Time to the head of the server's answer",
            Family::clone(&proxy_seconds),
        );
        let all = &mut registry;
        Self(Arc::new(Inner {
            logins: add(all, "logins", "Logins tried"),
            renewals: add(all, "renewals", "Renewals tried"),
            checks: add(all, "checks", "Light checks of a token"),
            secret_calls: add(all, "secret_calls", "Reads of secrets and renewals of their leases"),
            token_expiry: add(
                all,
                "token_expiry_timestamp_seconds",
                "When the session's token ends; 0 while there is none",
            ),
            session_failures: add(all, "session_failures", "Upstream failures in a row"),
            sink_state: add(all, "sink_state", "0 newest token, 1 waiting, 2 failing"),
            sink_written: add(all, "sink_written_timestamp_seconds", "When a sink was last written"),
            sink_failures: add(all, "sink_failures", "Writes of a sink that failed"),
            output_changes: add(all, "output_changes", "Outputs that somebody else had deleted or changed"),
            template_state: add(all, "template_state", "0 rendered, 1 waiting, 2 failing"),
            template_written: add(all, "template_written_timestamp_seconds", "When a template's file was last changed"),
            template_renders: add(all, "template_renders", "Renderings of a template"),
            template_commands: add(all, "template_commands", "Runs of a template's command"),
            process_starts: add(all, "process_starts", "Starts of the child process"),
            process_running: add(all, "process_running", "1 while the child process runs"),
            local_requests: add(all, "local_requests", "Requests answered, by status"),
            local_refused: add(all, "local_refused", "Requests that the guard refused"),
            local_connections: add(all, "local_connections", "Connections open at a listener"),
            acl_requests: add(all, "acl_requests", "Requests answered by the ACL server"),
            acl_tokens_swept: add(all, "acl_tokens_swept", "Tokens destroyed after their end"),
            acl_unreadable: add(all, "acl_unreadable_records", "Records that cannot be read, each counted once"),
            proxy_seconds,
            proxy_replays: add(all, "proxy_replays", "Requests sent once more with a newer token"),
            proxy_leaks: add(all, "proxy_token_leaks", "Answers that repeat the session's token, not passed on"),
            cache_requests: add(all, "cache_requests", "Requests for what a cache keeps"),
            cache_bytes: add(all, "cache_bytes", "Bytes that a cache keeps"),
            gateway_replays: add(all, "gateway_replays", "Calls made once more with a newer platform token"),
            gateway_token_refused: add(all, "gateway_token_refused", "1 while the platform refuses the platform token"),
            gateway_token_missing: add(all, "gateway_token_missing", "1 while there is no platform token"),
            gateway_deprecated_calls: add(
                all,
                "gateway_deprecated_calls",
                "Calls that a change of the platform's API is about",
            ),
            certificate_expiry: add(
                all,
                "certificate_expiry_timestamp_seconds",
                "When the first certificate of a file ends",
            ),
            certificate_rejected: add(all, "certificate_rejected", "1 while a certificate file cannot be used"),
            clock_jumps: add(all, "clock_jumps", "Jumps of the wall clock"),
            reloads: add(all, "config_reloads", "Configuration reloads"),
            registry,
        }))
    }
}

/// Histogram of latencies in seconds.
pub type LatencyHistogram = Histogram;

/// Creates a histogram with buckets from an idle server on the same machine up to the longest wait of callers.
fn seconds() -> LatencyHistogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0])
}

/// Creates a metric and registers it.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// Formats all metrics in the OpenMetrics text format, which Prometheus reads; empty if a value cannot be
    /// formatted.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.0.registry) {
            Ok(()) => text,
            Err(std::fmt::Error) => String::new(),
        }
    }
}

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels of an upstream attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AttemptLabels {
    /// Name of the session.
    pub session: String,
    /// `ok` or `failed`.
    pub outcome: &'static str,
    /// Reason from a fixed set, such as `refused`; empty on success.
    pub reason: &'static str,
}

/// Labels of a call for a secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SecretCallLabels {
    /// The secret's name in the configuration.
    pub secret: String,
    /// `read` or `renew`.
    pub call: &'static str,
    /// `ok` or `failed`.
    pub outcome: &'static str,
}

/// Label of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SessionLabels {
    /// Name from the configuration.
    pub session: String,
}

/// Label of a sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SinkLabels {
    /// Name from the configuration.
    pub sink: String,
}

/// Label of a certificate file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CertificateLabels {
    /// The configuration key that names it, such as `server.main.ca_file`.
    pub certificate: String,
}

/// Label of a template.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TemplateLabels {
    /// Name from the configuration.
    pub template: String,
}

/// Labels of a template's rendering or command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TemplateRunLabels {
    /// Name from the configuration.
    pub template: String,
    /// `ok` or `failed`.
    pub outcome: &'static str,
}

/// Labels of an output that others deleted or changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutputChangeLabels {
    /// Such as `sink/NAME` or `template/NAME`.
    pub output: String,
    /// `restored` or `left`.
    pub outcome: &'static str,
}

/// Why the child was started.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ProcessStartLabels {
    /// `first`, `changed` or `ended`.
    pub reason: &'static str,
}

/// Label of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ListenerLabel {
    /// Name from the configuration.
    pub listener: String,
}

/// Labels of a cacheable request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CacheRequestLabels {
    /// Name of the listener.
    pub listener: String,
    /// `hit`, `miss` or `stale`.
    pub outcome: &'static str,
}

/// Labels of a response.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResponseLabels {
    /// Name of the listener.
    pub listener: String,
    /// The HTTP status.
    pub code: u16,
}

/// Labels of a response of the ACL server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AclRequestLabels {
    /// Operation, such as `token.read`.
    pub operation: &'static str,
    /// The HTTP status.
    pub code: u16,
}

/// Labels of a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// Name of the listener.
    pub listener: String,
    /// Reason from a fixed set, such as `host`.
    pub reason: &'static str,
}

/// Labels of a call that an API deprecation or removal affects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DeprecatedCallLabels {
    /// Id of the change, such as `2021-06-08/d1`.
    pub change: String,
    /// Client by its `User-Agent`, from a bounded set.
    pub client: String,
    /// `deprecated`, `warned` or `refused`.
    pub what: &'static str,
}

/// Label of an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// `ok` or `failed`.
    pub outcome: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_holds_the_names_and_labels() {
        let metrics = Metrics::default();
        metrics.reloads.get_or_create(&OutcomeLabels { outcome: "ok" }).inc();
        let text = metrics.text();
        assert!(text.contains("keyward_config_reloads_total{outcome=\"ok\"} 1"), "{text}");
        assert!(text.contains("keyward_clock_jumps_total 0"), "{text}");
    }
}
