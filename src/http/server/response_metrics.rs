//! Counts responses of one listener by status.

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::ListenerMetrics;
use super::metrics::{HttpMetrics, ResponseLabels};

/// Counts responses. The counter of status 200 is looked up once, since most responses have it.
#[derive(Debug)]
pub struct ResponseCounter {
    listener: String,
    requests: Family<ResponseLabels, Counter>,
    ok_counter: Counter,
}

impl ResponseCounter {
    /// Creates a counter for a listener.
    pub fn new(listener_metrics: ListenerMetrics) -> Self {
        let ListenerMetrics { metrics, listener } = listener_metrics;
        let requests = metrics.get::<HttpMetrics>().requests;
        let label = ResponseLabels { listener: listener.clone(), code: StatusCode::OK.as_u16() };
        let ok_counter = requests.get_or_create(&label).clone();
        Self { listener, requests, ok_counter }
    }

    /// Counts a response.
    pub fn count(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.ok_counter.inc();
        } else {
            let label = ResponseLabels { listener: self.listener.clone(), code: status.as_u16() };
            self.requests.get_or_create(&label).inc();
        }
    }

    /// Returns the listener's name.
    pub fn listener(&self) -> &str {
        &self.listener
    }
}
