//! Metrics of the process. Each part declares its own, near the code that counts; the application joins them. Labels
//! never hold a secret or a path.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

/// Metrics of the process, by the parts that declare them. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<RegisteredSets>>);

/// Metrics that one part declares, by name and help text.
pub trait MetricSet: Clone + Send + Sync + 'static {
    /// Creates the metrics and adds them to the registry; called once per process.
    fn register(registry: &mut MetricRegistry) -> Self;
}

/// Registry of all metrics, served in the order in which they were added.
#[derive(Debug)]
pub struct MetricRegistry(Registry);

#[derive(Debug, Default)]
struct RegisteredSets {
    registry: MetricRegistry,
    sets: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl Default for MetricRegistry {
    fn default() -> Self {
        let mut registry = Registry::default();
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("keyward_build", "Version of the program", version);
        Self(registry)
    }
}

impl MetricRegistry {
    /// Creates a metric and adds it. `name` has neither the prefix `keyward_` nor a counter's `_total`.
    pub fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.add_metric(name, help, M::default())
    }

    /// Adds a metric.
    pub fn add_metric<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(format!("keyward_{name}"), help, metric.clone());
        metric
    }

    /// Creates a metric and adds it without the prefix: its name is one that all programs share.
    pub fn add_unprefixed<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }
}

impl Metrics {
    /// Returns a part's metrics, and registers them the first time. It takes a lock: code that counts often keeps the
    /// result.
    pub fn get<T: MetricSet>(&self) -> T {
        let mut all = self.0.lock();
        let RegisteredSets { registry, sets } = &mut *all;
        let set = sets.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::register(registry)));
        // Sets are keyed by `TypeId`, so the downcast cannot fail.
        set.downcast_ref().map_or_else(|| T::register(registry), T::clone)
    }

    /// Registers a part's metrics, so that they are served before anything is counted.
    pub fn register<T: MetricSet>(&self) {
        drop(self.get::<T>());
    }

    /// Formats all metrics in the OpenMetrics text format, which Prometheus reads; empty if a value cannot be
    /// formatted.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.0.lock().registry.0) {
            Ok(()) => text,
            Err(std::fmt::Error) => String::new(),
        }
    }
}

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram of latencies in seconds.
pub type LatencyHistogram = Histogram;

/// Creates a histogram with buckets from an idle server on the same machine up to the longest wait of callers.
pub fn latency_histogram() -> LatencyHistogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0])
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[derive(Debug, Clone)]
    struct TestMetrics {
        reloads: Counter,
    }

    impl MetricSet for TestMetrics {
        fn register(registry: &mut MetricRegistry) -> Self {
            Self { reloads: registry.add("config_reloads", "Configuration reloads") }
        }
    }

    #[test]
    fn a_set_is_registered_once_and_shared() {
        let metrics = Metrics::default();
        assert!(!metrics.text().contains("reloads"));
        metrics.register::<TestMetrics>();
        assert!(metrics.text().contains("keyward_config_reloads_total 0"), "{}", metrics.text());
        metrics.clone().get::<TestMetrics>().reloads.inc();
        metrics.get::<TestMetrics>().reloads.inc();
        let text = metrics.text();
        assert!(text.contains("keyward_config_reloads_total 2"), "{text}");
        assert_eq!(text.matches("# TYPE keyward_config_reloads").count(), 1, "{text}");
    }
}
