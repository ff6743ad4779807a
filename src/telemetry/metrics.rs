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

/// Metrics that one part declares, by [`metric_set`].
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
    /// Adds a metric; for [`metric_set`].
    pub fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        // The format has a full stop after each help.
        self.0.register(name, help.trim().trim_end_matches('.'), metric.clone());
        metric
    }
}

/// Declares a set of metrics, each once: its documentation, which is its help and its meaning in the reference, its type, and its
/// name as it is served, without a counter's `_total`. A type without a default has its value after the name.
#[macro_export]
macro_rules! metric_set {
    (@value) => { Default::default() };
    (@value $value:expr) => { $value };
    (
        $(#[$attribute:meta])*
        $set_visibility:vis struct $set:ident {
            $($(#[doc = $help:literal])+ $visibility:vis $metric:ident: $kind:ty = $name:literal $(, $value:expr)?;)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone)]
        $set_visibility struct $set {
            $($(#[doc = $help])+ $visibility $metric: $kind,)+
        }

        impl $crate::metrics::MetricSet for $set {
            fn register(registry: &mut $crate::metrics::MetricRegistry) -> Self {
                Self { $($metric: registry.add($name, concat!($($help),+), $crate::metric_set!(@value $($value)?)),)+ }
            }
        }
    };
}
pub use metric_set;

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

    metric_set! {
        struct TestMetrics {
            /// Configuration reloads,
            /// also of files.
            reloads: Counter = "keyward_config_reloads";
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
        assert!(text.contains("# HELP keyward_config_reloads Configuration reloads, also of files.\n"), "{text}");
    }
}
