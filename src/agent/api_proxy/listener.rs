//! One listener of the API proxy: its guard and its metrics.

use http::Response;
use keyward_http::guard::Guard;
use keyward_http::server::{ListenerLabel, ListenerMetrics, ResponseCounter};
use prometheus_client::metrics::counter::Counter;

use super::metrics::{CacheMetrics, CacheRequestLabels, ProxyMetrics};
use super::response::ProxyBody;

/// State of one listener. Each metric is looked up once.
pub(super) struct ProxyListener {
    pub(super) guard: Guard,
    pub(super) responses: ResponseCounter,
    pub(super) replays: Counter,
    pub(super) hits: Counter,
    pub(super) misses: Counter,
    pub(super) stale: Counter,
}

impl ProxyListener {
    pub(super) fn new(guard: Guard, listener_metrics: ListenerMetrics) -> Self {
        let label = ListenerLabel { listener: listener_metrics.listener.clone() };
        let replays = listener_metrics.metrics.get::<ProxyMetrics>().replays.get_or_create(&label).clone();
        let cache_counter = |outcome| {
            let label = CacheRequestLabels { listener: listener_metrics.listener.clone(), outcome };
            listener_metrics.metrics.get::<CacheMetrics>().requests.get_or_create(&label).clone()
        };
        let hits = cache_counter("hit");
        let misses = cache_counter("miss");
        let stale = cache_counter("stale");
        Self { guard, responses: ResponseCounter::new(listener_metrics), replays, hits, misses, stale }
    }

    /// Counts a response and returns it.
    pub(super) fn count(&self, response: Response<ProxyBody>) -> Response<ProxyBody> {
        self.responses.count(response.status());
        response
    }
}
