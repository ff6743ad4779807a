//! State of the subscription in the log, the status and the metrics.

use std::time::Duration;

use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::seconds;

use super::EventSubscription;
use crate::secrets::event::InvalidEvent;
use crate::secrets::metrics::{EventLabels, EventSessionLabels};
use crate::server_client::{CallError, SubscriptionRefusal};

impl EventSubscription {
    /// Shows that the events are followed.
    pub(super) fn record_connection(&mut self) {
        self.connection.open();
        self.show_connected(true);
        self.count_connection("open");
        self.logged = None;
        self.health.set_ready();
        self.health.set_note(Some("follows the server's events".to_owned()));
        let session = &self.session;
        if let Some(lasted_seconds) = self.outage.record_success(self.clock.now()) {
            tracing::info!(
                event = "agent.secret.events.recovered",
                session,
                lasted_seconds,
                "follows the server's events again, and asks for the versions of all secrets once"
            );
        } else {
            tracing::info!(
                event = "agent.secret.events.subscribed",
                session,
                "follows the server's events, and asks for the versions of all secrets once"
            );
        }
    }

    /// Shows that no events are followed.
    pub(super) fn close(&self) {
        self.connection.close();
        self.show_connected(false);
        self.health.set_note(None);
        self.health.set_not_ready(NOT_FOLLOWED);
    }

    /// Records that an open connection has ended; returns the wait before the next one.
    pub(super) fn record_ended(&mut self, error: &CallError) -> Duration {
        let wait = self.wait_after(error);
        tracing::info!(
            event = "agent.secret.events.ended",
            session = self.session,
            code = error.code().map(ErrorCode::as_str),
            error = error.to_string(),
            retry_in_seconds = seconds(wait),
            "the connection for the server's events has ended, and is opened again"
        );
        self.show_failure(error, format!("the connection for the server's events has ended: {error}"), wait);
        wait
    }

    /// Records that no connection was opened; returns the wait before the next try. Each kind of refusal is logged once.
    pub(super) fn record_refusal(&mut self, error: &CallError) -> Duration {
        let wait = self.wait_after(error);
        let refusal = SubscriptionRefusal::from_error(error);
        let remedy = remedy(refusal);
        if self.logged.replace(refusal) != Some(refusal) {
            tracing::warn!(
                event = "agent.secret.events.failed",
                session = self.session,
                code = error.code().map(ErrorCode::as_str),
                error = error.to_string(),
                retry_in_seconds = seconds(wait),
                "cannot follow the server's events, so that changes wait for the poll or the interval; {remedy}"
            );
        }
        self.show_failure(error, format!("cannot follow the server's events: {error}; {remedy}"), wait);
        wait
    }

    fn show_failure(&mut self, error: &CallError, text: String, wait: Duration) {
        let now = self.clock.now();
        self.outage.record_failure(now);
        self.health.set_failed(error.code(), text);
        self.health.set_retry_at(now + wait);
    }

    /// Records a message that is no event, and logs the first one of a connection.
    pub(super) fn record_invalid(&self, error: InvalidEvent, is_logged: bool) {
        self.count_event("invalid");
        if is_logged {
            return;
        }
        tracing::warn!(
            event = "agent.secret.events.invalid",
            session = self.session,
            code = ErrorCode::InvalidResponse.as_str(),
            error = error.to_string(),
            "the server sent a message that is no event, so that changes may wait for the interval; see whether a proxy changes it"
        );
    }

    pub(super) fn count_event(&self, outcome: &'static str) {
        let labels = EventLabels { session: self.session.clone(), outcome };
        self.metrics.events.get_or_create(&labels).inc();
    }

    pub(super) fn count_connection(&self, outcome: &'static str) {
        let labels = EventLabels { session: self.session.clone(), outcome };
        self.metrics.event_connections.get_or_create(&labels).inc();
    }

    pub(super) fn show_connected(&self, is_connected: bool) {
        let labels = EventSessionLabels { session: self.session.clone() };
        self.metrics.events_connected.get_or_create(&labels).set(i64::from(is_connected));
    }
}

/// State without a connection and without an error.
const NOT_FOLLOWED: &str = "waits for the session's token and for templates with secrets";

/// Returns the remedy of a refusal.
const fn remedy(refusal: SubscriptionRefusal) -> &'static str {
    match refusal {
        SubscriptionRefusal::Absent => {
            "the server has no events (Vault Enterprise has them from 1.16): leave out templates.events, and set version_interval"
        }
        SubscriptionRefusal::Denied => {
            "add to the policy: path \"sys/events/subscribe/kv*\" { capabilities = [\"read\"] }, and for each secret \
             path \"MOUNT/data/PATH\" { capabilities = [\"read\", \"list\", \"subscribe\"] subscribe_event_types = [\"kv*\"] }"
        }
        SubscriptionRefusal::Redirected => {
            "set the server's address to that of the active node, or of a load balancer that leads to it"
        }
        SubscriptionRefusal::Outage => "it is tried again with backoff",
    }
}
