//! Metrics of readiness, set when they are read.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of the readiness of components.
    pub struct ReadyMetrics {
        /// 1 while a component, such as `session/web` or `sink/token`, is ready. `required` is `true` if readiness of the process
        /// requires it.
        pub(crate) ready: Family<ComponentLabels, Gauge> = "keyward_ready";
        /// 1 while a component is ready and has an error that may make it fail later.
        pub(crate) warning: Family<ComponentLabels, Gauge> = "keyward_component_warning";
    }
}

/// Labels of a component.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ComponentLabels {
    /// Name of the component.
    pub component: String,
    /// `true` or `false`.
    pub required: &'static str,
}

impl ReadyMetrics {
    /// Sets the gauges to the health of all components, and removes those of components that have gone.
    pub(super) fn update(&self, health: &Health) {
        self.ready.clear();
        self.warning.clear();
        for (component, status) in health.statuses() {
            let required = if status.required { "true" } else { "false" };
            let labels = ComponentLabels { component, required };
            self.ready.get_or_create(&labels).set(status.ready.into());
            self.warning.get_or_create(&labels).set(status.warning.is_some().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use keyward_telemetry::metrics::Metrics;

    use super::*;

    #[test]
    fn the_gauges_follow_the_components() {
        let health = Health::default();
        let metrics = Metrics::default();
        let text = || {
            metrics.get::<ReadyMetrics>().update(&health);
            metrics.text()
        };
        let session = health.register("session/web", true, "no token yet");
        let sink = health.register("sink/token", false, "not written yet");
        let line = |name: &str, component: &str, required: bool, value: u8| {
            format!("keyward_{name}{{component=\"{component}\",required=\"{required}\"}} {value}")
        };
        assert!(text().contains(&line("ready", "session/web", true, 0)), "{}", text());
        session.set_ready();
        session.warn(None, "the server does not answer");
        assert!(text().contains(&line("ready", "session/web", true, 1)), "{}", text());
        assert!(text().contains(&line("component_warning", "session/web", true, 1)), "{}", text());
        assert!(text().contains(&line("ready", "sink/token", false, 0)), "{}", text());
        drop(sink);
        assert!(!text().contains("component=\"sink/token\""), "{}", text());
    }
}
