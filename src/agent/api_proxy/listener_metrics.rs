//! One listener: who may come in, and what is counted of those who do.

use std::net::SocketAddr;

use http::Response;
use prometheus_client::metrics::counter::Counter;

use super::answer::ProxyBody;
use crate::http::guard::Guard;
use crate::http::server::{ListenerMetrics, ResponseCounter};
use crate::metrics::{CacheRequestLabels, LatencyHistogram, ListenerLabel};

/// One listener's guard and counts, each looked up once.
pub(super) struct ProxyListener {
    pub(super) guard: Guard,
    /// The listener's address, over TCP.
    pub(super) local: Option<SocketAddr>,
    pub(super) answers: ResponseCounter,
    /// Time to the head of the server's answer.
    pub(super) spent: LatencyHistogram,
    pub(super) replays: Counter,
    pub(super) hits: Counter,
    pub(super) misses: Counter,
    pub(super) stale: Counter,
}

impl ProxyListener {
    pub(super) fn new(guard: Guard, local: Option<SocketAddr>, listener_metrics: ListenerMetrics) -> Self {
        let label = ListenerLabel { listener: listener_metrics.listener.clone() };
        let spent = listener_metrics.metrics.proxy_seconds.get_or_create(&label).clone();
        let replays = listener_metrics.metrics.proxy_replays.get_or_create(&label).clone();
        let cached = |outcome| {
            let label = CacheRequestLabels { listener: listener_metrics.listener.clone(), outcome };
            listener_metrics.metrics.cache_requests.get_or_create(&label).clone()
        };
        let (hits, misses, stale) = (cached("hit"), cached("miss"), cached("stale"));
        Self { guard, local, answers: ResponseCounter::new(listener_metrics), spent, replays, hits, misses, stale }
    }

    /// Counts an answer.
    pub(super) fn counted(&self, answer: Response<ProxyBody>) -> Response<ProxyBody> {
        self.answers.count(answer.status());
        answer
    }
}
