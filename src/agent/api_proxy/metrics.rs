//! Metrics of API proxies.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_http::server::ListenerLabel;
use keyward_telemetry::metrics::{MetricRegistry, MetricSet};

/// Metrics of API proxies.
#[derive(Debug, Clone)]
pub struct ProxyMetrics {
    /// Requests that an API proxy retried with a newer token.
    pub(crate) replays: Family<ListenerLabel, Counter>,
    /// Responses that an API proxy withheld because they repeat the session's token.
    pub(crate) leaks: Family<ListenerLabel, Counter>,
}

impl MetricSet for ProxyMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            replays: registry.add("proxy_replays", "Requests sent once more with a newer token"),
            leaks: registry.add("proxy_token_leaks", "Responses withheld because they contain the session's token"),
        }
    }
}

/// Metrics of caches.
#[derive(Debug, Clone)]
pub struct CacheMetrics {
    /// Cacheable requests of an API proxy. `outcome` is `hit`, `miss` or `stale`.
    pub(crate) requests: Family<CacheRequestLabels, Counter>,
    /// Size of an API proxy's cache in bytes.
    pub(crate) bytes: Family<ListenerLabel, Gauge>,
}

impl MetricSet for CacheMetrics {
    fn register(registry: &mut MetricRegistry) -> Self {
        Self {
            requests: registry.add("cache_requests", "Cacheable requests by outcome"),
            bytes: registry.add("cache_bytes", "Size of a cache in bytes"),
        }
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
