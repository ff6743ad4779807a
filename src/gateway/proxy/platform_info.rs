//! The platform, as its responses show it: product, release and reachability.

use std::sync::Arc;

use http::HeaderMap;
use keyward_machine::clock::Clock;
use keyward_telemetry::outage::SharedOutage;
use keyward_telemetry::status_registry::StatusRegistry;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::availability::{Product, ServerInfo};

/// Product and release of the platform, as far as they are known.
#[derive(Debug)]
pub(super) struct PlatformInfo {
    /// The platform's origin.
    pub(super) origin: String,
    status_registry: StatusRegistry,
    server: Mutex<Arc<ServerInfo>>,
}

impl PlatformInfo {
    pub(super) fn new(origin: String, status_registry: StatusRegistry) -> Self {
        Self { origin, status_registry, server: Mutex::default() }
    }

    /// Returns the product and release known now.
    pub(super) fn server(&self) -> Arc<ServerInfo> {
        Arc::clone(&self.server.lock())
    }

    /// Shows in the status what is known now.
    pub(super) fn publish(&self) {
        self.show(&self.server());
    }

    fn show(&self, server: &ServerInfo) {
        let platform = server.to_status(&self.origin);
        self.status_registry.update(|status| status.platform = Some(platform));
    }

    /// Learns product and release from response headers; most responses repeat what is known.
    pub(super) fn learn(&self, headers: &HeaderMap) {
        let mut current = self.server.lock();
        if let Some(learned) = current.updated_by(headers) {
            tracing::info!(
                event = "gateway.platform.detected",
                upstream = self.origin,
                product = learned.product.map(Product::as_str),
                release = learned.release.map(|release| release.to_string()),
                api_version = learned.api_version,
                "detected product and release of the platform"
            );
            self.show(&learned);
            *current = Arc::new(learned);
        }
    }
}

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
