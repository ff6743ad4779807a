//! Metrics of caller tokens.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of caller tokens; only callers with `derived_token` and `scope = "process"` have values.
    pub struct CallerTokenMetrics {
        /// Processes of a caller that have a token, or whose token is being created or revoked.
        pub(super) live: Family<CallerTokenLabels, Gauge> = "keyward_caller_process_tokens";
        /// Tokens whose process has ended, by the outcome of their revocation: `revoked`, `gone` or `failed`; `failed` too if the task of a
        /// token panicked.
        pub(super) ended: Family<RevocationLabels, Counter> = "keyward_caller_process_tokens_ended";
    }
}

/// Label of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallerTokenLabels {
    /// Name of the caller.
    pub(super) caller: String,
}

/// Labels of a revocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RevocationLabels {
    /// Name of the caller.
    pub(super) caller: String,
    /// Outcome.
    pub(super) outcome: &'static str,
}
