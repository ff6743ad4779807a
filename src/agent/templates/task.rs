//! Task that keeps one template rendered. Each template has its own, so that a failure delays no other.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::TemplateOptions;
use super::compile::Template;
use super::delivery::{DeliveryError, write};
use super::dependencies::Dependencies;
use super::metrics::{TemplateLabels, TemplateMetrics};
use super::render::Rendered;
use crate::agent::output_metrics::{OutputChangeLabels, OutputMetrics};
use crate::agent::output_watch::{OnMissing, OutputWatch, RestoreBackoff, WatchedOutput};
use crate::agent::secrets::SecretRegistry;
use crate::atomic_file::{self, Outcome};
use crate::backoff::{Backoff, random_unit};
use crate::clock::{Clock, ClockReading};
use crate::command::{CommandSpec, Launcher, ProvidedEnv};
use crate::credential_watch::{Availability, CredentialPublisher};
use crate::error_chain::format_chain;
use crate::error_code::ErrorCode;
use crate::health::HealthHandle;
use crate::metrics::Metrics;
use crate::outage::Outage;
use crate::secret::ct_eq;
use crate::secret_string::SecretString;
use crate::time_format::seconds;

/// Collaborators of a [`TemplateTask`].
#[derive(Debug)]
pub struct TemplateDeps {
    /// Publishes the rendered variable, or that the file is written.
    pub publisher: CredentialPublisher<ProvidedEnv>,
    /// Registry of the secrets.
    pub registry: SecretRegistry,
    /// Source of the current time.
    pub clock: Clock,
    /// Reports whether the template is rendered.
    pub health: HealthHandle,
    /// Metrics that this work updates.
    pub metrics: Metrics,
    /// Watches the file for changes by others.
    pub outputs: OutputWatch,
    /// Starts the template's command.
    pub launcher: Launcher,
}

/// Keeps one template rendered.
#[derive(Debug)]
pub struct TemplateTask {
    options: TemplateOptions,
    template: Template,
    dependencies: Dependencies,
    deps: TemplateDeps,
    backoff: Backoff,
    /// Time of the next attempt after a failure.
    retry_at: Option<ClockReading>,
    /// The result of a rendering was published.
    is_delivered: bool,
    /// The last published value of a variable.
    value: Option<SecretString>,
    /// The file has changed, and its command has not succeeded since.
    command_pending: bool,
    /// Watches the output file for changes by others.
    watched: Option<WatchedOutput>,
    /// Time of the next check of the file, after an event on it.
    check_at: Option<ClockReading>,
    /// This rendering only restores a file that was changed from outside.
    is_restoring: bool,
    restore_backoff: RestoreBackoff,
    outage: Outage,
    /// The write of the file that is in progress.
    write: JoinSet<Result<Outcome, DeliveryError>>,
}

impl TemplateTask {
    /// Creates a task. Renders nothing yet.
    pub fn new(options: TemplateOptions, template: Template, deps: TemplateDeps) -> Self {
        let dependencies = Dependencies::new(deps.registry.clone(), options.text.folders.clone());
        let (retry_at, is_delivered, value, command_pending) = (None, false, None, false);
        let watched = options.file.as_ref().map(|file| deps.outputs.file(&file.destination));
        let (check_at, is_restoring, restore_backoff) = (None, false, RestoreBackoff::default());
        deps.health.set_target(options.target());
        Self {
            options,
            template,
            dependencies,
            deps,
            backoff: Backoff::new(RETRY_BASE, RETRY_MAX),
            retry_at,
            is_delivered,
            value,
            command_pending,
            watched,
            check_at,
            is_restoring,
            restore_backoff,
            outage: Outage::default(),
            write: JoinSet::new(),
        }
    }

    /// Renders the template, and again after each change of a secret, until `stop` is cancelled. Failed writes and commands are
    /// retried after 0.5 s to 60 s. The file stays. A write in progress ends first.
    pub async fn run(mut self, stop: CancellationToken) {
        self.set_state(WAITING);
        if self.options.file.as_ref().is_some_and(|file| file.command.is_some()) {
            self.deps.metrics.get::<TemplateMetrics>().create_command_counters(&self.options.text.name);
        }
        self.sweep().await;
        let working = async {
            loop {
                self.render().await;
                while !self.wait().await {}
            }
        };
        let _: Option<()> = stop.run_until_cancelled(working).await;
        // Nothing cancels a write in its thread: it could replace the file of the task that follows.
        while self.write.join_next().await.is_some() {}
        self.remove_gauges();
    }

