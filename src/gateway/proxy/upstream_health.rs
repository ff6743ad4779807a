//! Reachability of the platform.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Reachability of the upstream at the last call.
#[derive(Debug, Default)]
pub(super) struct UpstreamHealth {
    failing: AtomicBool,
    /// Notified when calls begin to fail.
    failure_started: Notify,
}

impl UpstreamHealth {
    /// Records a response. Returns true if the call before had failed.
    pub(super) fn record_success(&self) -> bool {
        self.failing.swap(false, Ordering::Relaxed)
    }

    /// Records a failure. Returns true if the call before had succeeded.
    pub(super) fn record_failure(&self) -> bool {
        let first = !self.failing.swap(true, Ordering::Relaxed);
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
        self.failing.load(Ordering::Relaxed)
    }
}
