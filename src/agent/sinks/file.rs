//! One token file, kept equal to a session's token.

use std::path::Path;
use std::time::{Duration, SystemTime};

use keyward_credentials::backoff::{Backoff, random_unit};
use keyward_credentials::credential_watch::Availability;
use keyward_machine::atomic_file::{self, Attributes, Outcome, ReplaceError};
use keyward_machine::clock::Clock;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::health::HealthHandle;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::outage::Outage;
use keyward_telemetry::time_format::seconds;
use tokio_util::sync::CancellationToken;

use super::envelope::Envelope;
use super::error::SinkError;
use super::file_lock::FileLock;
use super::format::render;
use super::metrics::{SinkLabels, SinkMetrics};
use super::shared_folder::refuse_shared_folder;
use super::{OnExpiry, SinkOptions};
use crate::output_watch::{OnMissing, OutputChangeLabels, OutputMetrics, OutputWatch, RestoreBackoff, WatchedOutput};
use crate::token::{Token, TokenWatch};

/// Writes a session's token to a file. Each sink has its own task and retries, so that a failure delays no other.
#[derive(Debug)]
pub struct FileSink {
    options: SinkOptions,
    watch: TokenWatch,
    clock: Clock,
    health: HealthHandle,
    metrics: Metrics,
    lock: Option<FileLock>,
    envelope: Option<Envelope>,
    /// A token was available since this sink started. Before, the file may hold the previous process's token, which may still be
    /// valid.
    had_token: bool,
    /// The file holds a token that this sink wrote.
    has_written: bool,
    outputs: OutputWatch,
    /// Watches the written file for changes by others.
    watched: Option<WatchedOutput>,
    restore_backoff: RestoreBackoff,
    outage: Outage,
    /// The error of the current outage that was logged.
    logged_error: Option<String>,
}

impl FileSink {
    /// Creates a sink. Touches no file yet.
    pub fn new(options: SinkOptions, watch: TokenWatch, clock: Clock, health: HealthHandle, metrics: Metrics) -> Self {
        let envelope = options.encrypt.clone().map(Envelope::new);
        let outputs = OutputWatch::disabled();
        let watched = None;
        let restore_backoff = RestoreBackoff::default();
        let lock = None;
        let had_token = false;
        let has_written = false;
        health.set_target(options.path.display().to_string());
        let sink = Self {
            options,
            watch,
            clock,
            health,
            metrics,
            lock,
            envelope,
            had_token,
            has_written,
            outputs,
            watched,
            restore_backoff,
            outage: Outage::default(),
            logged_error: None,
        };
        sink.set_state(WAITING);
        sink
    }

    /// Watches for changes of the file by others.
    #[must_use]
    pub fn with_output_watch(mut self, outputs: OutputWatch) -> Self {
        self.outputs = outputs;
        self
    }

    /// Writes each new token, and applies `on_expiry` once there is none, until `stop` is cancelled. A failed write is retried
    /// after 0.5 s to 60 s, at most twice as long as it has failed, and at once when the token changes.
    pub async fn run(&mut self, stop: CancellationToken) {
        // A process that was killed during a write leaves a temporary file that holds a token.
        self.sweep().await;
        let mut backoff = Backoff::new(RETRY_BASE, RETRY_MAX);
        let mut has_ended = false;
        let mut is_changed_by_others = false;
        while !stop.is_cancelled() {
            let state = self.watch.current().availability;
            let result =
                if is_changed_by_others { self.check(&state).await } else { self.follow(&state).await.map(drop) };
            let retry_in = match result {
                Ok(()) => {
                    backoff.reset();
                    None
                }
                Err(error) => {
                    let wait = backoff.next_half_jitter(random_unit());
                    self.record_failure(&error, wait);
                    self.health.set_retry_at(self.clock.now() + wait);
                    Some(wait)
                }
            };
            let retry_at = retry_in.map(|span| self.clock.now() + span);
            let mut check_at = None;
            is_changed_by_others = loop {
                tokio::select! {
                    () = stop.cancelled() => break false,
                    changed = self.watch.changed(), if !has_ended => {
                        has_ended = changed.is_err();
                        if has_ended || !self.watch.current().availability.is_same(&state) {
                            backoff.reset();
                            break false;
                        }
                    }
                    () = self.clock.sleep_until_some(retry_at) => break false,
                    () = wait_for_change(self.watched.as_ref()), if check_at.is_none() => {
                        let check_time = self.restore_backoff.check_at(&self.clock);
                        // A write that fails may change the folder itself: it must not repeat itself at once.
                        let earliest = retry_at.map(|_| self.clock.now() + RETRY_BASE);
                        check_at = Some(earliest.map_or(check_time, |earliest| check_time.later(earliest)));
                    }
                    // A change while a write is to be repeated may be the remedy: it is tried again, not only checked.
                    () = self.clock.sleep_until_some(check_at) => break retry_at.is_none(),
                }
            };
        }
    }

