//! Reports of a template's task: log events, health and metrics.

use std::time::{Duration, SystemTime};

use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::seconds;

use super::TemplateTask;
use crate::output_command::ABANDONED;
use crate::output_watch::{OutputChangeLabels, OutputMetrics};
use crate::templates::metrics::{TemplateLabels, TemplateMetrics};

const RENDERED: i64 = 0;
pub(super) const WAITING: i64 = 1;
const FAILING: i64 = 2;

impl TemplateTask {
    /// Reports a used secret that is not available, such as one that has ended during the delivery. The rendered file or variable
    /// stays.
    pub(super) fn report_unavailable(&self) {
        if let Some(reason) = self.dependencies.unavailable_reason() {
            self.set_state(WAITING);
            self.deps.health.set_not_ready(reason);
            self.deps.health.keep_previous(self.is_delivered);
        }
        self.report_stale();
    }

    /// Warns of a secret that could not be read again. What was rendered from it stays.
    fn report_stale(&self) {
        match self.dependencies.update_error() {
            Some((path, error)) => {
                self.deps.health.warn(error.code, format!("{path} could not be read again: {}", error.text));
            }
            None if self.is_command_abandoned => self.deps.health.warn(ErrorCode::CommandFailed, ABANDONED.to_owned()),
            None => self.deps.health.clear_warning(),
        }
    }

    /// Records that the command of an earlier task is not repeated.
    pub(super) fn record_abandoned_command(&mut self) {
        self.is_command_abandoned = true;
        let template = &self.options.text.name;
        let code = ErrorCode::CommandFailed.as_str();
        tracing::warn!(event = "template.command.abandoned", template, code, "{ABANDONED}");
    }

    /// Records that the rendered text was delivered.
    pub(super) fn record_success(&mut self) {
        if let Some(lasted_seconds) = self.outage.record_success(self.deps.clock.now()) {
            let template = &self.options.text.name;
            tracing::info!(event = "template.recovered", template, lasted_seconds, "the template renders again");
        }
        self.set_state(RENDERED);
        self.deps.health.set_ready();
        self.deps.health.set_note(self.dependencies.describe_unknown_ends());
        self.report_unavailable();
    }

    pub(super) fn record_failure(&mut self, code: ErrorCode, error: &str, retry_in: Option<Duration>) {
        self.outage.record_failure(self.deps.clock.now());
        let retry_in_seconds = retry_in.map(seconds);
        tracing::warn!(
            event = "template.failed",
            template = self.options.text.name,
            code = code.as_str(),
            error,
            retry_in_seconds,
            "the template failed"
        );
        self.count(false);
        self.set_state(FAILING);
        self.deps.health.set_failed(code, error);
        self.deps.health.keep_previous(self.is_delivered);
    }

    pub(super) fn record_write(&self) {
        let template = &self.options.text.name;
        let path = self.path();
        tracing::info!(event = "template.written", template, path, "the file was changed");
        self.deps.health.record_update();
        let since = self.deps.clock.now().wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        self.deps.metrics.get::<TemplateMetrics>().written.get_or_create(&self.label()).set(seconds);
    }

    /// Records that a file was restored after its deletion or change from outside.
    pub(super) fn record_restore(&mut self) {
        let template = &self.options.text.name;
        let path = self.path();
        tracing::warn!(
            event = "template.restored",
            template,
            path,
            "another process deleted or changed the file; it was restored"
        );
        self.restore_backoff.record_restored(&self.deps.clock);
        self.count_change("restored");
    }

    /// Records that such a file is left as it is.
    pub(super) fn record_unrestored_change(&mut self) {
        let template = &self.options.text.name;
        let path = self.path();
        tracing::warn!(
            event = "template.left_changed",
            template,
            path,
            "another process deleted or changed the file; it is restored when a secret in it changes"
        );
        self.count_change("left");
        // Reported once: further changes do not matter until the file is written again.
        self.watched.clear();
    }

    fn path(&self) -> Option<String> {
        self.options.file.as_ref().map(|file| file.destination.display().to_string())
    }

    fn count_change(&self, outcome: &'static str) {
        let output = format!("template/{}", self.options.text.name);
        self.deps.metrics.get::<OutputMetrics>().changes.get_or_create(&OutputChangeLabels { output, outcome }).inc();
    }

    pub(super) fn count(&self, is_ok: bool) {
        self.deps.metrics.get::<TemplateMetrics>().count_render(&self.options.text.name, is_ok);
    }

    pub(super) fn set_state(&self, state: i64) {
        self.deps.metrics.get::<TemplateMetrics>().state.get_or_create(&self.label()).set(state);
    }

    fn label(&self) -> TemplateLabels {
        TemplateLabels { template: self.options.text.name.clone() }
    }

    /// Removes its gauges: a template that a reload removed must not show as waiting. A task that never ran has none, and
    /// those of its name are another's.
    pub(super) fn remove_gauges(&self) {
        let metrics = self.deps.metrics.get::<TemplateMetrics>();
        metrics.state.remove(&self.label());
        metrics.written.remove(&self.label());
    }
}
