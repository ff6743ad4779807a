//! One template, kept rendered: a task of its own, so that one that fails holds back nobody.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::compile::Template;
use super::dependencies::Dependencies;
use super::render::Rendered;
use super::{TemplateFile, TemplateOptions};
use crate::agent::output_watch::{OnMissing, OutputWatch, RestoreBackoff, WatchedOutput};
use crate::agent::secrets::SecretRegistry;
use crate::atomic_file::{self, Attributes, Outcome, ReplaceError};
use crate::backoff::{Backoff, random_unit};
use crate::clock::{Clock, ClockReading};
use crate::command::{CommandError, CommandSpec, ProvidedEnv};
use crate::credential_watch::{Availability, CredentialPublisher};
use crate::error_chain::format_chain;
use crate::health::HealthHandle;
use crate::metrics::{self, Metrics};
use crate::secret::ct_eq;

/// What a template's task works with.
#[derive(Debug)]
pub struct TemplateDeps {
    /// Who waits for what is rendered.
    pub publisher: CredentialPublisher<ProvidedEnv>,
    /// The secrets.
    pub registry: SecretRegistry,
    /// Where the time comes from.
    pub clock: Clock,
    /// Where to say whether it is rendered.
    pub health: HealthHandle,
    /// Where renderings are counted.
    pub metrics: Metrics,
    /// Notices that others delete or change the file.
    pub outputs: OutputWatch,
}

/// Keeps one template rendered.
#[derive(Debug)]
pub struct TemplateTask {
    options: TemplateOptions,
    template: Template,
    source: Dependencies,
    deps: TemplateDeps,
    backoff: Backoff,
    /// When what failed is tried again.
    retry: Option<ClockReading>,
    /// It was rendered once, and what it gave was taken.
    delivered: bool,
    /// The value of a variable that was published last.
    value: Option<SecretString>,
    /// The file has changed, and its command has not run well since.
    owes_command: bool,
    /// The file, where there is one.
    watched: Option<WatchedOutput>,
    /// When the file is looked at, as something has happened to it.
    check_at: Option<ClockReading>,
    /// The file is another than was written: this rendering is for that alone.
    touched: bool,
    restore_backoff: RestoreBackoff,
}

impl TemplateTask {
    /// One that has done nothing yet.
    pub fn new(options: TemplateOptions, template: Template, deps: TemplateDeps) -> Self {
        let source = Dependencies::new(deps.registry.clone(), options.text.folders.clone());
        let backoff = Backoff::new(RETRY_BASE, RETRY_MAX);
        let (retry, delivered, value, owes_command) = (None, false, None, false);
        let watched = options.file.as_ref().map(|file| deps.outputs.file(&file.destination));
        let (check_at, touched, restore_backoff) = (None, false, RestoreBackoff::default());
        Self {
            options,
            template,
            source,
            deps,
            backoff,
            retry,
            delivered,
            value,
            owes_command,
            watched,
            check_at,
            touched,
            restore_backoff,
        }
    }

    /// Renders it, and again when a secret in it has changed, until `stop` is cancelled. What cannot be written, and a command
    /// that fails, are tried again after 1 s to 60 s (full jitter). The file stays when this ends.
    pub async fn run(mut self, stop: CancellationToken) {
        self.tell(WAITING);
        self.sweep().await;
        let working = async {
            loop {
                self.render().await;
                while !self.wait().await {}
            }
        };
        let _: Option<()> = stop.run_until_cancelled(working).await;
    }

    /// Returns when something has changed; says whether that is a reason to render.
    async fn wait(&mut self) -> bool {
        let clock = self.deps.clock.clone();
        let look = self.source.has_files().then(|| clock.now() + self.options.interval);
        tokio::select! {
            absent = self.source.changed() => {
                if absent {
                    self.stand_still();
                    return false;
                }
                self.settle().await;
                true
            }
            () = clock.sleep_until_some(self.retry) => true,
            () = clock.sleep_until_some(look) => self.source.look_again(),
            () = noticed(self.watched.as_ref()), if self.check_at.is_none() => {
                self.check_at = Some(self.restore_backoff.check_at(&clock));
                false
            }
            () = clock.sleep_until_some(self.check_at) => {
                self.check_at = None;
                self.is_touched().await
            }
        }
    }

