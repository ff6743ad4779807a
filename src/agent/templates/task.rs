//! Task that keeps one template rendered. Each template has its own, so that a failure delays no other.

mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_credentials::credential_watch::{Availability, CredentialPublisher};
use keyward_machine::atomic_file::{self, Outcome};
use keyward_machine::clock::{Clock, ClockReading};
use keyward_machine::command::{Launcher, ProvidedEnv};
use keyward_machine::secret::ct_eq;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::outage::Outage;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::TemplateOptions;
use super::compile::Template;
use super::delivery::{DeliveryError, write};
use super::dependencies::Dependencies;
use super::evaluation::WrittenFile;
use super::metrics::TemplateMetrics;
use super::render::Rendered;
use crate::output_command::{EarlierCommand, SharedCommandRunner, SharedCommands, restore_command};
use crate::output_watch::{OnMissing, OutputWatch, RestoreBackoff, WatchedOutputs};
use crate::secrets::SecretRegistry;
use report::WAITING;

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
    /// Commands that templates share.
    pub commands: SharedCommands,
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
    /// The file has changed, and its command has not succeeded since, in this task or an earlier one.
    command_pending: bool,
    /// Earlier tasks ended while the command ran; it has not succeeded since.
    is_command_abandoned: bool,
    /// Watch the output files for changes by others.
    watched: WatchedOutputs,
    /// Time of the next check of the file, after an event on it.
    check_at: Option<ClockReading>,
    /// This rendering only restores a file that was changed from outside.
    is_restoring: bool,
    restore_backoff: RestoreBackoff,
    outage: Outage,
    /// The write of the file that is in progress.
    write: JoinSet<(Outcome, Result<(), DeliveryError>)>,
    /// The file's command.
    command: Option<SharedCommandRunner>,
}