    /// Waits for an event. Returns true if the template is to be rendered.
    async fn wait(&mut self) -> bool {
        let clock = self.deps.clock.clone();
        let reread_at = self.dependencies.reread_at(clock.now(), self.options.interval);
        tokio::select! {
            availability_changed = self.dependencies.wait_for_change() => {
                if availability_changed {
                    self.report_unavailable();
                    return false;
                }
                self.debounce().await;
                true
            }
            () = clock.sleep_until_some(self.retry_at) => true,
            () = clock.sleep_until_some(reread_at) => self.dependencies.reread_files(),
            () = wait_for_change(self.watched.as_ref()), if self.check_at.is_none() => {
                self.check_at = Some(self.restore_backoff.check_at(&clock));
                false
            }
            () = clock.sleep_until_some(self.check_at) => {
                self.check_at = None;
                self.check_file().await
            }
        }
    }

    /// Returns true if a change of the file from outside is the only reason to render.
    async fn check_file(&mut self) -> bool {
        let Some(watched) = &self.watched else { return false };
        self.is_restoring = self.is_delivered
            && self.retry_at.is_none()
            && !self.dependencies.has_changed()
            && watched.is_changed().await;
        self.is_restoring
    }

    /// Waits until nothing changes for the debounce interval, at most four times that. The first rendering does not wait.
    async fn debounce(&mut self) {
        if self.options.debounce.is_zero() || !self.is_delivered {
            return;
        }
        let clock = self.deps.clock.clone();
        let latest = clock.now() + self.options.debounce * 4;
        while !clock.has_reached(latest) {
            let quiet = clock.now() + self.options.debounce;
            let until = if quiet.boot < latest.boot { quiet } else { latest };
            tokio::select! {
                _ = self.dependencies.wait_for_change() => {}
                () = clock.sleep_until(until) => return,
            }
        }
    }

    /// Reports a secret that is not available, such as one that has ended during the delivery. The rendered file or variable stays.
    fn report_unavailable(&self) {
        if let Some(reason) = self.dependencies.unavailable_reason() {
            self.set_state(WAITING);
            self.deps.health.set_not_ready(reason);
            self.deps.health.keep_previous(self.is_delivered);
        }
        self.report_stale();
    }

    /// Warns of a secret that could not be read again. What was rendered from it stays.
    fn report_stale(&self) {
        let Some((path, error)) = self.dependencies.update_error() else { return self.deps.health.clear_warning() };
        self.deps.health.warn(error.code, format!("{path} could not be read again: {}", error.text));
    }

    async fn render(&mut self) {
        self.retry_at = None;
        let is_restoring = std::mem::take(&mut self.is_restoring);
        let text = loop {
            let Ok(resolved) = self.dependencies.resolve() else { return self.report_unavailable() };
            match self.template.render(Arc::new(resolved), self.deps.clock.now().wall) {
                Rendered::Unresolved(unresolved) => self.dependencies.request(unresolved),
                Rendered::Complete { text, used } => {
                    self.dependencies.retain(&used);
                    break text;
                }
                Rendered::Failed(error) => {
                    let file = self.options.text.file.as_deref().map(|file| format!("{}: ", file.display()));
                    let error = format!("{}{error}", file.unwrap_or_default());
                    return self.record_failure(ErrorCode::TemplateFailed, &error, None);
                }
            }
        };
        if !is_restoring {
            self.count(true);
        }
        match self.deliver(text, is_restoring).await {
            Ok(()) => {
                self.backoff.reset();
                if let Some(lasted_seconds) = self.outage.record_success(self.deps.clock.now()) {
                    let template = &self.options.text.name;
                    tracing::info!(
                        event = "template.recovered",
                        template,
                        lasted_seconds,
                        "the template renders again"
                    );
                }
                self.set_state(RENDERED);
                self.deps.health.set_ready();
                self.report_unavailable();
            }
            Err(error) => {
                let wait = self.backoff.next_half_jitter(random_unit());
                self.retry_at = Some(self.deps.clock.now() + wait);
                self.record_failure(error.code(), &format_chain(&error), Some(wait));
                self.retry_at.into_iter().for_each(|at| self.deps.health.set_retry_at(at));
            }
        }
    }

