//! Counts responses of one listener by status.

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;

use super::ListenerMetrics;
use crate::metrics::ResponseLabels;

/// Counts responses. The counter of status 200 is looked up once, since most responses have it.
#[derive(Debug)]
pub struct ResponseCounter {
    listener_metrics: ListenerMetrics,
    good: Counter,
}

impl ResponseCounter {
    /// Creates a counter for a listener.
    pub fn new(listener_metrics: ListenerMetrics) -> Self {
        let label = ResponseLabels { listener: listener_metrics.listener.clone(), code: StatusCode::OK.as_u16() };
        let good = listener_metrics.metrics.local_requests.get_or_create(&label).clone();
        Self { listener_metrics, good }
    }

    /// Counts a response.
    pub fn count(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.good.inc();
        } else {
            let label = ResponseLabels { listener: self.listener_metrics.listener.clone(), code: status.as_u16() };
            self.listener_metrics.metrics.local_requests.get_or_create(&label).inc();
        }
    }

    /// Returns the listener's name.
    pub fn listener(&self) -> &str {
        &self.listener_metrics.listener
    }
}
