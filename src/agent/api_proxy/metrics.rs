//! Metrics of API proxies.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_http::server::ListenerLabel;
use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of API proxies.
    pub struct ProxyMetrics {
        /// Requests that an API proxy retried with a newer token.
        pub(crate) replays: Family<ListenerLabel, Counter> = "keyward_proxy_replays";
        /// Responses that an API proxy withheld because they repeat the session's token.
        pub(crate) leaks: Family<ListenerLabel, Counter> = "keyward_proxy_token_leaks";
    }
}

metric_set! {
    /// Metrics of caches.
    pub struct CacheMetrics {
        /// Cacheable requests of an API proxy. `outcome` is `hit`, `miss` or `stale`.
        pub(crate) requests: Family<CacheRequestLabels, Counter> = "keyward_cache_requests";
        /// Size of an API proxy's cache in bytes.
        pub(crate) bytes: Family<ListenerLabel, Gauge> = "keyward_cache_bytes";
    }
}

/// Labels of a cacheable request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CacheRequestLabels {
    /// Name of the listener.
    pub listener: String,
    /// `hit`, `miss` or `stale`.
    pub outcome: &'static str,
}
