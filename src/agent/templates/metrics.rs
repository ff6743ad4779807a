//! Metrics of templates.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use keyward_telemetry::metrics::metric_set;

metric_set! {
    /// Metrics of templates.
    pub struct TemplateMetrics {
        /// State of a template: 0 rendered, 1 is waiting for its secrets, 2 is failing.
        pub(crate) state: Family<TemplateLabels, Gauge> = "keyward_template_state";
        /// Time of the last change of a template's file, in seconds since 1970.
        pub(crate) written: Family<TemplateLabels, Gauge> = "keyward_template_written_timestamp_seconds";
        /// Renderings of a template. `outcome` is `ok` or `failed`.
        pub(crate) renders: Family<TemplateRunLabels, Counter> = "keyward_template_renders";
        /// Runs of a template's command. `outcome` is `ok` or `failed`. A run for several templates counts for each.
        pub(crate) commands: Family<TemplateRunLabels, Counter> = "keyward_template_commands";
    }
}

impl TemplateMetrics {
    /// Creates the counters of a template's command. One that appears with the first failure has no increase that an alert
    /// could see.
    pub(super) fn create_command_counters(&self, template: &str) {
        for is_ok in [true, false] {
            drop(self.commands.get_or_create(&TemplateRunLabels::new(template, is_ok)));
        }
    }

    /// Counts a run of a template's command.
    pub(super) fn count_command(&self, template: &str, is_ok: bool) {
        self.commands.get_or_create(&TemplateRunLabels::new(template, is_ok)).inc();
    }

    /// Counts a rendering of a template.
    pub(super) fn count_render(&self, template: &str, is_ok: bool) {
        self.renders.get_or_create(&TemplateRunLabels::new(template, is_ok)).inc();
    }
}

/// Label of a template.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TemplateLabels {
    /// Name from the configuration.
    pub template: String,
}

/// Labels of a template's rendering or command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TemplateRunLabels {
    /// Name from the configuration.
    pub template: String,
    /// `ok` or `failed`.
    pub outcome: &'static str,
}

impl TemplateRunLabels {
    fn new(template: &str, is_ok: bool) -> Self {
        Self { template: template.to_owned(), outcome: if is_ok { "ok" } else { "failed" } }
    }
}