    /// Restores or keeps the file after it was deleted or changed from outside.
    async fn check(&mut self, state: &Availability<Token>) -> Result<(), SinkError> {
        let Some(watched) = self.watched.as_ref().filter(|_| matches!(state, Availability::Available(_))) else {
            return Ok(());
        };
        if !watched.is_changed().await {
            return Ok(());
        }
        let sink = self.options.name.clone();
        let path = self.options.path.display().to_string();
        if self.options.on_missing == Some(OnMissing::Leave) {
            tracing::warn!(
                event = "sink.left_changed",
                sink,
                path,
                "another process deleted or changed the sink; it is restored with the next token"
            );
            self.count_change("left");
            self.watched = None;
            return Ok(());
        }
        if self.follow(state).await? == Outcome::Written {
            tracing::warn!(
                event = "sink.restored",
                sink,
                path,
                "another process deleted or changed the sink; it was restored"
            );
            self.restore_backoff.record_restored(&self.clock);
            self.count_change("restored");
        }
        Ok(())
    }

    fn count_change(&self, outcome: &'static str) {
        let output = format!("sink/{}", self.options.name);
        self.metrics.get::<OutputMetrics>().changes.get_or_create(&OutputChangeLabels { output, outcome }).inc();
    }

    /// Removes the token from the file before it is revoked: removes the file if `on_expiry` says so, and empties it otherwise,
    /// even with `keep`. A failure is logged and not retried.
    pub async fn clear(&mut self) {
        let action = if self.options.on_expiry == OnExpiry::Remove { FileAction::Remove } else { FileAction::Truncate };
        if let Err(error) = self.perform(action).await {
            self.record_failure(&error, Duration::ZERO);
        }
    }

    async fn follow(&mut self, state: &Availability<Token>) -> Result<Outcome, SinkError> {
        let mut outcome = Outcome::Unchanged;
        match state {
            Availability::Available(token) => {
                self.had_token = true;
                let mut bytes = render(token, self.options.format);
                if let Some(envelope) = &mut self.envelope {
                    bytes = envelope.seal(bytes).await?;
                }
                outcome = self.perform(FileAction::Write(bytes)).await?;
                if self.options.on_missing.is_some() {
                    let watched = self.watched.get_or_insert_with(|| self.outputs.file(&self.options.path));
                    watched.renew().await;
                }
                self.has_written = true;
                self.set_state(HOLDS_NEWEST);
                self.health.set_ready();
            }
            Availability::Unavailable { reason, .. } => {
                let action = match self.options.on_expiry {
                    OnExpiry::Truncate if self.had_token => Some(FileAction::Truncate),
                    OnExpiry::Remove if self.had_token => Some(FileAction::Remove),
                    _ => None,
                };
                if let Some(action) = action {
                    self.perform(action).await?;
                }
                self.has_written = false;
                self.set_state(WAITING);
                self.health.set_not_ready(format!("waiting for a token: {reason}"));
            }
        }
        Ok(outcome)
    }