    /// True if somebody else has changed the file, and nothing else is a reason to render.
    async fn is_touched(&mut self) -> bool {
        let Some(watched) = &self.watched else { return false };
        self.touched = self.delivered && self.retry.is_none() && !self.source.is_new() && watched.is_changed().await;
        self.touched
    }

    /// Waits until nothing has changed for a while, but not for ever. What was never rendered does not wait.
    async fn settle(&mut self) {
        if self.options.debounce.is_zero() || !self.delivered {
            return;
        }
        let clock = self.deps.clock.clone();
        let latest = clock.now() + self.options.debounce * 4;
        while !clock.has_reached(latest) {
            let quiet = clock.now() + self.options.debounce;
            let until = if quiet.boot < latest.boot { quiet } else { latest };
            tokio::select! {
                _ = self.source.changed() => {}
                () = clock.sleep_until(until) => return,
            }
        }
    }

    /// A secret is not there: what was rendered stays as it is.
    fn stand_still(&self) {
        if let Some(reason) = self.source.absent() {
            self.tell(WAITING);
            self.deps.health.not_ready(reason);
        }
    }

    async fn render(&mut self) {
        self.retry = None;
        let touched = std::mem::take(&mut self.touched);
        let text = loop {
            let Ok(known) = self.source.known() else { return self.stand_still() };
            match self.template.render(Arc::new(known), self.deps.clock.now().wall) {
                Rendered::Unresolved(needs) => self.source.ask(needs),
                Rendered::Complete { text, used } => {
                    self.source.keep(&used);
                    break text;
                }
                Rendered::Failed(wrong) => {
                    let file = self.options.text.file.as_deref().map(|file| format!("{}: ", file.display()));
                    return self.failed(&format!("{}{wrong}", file.unwrap_or_default()), None);
                }
            }
        };
        if !touched {
            self.count("ok");
        }
        match self.deliver(text, touched).await {
            Ok(()) => {
                self.backoff.reset();
                self.tell(RENDERED);
                self.deps.health.ready();
            }
            Err(error) => {
                let wait = self.backoff.next(random_unit());
                self.retry = Some(self.deps.clock.now() + wait);
                self.failed(&format_chain(&error), Some(wait));
            }
        }
    }

    async fn deliver(&mut self, text: Zeroizing<String>, touched: bool) -> Result<(), DeliveryError> {
        let Some(file) = self.options.file.clone() else {
            if text.contains('\0') {
                return Err(DeliveryError::Nul);
            }
            if !self.value.as_ref().is_some_and(|before| ct_eq(before, text.as_bytes())) {
                let value = SecretString::from(text.as_str());
                self.value = Some(value.clone());
                self.publish(ProvidedEnv::Variable(self.options.text.name.clone(), value));
            }
            return Ok(());
        };
        let command = file.command.clone();
        if touched && file.on_missing == OnMissing::Leave {
            self.left();
            return Ok(());
        }
        let destination = file.destination.clone();
        let write = move || write(&file, text.as_bytes());
        let written = tokio::task::spawn_blocking(write).await.map_err(|_| DeliveryError::Broken)?? == Outcome::Written;
        let watched = self.watched.get_or_insert_with(|| self.deps.outputs.file(&destination));
        watched.renew().await;
        if written {
            self.owes_command = true;
            self.written();
            if touched {
                self.restored();
            }
        }
        if let Some(command) = command.filter(|_| self.owes_command) {
            let program = CommandSpec { command: command.command, variables: self.options.text.variables.clone() };
            let ran = program.run(command.timeout, &self.deps.clock).await;
            let outcome = if ran.is_ok() { "ok" } else { "failed" };
            let labels = metrics::TemplateRunLabels { template: self.options.text.name.clone(), outcome };
            self.deps.metrics.template_commands.get_or_create(&labels).inc();
            ran.map_err(DeliveryError::Command)?;
            tracing::info!(event = "template.command.ok", template = self.options.text.name, "its command has run");
        }
        self.owes_command = false;
        if !self.delivered {
            self.publish(ProvidedEnv::File);
        }
        Ok(())
    }

    fn publish(&mut self, output: ProvidedEnv) {
        self.delivered = true;
        self.deps.publisher.publish(Availability::Available(Arc::new(output)), Some(self.deps.clock.now()));
    }