impl TemplateTask {
    /// Creates a task. Renders nothing yet.
    pub fn new(options: TemplateOptions, template: Template, deps: TemplateDeps) -> Self {
        let dependencies = Dependencies::new(deps.registry.clone(), options.text.folders.clone());
        let retry_at = None;
        let is_delivered = false;
        let value = None;
        let command_pending = false;
        let watched = WatchedOutputs::new(deps.outputs.clone());
        let check_at = None;
        let is_restoring = false;
        let restore_backoff = RestoreBackoff::default();
        deps.health.set_target(options.target());
        let command = options.file.as_ref().and_then(|file| {
            let (command, debounce) = (file.command.clone()?, file.command_debounce);
            let variables = options.text.variables.clone();
            let TemplateDeps { commands, launcher, clock, .. } = &deps;
            Some(SharedCommandRunner::new(commands, command, variables, debounce, launcher.clone(), clock.clone()))
        });
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
            is_command_abandoned: false,
            watched,
            check_at,
            is_restoring,
            restore_backoff,
            outage: Outage::default(),
            write: JoinSet::new(),
            command,
        }
    }

    /// Renders the template, and again after each change of a secret, until `stop` is cancelled. Failed writes and commands are
    /// retried after 0.5 s to 60 s. The file stays. A write in progress ends first.
    pub async fn run(mut self, stop: CancellationToken) {
        self.set_state(WAITING);
        if self.command.is_some() {
            self.deps.metrics.get::<TemplateMetrics>().create_command_counters(&self.options.text.name);
        }
        self.restore().await;
        let working = async {
            loop {
                self.render().await;
                while !self.wait().await {}
            }
        };
        let _: Option<()> = stop.run_until_cancelled(working).await;
        // Nothing cancels a write in its thread: it could replace the file of the task that follows.
        while self.write.join_next().await.is_some() {}
        if let Some(command) = &mut self.command {
            command.finish().await;
        }
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
            () = self.watched.changed(), if self.check_at.is_none() => {
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
        self.is_restoring = false;
        if self.is_delivered && self.retry_at.is_none() && !self.dependencies.has_changed() {
            self.is_restoring = self.watched.is_changed().await;
        }
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

    async fn render(&mut self) {
        self.retry_at = None;
        let is_restoring = std::mem::take(&mut self.is_restoring);
        // One time for all passes: a path that contains the time would be another one in each.
        let now = self.deps.clock.now().wall;
        let (text, files) = loop {
            let resolved = Arc::new(self.dependencies.resolve());
            let (rendered, used) = self.template.render_and_list(Arc::clone(&resolved), now);
            match rendered {
                Rendered::Unresolved(unresolved) => {
                    if !self.dependencies.request(unresolved) {
                        self.dependencies.retain(&used, &resolved);
                        return self.report_unavailable();
                    }
                }
                Rendered::Complete { text, files } => {
                    self.dependencies.retain(&used, &BTreeMap::new());
                    break (text, files);
                }
                Rendered::Failed(error) => {
                    self.dependencies.retain(&used, &resolved);
                    let file = self.options.text.file.as_deref().map(|file| format!("{}: ", file.display()));
                    let error = format!("{}{error}", file.unwrap_or_default());
                    return self.record_failure(ErrorCode::TemplateFailed, &error, None);
                }
            }
        };
        if !is_restoring {
            self.count(true);
        }
        match self.deliver(text, files, is_restoring).await {
            Ok(()) => {
                self.backoff.reset();
                self.record_success();
            }
            Err(error) => {
                let wait = self.backoff.next_half_jitter(random_unit());
                self.retry_at = Some(self.deps.clock.now() + wait);
                self.record_failure(error.code(), &format_chain(&error), Some(wait));
                self.retry_at.into_iter().for_each(|at| self.deps.health.set_retry_at(at));
            }
        }
    }

    async fn deliver(
        &mut self,
        text: String,
        files: BTreeMap<PathBuf, WrittenFile>,
        is_restoring: bool,
    ) -> Result<(), DeliveryError> {
        let Some(file) = self.options.file.clone() else {
            // An environment variable ends at a NUL byte (environ(7)).
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
        if is_restoring && file.on_missing == OnMissing::Leave {
            self.record_unrestored_change();
            return Ok(());
        }
        let destination = file.destination.clone();
        let paths: Vec<PathBuf> = files.keys().chain([&destination]).cloned().collect();
        let write_folders = self.options.text.write_folders.clone();
        self.write.spawn_blocking(move || write(&file, &text, &files, &write_folders));
        let ended = self.write.join_next().await;
        let (outcome, result) = match ended {
            Some(Ok(ended)) => ended,
            _ => (Outcome::Written, Err(DeliveryError::Broken)),
        };
        // Also after a failure: the next write finds nothing to change in a file that this one has changed.
        if let Some(command) = self.command.as_mut().filter(|_| outcome == Outcome::Written) {
            command.record_change();
            self.command_pending = true;
        }
        result?;
        self.watched.renew(&paths).await;
        if outcome == Outcome::Written {
            self.record_write();
            if is_restoring {
                self.record_restore();
            }
        }
        if self.command_pending {
            self.run_command(&destination).await?;
        }
        self.command_pending = false;
        if !self.is_delivered {
            self.publish(ProvidedEnv::File);
        }
        Ok(())
    }

    /// Runs the file's command. After a success, later tasks do not repeat it.
    async fn run_command(&mut self, destination: &Path) -> Result<(), DeliveryError> {
        let Some(command) = &mut self.command else { return Ok(()) };
        let result = command.run(destination).await;
        self.deps.metrics.get::<TemplateMetrics>().count_command(&self.options.text.name, result.is_ok());
        result.map_err(DeliveryError::Command)?;
        self.is_command_abandoned = false;
        tracing::info!(
            event = "template.command.ok",
            template = self.options.text.name,
            "the template's command succeeded"
        );
        Ok(())
    }

    fn publish(&mut self, output: ProvidedEnv) {
        self.is_delivered = true;
        self.deps.health.record_update();
        self.deps.publisher.publish(Availability::Available(Arc::new(output)), Some(self.deps.clock.now()));
    }

    /// Removes temporary files of interrupted writes, and finds out if a command of an earlier task has to be repeated.
    async fn restore(&mut self) {
        let Some(file) = self.options.file.clone() else { return };
        let restore =
            move || (restore_command(&file.destination, file.command.is_some()), atomic_file::sweep(&file.destination));
        let Ok((command, swept)) = tokio::task::spawn_blocking(restore).await else { return };
        self.command_pending = command == EarlierCommand::Pending;
        if command == EarlierCommand::Abandoned {
            self.record_abandoned_command();
        }
        if let Ok(files @ 1..) = swept {
            let template = &self.options.text.name;
            tracing::info!(event = "template.swept", template, files, "removed temporary files of interrupted writes");
        }
    }
}

const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
