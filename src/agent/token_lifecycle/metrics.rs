//! Metrics of sessions.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of attempts to get, renew or look up a token.
    pub struct AttemptMetrics {
        /// Logins tried. `outcome` is `ok` or `failed`; `reason` of a failure is `refused`, `unavailable`, `clock`, `bug` or
        /// `no_proof`.
        pub(crate) logins: Family<AttemptLabels, Counter> = "keyward_logins";
        /// Renewals tried. `reason` of a failure is `refused`, `dead` or `unavailable`.
        pub(crate) renewals: Family<AttemptLabels, Counter> = "keyward_renewals";
        /// Look-ups of the token. `reason` of a failure is `refused`, `dead` or `unavailable`.
        pub(crate) checks: Family<AttemptLabels, Counter> = "keyward_checks";
    }
}

metric_set! {
    /// Metrics of the state of sessions.
    pub struct SessionMetrics {
        /// State of a session: 0 has a token, 1 has one whose renewal or replacement fails, 2 has none that the server accepts.
        pub(crate) state: Family<SessionLabels, Gauge> = "keyward_session_state";
        /// Time of a session's next step, in seconds since 1970; 0 for `wait`. `step` is `renew`, `login` or `wait`.
        pub(crate) next_step: Family<SessionStepLabels, Gauge> = "keyward_session_next_step_timestamp_seconds";
        /// Start of the lease of the session's token, in seconds since 1970; 0 without a token.
        pub(crate) token_obtained: Family<SessionLabels, Gauge> = "keyward_token_obtained_timestamp_seconds";
        /// Expiry of the session's token, in seconds since 1970; 0 without a token, 253402300799 for one that never expires.
        pub(crate) token_expiry: Family<SessionLabels, Gauge> = "keyward_token_expiry_timestamp_seconds";
        /// Time of issue of the identity token that a session last logged in with, in seconds since 1970.
        pub(crate) identity_issued: Family<SessionLabels, Gauge> = "keyward_identity_token_issued_timestamp_seconds";
        /// Expiry of the identity token that a session last logged in with, in seconds since 1970.
        pub(crate) identity_expiry: Family<SessionLabels, Gauge> = "keyward_identity_token_expiry_timestamp_seconds";
        /// Consecutive failures of a session's calls to its server.
        pub(crate) failures: Family<SessionLabels, Gauge> = "keyward_session_failures";
    }
}

metric_set! {
    /// Metrics of the clocks.
    pub struct ClockMetrics {
        /// Number of times that the wall clock was set or the machine resumed from a suspend.
        pub(crate) jumps: Counter = "keyward_clock_jumps";
    }
}

/// Labels of an upstream attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AttemptLabels {
    /// Name of the session.
    pub session: String,
    /// `ok` or `failed`.
    pub outcome: &'static str,
    /// Reason from a fixed set, such as `refused`; empty on success.
    pub reason: &'static str,
}

/// Label of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SessionLabels {
    /// Name from the configuration.
    pub session: String,
}

/// Labels of a session's next step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SessionStepLabels {
    /// Name from the configuration.
    pub session: String,
    /// `renew`, `login` or `wait`.
    pub step: &'static str,
}