    async fn deliver(&mut self, text: Zeroizing<String>, is_restoring: bool) -> Result<(), DeliveryError> {
        let Some(file) = self.options.file.clone() else {
            if text.contains('\0') {
                return Err(DeliveryError::Nul);
            }
            if !self.value.as_ref().is_some_and(|value| ct_eq(value, text.as_bytes())) {
                let value = SecretString::from(text.as_str());
                self.value = Some(value.clone());
                self.publish(ProvidedEnv::Variable(self.options.text.name.clone(), value));
            }
            return Ok(());
        };
        let command = file.command.clone();
        if is_restoring && file.on_missing == OnMissing::Leave {
            self.record_left_changed();
            return Ok(());
        }
        let destination = file.destination.clone();
        self.write.spawn_blocking(move || write(&file, text.as_bytes()));
        let Some(Ok(outcome)) = self.write.join_next().await else { return Err(DeliveryError::Broken) };
        let written = outcome? == Outcome::Written;
        let watched = self.watched.get_or_insert_with(|| self.deps.outputs.file(&destination));
        watched.renew().await;
        if written {
            self.command_pending = true;
            self.record_write();
            if is_restoring {
                self.record_restore();
            }
        }
        if let Some(command) = command.filter(|_| self.command_pending) {
            let program = CommandSpec { command: command.command, variables: self.options.text.variables.clone() };
            let result = self.deps.launcher.run(&program, command.timeout, &self.deps.clock).await;
            self.deps.metrics.get::<TemplateMetrics>().count_command(&self.options.text.name, result.is_ok());
            result.map_err(DeliveryError::Command)?;
            tracing::info!(
                event = "template.command.ok",
                template = self.options.text.name,
                "the template's command succeeded"
            );
        }
        self.command_pending = false;
        if !self.is_delivered {
            self.publish(ProvidedEnv::File);
        }
        Ok(())
    }

    fn publish(&mut self, output: ProvidedEnv) {
        self.is_delivered = true;
        self.deps.health.record_update();
        self.deps.publisher.publish(Availability::Available(Arc::new(output)), Some(self.deps.clock.now()));
    }

    fn record_write(&self) {
        let (template, path) = (&self.options.text.name, self.path());
        tracing::info!(event = "template.written", template, path, "the file was changed");
        self.deps.health.record_update();
        let since = self.deps.clock.now().wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        self.deps.metrics.get::<TemplateMetrics>().written.get_or_create(&self.label()).set(seconds);
    }

    /// Records that a file was restored after its deletion or change from outside.
    fn record_restore(&mut self) {
        let (template, path) = (&self.options.text.name, self.path());
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
    fn record_left_changed(&mut self) {
        let (template, path) = (&self.options.text.name, self.path());
        tracing::warn!(
            event = "template.left_changed",
            template,
            path,
            "another process deleted or changed the file; it is restored when a secret in it changes"
        );
        self.count_change("left");
        // Reported once: further changes do not matter until the file is written again.
        self.watched = None;
    }

    fn path(&self) -> Option<String> {
        self.options.file.as_ref().map(|file| file.destination.display().to_string())
    }

    fn count_change(&self, outcome: &'static str) {
        let output = format!("template/{}", self.options.text.name);
        self.deps.metrics.get::<OutputMetrics>().changes.get_or_create(&OutputChangeLabels { output, outcome }).inc();
    }

    fn record_failure(&mut self, code: ErrorCode, error: &str, retry_in: Option<Duration>) {
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

    fn count(&self, is_ok: bool) {
        self.deps.metrics.get::<TemplateMetrics>().count_render(&self.options.text.name, is_ok);
    }

    /// Removes temporary files of interrupted writes.
    async fn sweep(&self) {
        let Some(path) = self.options.file.as_ref().map(|file| file.destination.clone()) else { return };
        if let Ok(Ok(files @ 1..)) = tokio::task::spawn_blocking(move || atomic_file::sweep(&path)).await {
            let template = &self.options.text.name;
            tracing::info!(event = "template.swept", template, files, "removed temporary files of interrupted writes");
        }
    }

    fn set_state(&self, state: i64) {
        self.deps.metrics.get::<TemplateMetrics>().state.get_or_create(&self.label()).set(state);
    }

    fn label(&self) -> TemplateLabels {
        TemplateLabels { template: self.options.text.name.clone() }
    }

    /// Removes its gauges: a template that a reload removed must not show as waiting. A task that never ran has none, and
    /// those of its name are another's.
    fn remove_gauges(&self) {
        let metrics = self.deps.metrics.get::<TemplateMetrics>();
        metrics.state.remove(&self.label());
        metrics.written.remove(&self.label());
    }
}

async fn wait_for_change(watched: Option<&WatchedOutput>) {
    match watched {
        Some(watched) => watched.changed().await,
        None => std::future::pending().await,
    }
}

const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);

const RENDERED: i64 = 0;
const WAITING: i64 = 1;
const FAILING: i64 = 2;