    fn written(&self) {
        let Some(file) = &self.options.file else { return };
        tracing::info!(
            event = "template.written", template = self.options.text.name, path = %file.destination.display(),
            "the file was changed"
        );
        let since = self.deps.clock.now().wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        self.deps.metrics.template_written.get_or_create(&self.label()).set(seconds);
    }

    /// Somebody else has deleted or changed the file, and it was written again.
    fn restored(&mut self) {
        let (template, path) = (&self.options.text.name, self.path());
        tracing::warn!(
            event = "template.restored",
            template,
            path,
            "somebody else deleted or changed the file; it was written again"
        );
        self.restore_backoff.restored(&self.deps.clock);
        self.count_change("restored");
    }

    /// The same, and it stays so.
    fn left(&mut self) {
        let (template, path) = (&self.options.text.name, self.path());
        tracing::warn!(
            event = "template.left_changed",
            template,
            path,
            "somebody else deleted or changed the file; it stays so until a secret in it changes"
        );
        self.count_change("left");
        // Told once: until it is written again nobody waits for more.
        self.watched = None;
    }

    fn path(&self) -> String {
        self.options.file.as_ref().map(|file| file.destination.display().to_string()).unwrap_or_default()
    }

    fn count_change(&self, outcome: &'static str) {
        let output = format!("template/{}", self.options.text.name);
        self.deps.metrics.output_changes.get_or_create(&metrics::OutputChangeLabels { output, outcome }).inc();
    }

    fn failed(&self, error: &str, retry_in: Option<Duration>) {
        let retry_in_seconds = retry_in.map(|wait| wait.as_secs_f64());
        tracing::warn!(
            event = "template.failed",
            template = self.options.text.name,
            error,
            retry_in_seconds,
            "the template was not rendered"
        );
        self.count("failed");
        self.tell(FAILING);
        self.deps.health.not_ready(error);
    }

    fn count(&self, outcome: &'static str) {
        let labels = metrics::TemplateRunLabels { template: self.options.text.name.clone(), outcome };
        self.deps.metrics.template_renders.get_or_create(&labels).inc();
    }

    /// Removes what an interrupted write has left.
    async fn sweep(&self) {
        let Some(path) = self.options.file.as_ref().map(|file| file.destination.clone()) else { return };
        if let Ok(Ok(files @ 1..)) = tokio::task::spawn_blocking(move || atomic_file::sweep(&path)).await {
            let template = &self.options.text.name;
            tracing::info!(event = "template.swept", template, files, "leftovers were removed");
        }
    }

    fn tell(&self, state: i64) {
        self.deps.metrics.template_state.get_or_create(&self.label()).set(state);
    }

    fn label(&self) -> metrics::TemplateLabels {
        metrics::TemplateLabels { template: self.options.text.name.clone() }
    }
}

impl Drop for TemplateTask {
    fn drop(&mut self) {
        // A template that a reload took away is not one that waits.
        self.deps.metrics.template_state.remove(&self.label());
    }
}

async fn noticed(watched: Option<&WatchedOutput>) {
    match watched {
        Some(watched) => watched.changed().await,
        None => std::future::pending().await,
    }
}

/// Writes the file, its folder before it where that is wanted.
fn write(file: &TemplateFile, bytes: &[u8]) -> Result<Outcome, DeliveryError> {
    if file.create_folders
        && let Some(folder) = file.destination.parent()
    {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.map_err(|source| DeliveryError::Folder { folder: folder.to_owned(), source })?;
    }
    let attributes = Attributes { mode: file.mode, owner: file.owner, group: file.group };
    let replace = if file.backup { atomic_file::replace_with_backup } else { atomic_file::replace };
    Ok(replace(&file.destination, bytes, &attributes)?)
}

const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);

const RENDERED: i64 = 0;
const WAITING: i64 = 1;
const FAILING: i64 = 2;

/// Why what was rendered did not get where it should.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("cannot make the folder {}", folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    #[error("its command failed")]
    Command(#[source] CommandError),
    #[error("a variable cannot hold a NUL")]
    Nul,
    #[error("the writing task panicked; this is a mistake in the program")]
    Broken,
}
