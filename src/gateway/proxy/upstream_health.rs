//! Reachability of the platform.

use keyward_machine::clock::Clock;
use keyward_telemetry::outage::SharedOutage;
use tokio::sync::Notify;

/// Reachability of the upstream at the last call.
#[derive(Debug, Default)]
pub(super) struct UpstreamHealth {
    outage: SharedOutage,
    /// Notified when calls begin to fail.
    failure_started: Notify,
}

impl UpstreamHealth {
    /// Records a response. Returns the length of the outage that ends with it, in seconds.
    pub(super) fn record_success(&self, clock: &Clock) -> Option<f64> {
        self.outage.record_success(clock)
    }

    /// Records a failure. Returns true if the call before had succeeded.
    pub(super) fn record_failure(&self, clock: &Clock) -> bool {
        let first = self.outage.record_failure(clock);
        if first {
            self.failure_started.notify_one();
        }
        first
    }

    /// Returns when calls begin to fail.
    pub(super) async fn wait_for_failure(&self) {
        self.failure_started.notified().await;
    }

    pub(super) fn is_failing(&self) -> bool {
        self.outage.is_ongoing()
    }
}