    async fn perform(&mut self, action: FileAction) -> Result<Outcome, SinkError> {
        let path = self.options.path.clone();
        let SinkOptions { mode, owner, group, .. } = self.options;
        let attributes = Attributes { mode, owner, group };
        let is_refused_if_shared = !self.options.shared_folder && matches!(action, FileAction::Write(_));
        let lock = self.lock.take();
        let event = action.event();
        let message = action.message();
        let work = move || {
            if is_refused_if_shared {
                refuse_shared_folder(&path)?;
            }
            let lock = match lock {
                Some(lock) if lock.is_held(&path) => lock,
                // The folder was removed or replaced.
                _ => FileLock::acquire(&path)?,
            };
            let outcome = action.run(&path, &attributes);
            Ok::<_, SinkError>((lock, outcome))
        };
        let (lock, outcome) = tokio::task::spawn_blocking(work).await.map_err(|_| SinkError::Broken)??;
        self.lock = Some(lock);
        let outcome = outcome?;
        if let Some(lasted_seconds) = self.outage.record_success(self.clock.now()) {
            let sink = &self.options.name;
            tracing::info!(event = "sink.recovered", sink, lasted_seconds, "the sink can be written again");
            self.logged_error = None;
        }
        if outcome == Outcome::Written {
            tracing::info!(
                event,
                sink = self.options.name,
                path = self.options.path.display().to_string(),
                "{message}"
            );
            self.record_write();
        }
        Ok(outcome)
    }

    async fn sweep(&self) {
        let path = self.options.path.clone();
        // Errors are ignored: a missing folder has nothing to sweep, and the first write reports any other.
        if let Ok(Ok(swept @ 1..)) = tokio::task::spawn_blocking(move || atomic_file::sweep(&path)).await {
            tracing::info!(
                event = "sink.swept",
                sink = self.options.name,
                files = swept,
                "removed temporary files of interrupted writes"
            );
        }
    }

    fn record_failure(&mut self, error: &SinkError, retry_in: Duration) {
        self.outage.record_failure(self.clock.now());
        let code = error.code();
        let error = format_chain(error);
        // A retry that fails in the same way, such as with a folder in the sink's place, says nothing new.
        if self.logged_error.as_ref() != Some(&error) {
            tracing::warn!(
                event = "sink.write.failed",
                sink = self.options.name,
                path = self.options.path.display().to_string(),
                retry_in_seconds = seconds(retry_in),
                code = code.as_str(),
                error,
                "cannot write the sink"
            );
            self.logged_error = Some(error.clone());
        }
        self.set_state(FAILING);
        self.metrics.get::<SinkMetrics>().failures.get_or_create(&self.label()).inc();
        self.health.set_failed(code, error);
        self.health.keep_previous(self.has_written);
    }

    fn record_write(&self) {
        self.health.record_update();
        let since_epoch = self.clock.now().wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
        self.metrics.get::<SinkMetrics>().written.get_or_create(&self.label()).set(seconds);
    }

    fn set_state(&self, state: i64) {
        self.metrics.get::<SinkMetrics>().state.get_or_create(&self.label()).set(state);
    }

    fn label(&self) -> SinkLabels {
        SinkLabels { sink: self.options.name.clone() }
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        // A sink that a reload removed must not show as waiting.
        self.metrics.get::<SinkMetrics>().state.remove(&self.label());
        self.metrics.get::<SinkMetrics>().written.remove(&self.label());
    }
}

async fn wait_for_change(watched: Option<&WatchedOutput>) {
    match watched {
        Some(watched) => watched.changed().await,
        None => std::future::pending().await,
    }
}

/// Change of the file.
enum FileAction {
    Write(Vec<u8>),
    Truncate,
    Remove,
}

impl FileAction {
    const fn event(&self) -> &'static str {
        match self {
            Self::Write(_) => "sink.written",
            Self::Truncate => "sink.emptied",
            Self::Remove => "sink.removed",
        }
    }

    /// Returns the message of the log event.
    const fn message(&self) -> &'static str {
        match self {
            Self::Write(_) => "wrote the sink",
            Self::Truncate => "emptied the sink",
            Self::Remove => "removed the sink",
        }
    }

    fn run(self, path: &Path, attributes: &Attributes) -> Result<Outcome, ReplaceError> {
        match self {
            Self::Write(bytes) => atomic_file::replace(path, &bytes, attributes),
            Self::Truncate => atomic_file::truncate(path, attributes),
            Self::Remove => atomic_file::remove(path),
        }
    }
}

// Values of the metric `keyward_sink_state`.
const HOLDS_NEWEST: i64 = 0;
const WAITING: i64 = 1;
const FAILING: i64 = 2;

const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
