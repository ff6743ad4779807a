//! Metrics of sessions.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::{MetricRegistry, MetricSet};

/// Metrics of attempts to get, renew or look up a token.
#[derive(Debug, Clone)]
pub struct AttemptMetrics {
    /// Logins tried. `outcome` is `ok` or `failed`; `reason` of a failure is `refused`, `unavailable`, `clock`, `bug` or
    /// `no_proof`.
    pub(crate) logins: Family<AttemptLabels, Counter>,
    /// Renewals tried. `reason` of a failure is `refused`, `dead` or `unavailable`.
    pub(crate) renewals: Family<AttemptLabels, Counter>,
    /// Look-ups of the token. `reason` of a failure is `refused`, `dead` or `unavailable`.
    pub(crate) checks: Family<AttemptLabels, Counter>,
}

impl MetricSet for AttemptMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            logins: registry.add("logins", "Logins tried"),
            renewals: registry.add("renewals", "Renewals tried"),
            checks: registry.add("checks", "Token look-ups"),
        }
    }
}

/// Metrics of the state of sessions.
#[derive(Debug, Clone)]
pub struct SessionMetrics {
    /// State of a session: 0 has a token, 1 has one whose renewal or replacement fails, 2 has none that the server accepts.
    pub(crate) state: Family<SessionLabels, Gauge>,
    /// Time of a session's next step, in seconds since 1970; 0 for `wait`. `step` is `renew`, `login` or `wait`.
    pub(crate) next_step: Family<SessionStepLabels, Gauge>,
    /// Start of the lease of the session's token, in seconds since 1970; 0 without a token.
    pub(crate) token_obtained: Family<SessionLabels, Gauge>,
    /// Expiry of the session's token, in seconds since 1970; 0 without a token, 253402300799 for one that never expires.
    pub(crate) token_expiry: Family<SessionLabels, Gauge>,
    /// Time of issue of the identity token that a session last logged in with, in seconds since 1970.
    pub(crate) identity_issued: Family<SessionLabels, Gauge>,
    /// Expiry of the identity token that a session last logged in with, in seconds since 1970.
    pub(crate) identity_expiry: Family<SessionLabels, Gauge>,
    /// Consecutive failures of a session's calls to its server.
    pub(crate) failures: Family<SessionLabels, Gauge>,
}

impl MetricSet for SessionMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            state: registry.add("session_state", "0 has a token, 1 is about to lose it, 2 has none"),
            next_step: registry.add("session_next_step_timestamp_seconds", "Time of the next step of a session"),
            token_obtained: registry.add("token_obtained_timestamp_seconds", "When the lease of the token began"),
            token_expiry: registry
                .add("token_expiry_timestamp_seconds", "When the session's token ends; 0 while there is none"),
            identity_issued: registry
                .add("identity_token_issued_timestamp_seconds", "When the last identity token was issued"),
            identity_expiry: registry
                .add("identity_token_expiry_timestamp_seconds", "When the last identity token ends"),
            failures: registry.add("session_failures", "Upstream failures in a row"),
        }
    }
}

/// Metrics of the clocks.
#[derive(Debug, Clone)]
pub struct ClockMetrics {
    /// Number of times that the wall clock was set or the machine resumed from a suspend.
    pub(crate) jumps: Counter,
}

impl MetricSet for ClockMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self { jumps: registry.add("clock_jumps", "Changes of the wall clock and resumes from suspend") }
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
