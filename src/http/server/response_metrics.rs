//! Answers of one listener, counted by status.

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;

use super::ListenerMetrics;
use crate::metrics::ResponseLabels;

/// Counts answers. Most are good: their counter is looked up once.
#[derive(Debug)]
pub struct ResponseCounter {
    listener_metrics: ListenerMetrics,
    good: Counter,
}

impl ResponseCounter {
    /// Of that listener.
    pub fn new(listener_metrics: ListenerMetrics) -> Self {
        let label = ResponseLabels { listener: listener_metrics.listener.clone(), code: StatusCode::OK.as_u16() };
        let good = listener_metrics.metrics.local_requests.get_or_create(&label).clone();
        Self { listener_metrics, good }
    }

    /// Counts one.
    pub fn count(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.good.inc();
        } else {
            let label = ResponseLabels { listener: self.listener_metrics.listener.clone(), code: status.as_u16() };
            self.listener_metrics.metrics.local_requests.get_or_create(&label).inc();
        }
    }

    /// The listener's name.
    pub fn listener(&self) -> &str {
        &self.listener_metrics.listener
    }
}
