//! Metrics of HTTP listeners, in all parts, and the counter of one listener's responses.

use http::StatusCode;
use keyward_telemetry::metrics::metric_set;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::ListenerMetrics;

metric_set! {
    /// Metrics of HTTP listeners.
    pub struct HttpMetrics {
        /// Requests answered by a listener, refused ones included, by HTTP status. The gateway is the listener `gateway`.
        pub requests: Family<ResponseLabels, Counter> = "keyward_local_requests";
        /// Requests and connections that a listener refused before any handler saw them.
        pub refused: Family<RefusalLabels, Counter> = "keyward_local_refused";
        /// Connections open at a listener. The ACL server is the listener `acl`.
        pub connections: Family<ListenerLabel, Gauge> = "keyward_local_connections";
    }
}

/// Label of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ListenerLabel {
    /// Name from the configuration.
    pub listener: String,
}

/// Labels of a response.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResponseLabels {
    /// Name of the listener.
    pub listener: String,
    /// The HTTP status.
    pub code: u16,
}

/// Labels of a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    /// Name of the listener.
    pub listener: String,
    /// Reason from a fixed set, such as `host`.
    pub reason: &'static str,
}

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
