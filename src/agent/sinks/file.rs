//! One file that follows one watch.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::envelope::{Envelope, EnvelopeError};
use super::file_lock::{FileLock, FileLockError};
use super::format::render;
use super::{OnExpiry, SinkOptions};
use crate::agent::output_watch::{OnMissing, OutputWatch, RestoreBackoff, WatchedOutput};
use crate::agent::token::{Token, TokenWatch};
use crate::atomic_file::{self, Attributes, Outcome, ReplaceError};
use crate::backoff::{Backoff, random_unit};
use crate::clock::Clock;
use crate::credential_watch::Availability;
use crate::error_chain::format_chain;
use crate::health::HealthHandle;
use crate::metrics::{self, Metrics};

/// Keeps a file the same as a watch's token. Each sink has its own task and its own retries, so that one that fails
/// holds back nobody.
#[derive(Debug)]
pub struct FileSink {
    options: SinkOptions,
    watch: TokenWatch,
    clock: Clock,
    health: HealthHandle,
    metrics: Metrics,
    lock: Option<FileLock>,
    envelope: Option<Envelope>,
    /// Whether the watch has had a token since this sink started. Before that the file may hold the last run's, which
    /// may well be good still.
    served: bool,
    outputs: OutputWatch,
    /// The file since it was written, where others are watched.
    watched: Option<WatchedOutput>,
    restore_backoff: RestoreBackoff,
}

impl FileSink {
    /// A sink that has touched nothing yet.
    pub fn new(options: SinkOptions, watch: TokenWatch, clock: Clock, health: HealthHandle, metrics: Metrics) -> Self {
        let envelope = options.encrypt.clone().map(Envelope::new);
        let (outputs, watched, restore_backoff) = (OutputWatch::disabled(), None, RestoreBackoff::default());
        let (lock, served) = (None, false);
        let sink =
            Self { options, watch, clock, health, metrics, lock, envelope, served, outputs, watched, restore_backoff };
        sink.tell(WAITING);
        sink
    }

    /// The same, which notices when others delete or change the file.
    #[must_use]
    pub fn watching(mut self, outputs: OutputWatch) -> Self {
        self.outputs = outputs;
        self
    }

    /// Writes each new token, and does what `on_expiry` says when there is none any more, until `stop` is cancelled.
    /// A write that fails is tried again after 1 s to 60 s (full jitter), and at once when the watch has news.
    pub async fn run(&mut self, stop: CancellationToken) {
        self.sweep().await;
        let mut backoff = Backoff::new(FIRST_RETRY, MOST_RETRY);
        let (mut ended, mut touched) = (false, false);
        while !stop.is_cancelled() {
            let state = self.watch.current().availability;
            let done = if touched { self.check(&state).await } else { self.follow(&state).await.map(drop) };
            let retry_in = match done {
                Ok(()) => {
                    backoff.reset();
                    None
                }
                Err(error) => {
                    let wait = backoff.next(random_unit());
                    self.failed(&error, wait);
                    Some(wait)
                }
            };
            let retry_at = retry_in.map(|span| self.clock.now() + span);
            let mut check_at = None;
            touched = loop {
                tokio::select! {
                    () = stop.cancelled() => break false,
                    news = self.watch.changed(), if !ended => {
                        ended = news.is_err();
                        break false;
                    }
                    () = self.clock.sleep_until_some(retry_at) => break false,
                    () = noticed(self.watched.as_ref()), if check_at.is_none() => {
                        check_at = Some(self.restore_backoff.check_at(&self.clock));
                    }
                    () = self.clock.sleep_until_some(check_at) => break true,
                }
            };
        }
    }

    /// Writes the file again, or leaves it, where somebody else has deleted or changed it.
    async fn check(&mut self, state: &Availability<Token>) -> Result<(), SinkError> {
        let Some(watched) = self.watched.as_ref().filter(|_| matches!(state, Availability::Available(_))) else {
            return Ok(());
        };
        if !watched.is_changed().await {
            return Ok(());
        }
        let (sink, path) = (self.options.name.clone(), self.options.path.display().to_string());
        if self.options.on_missing == Some(OnMissing::Leave) {
            tracing::warn!(
                event = "sink.left_changed",
                sink,
                path,
                "somebody else deleted or changed the sink; it stays so until there is a new token"
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
                "somebody else deleted or changed the sink; it was written again"
            );
            self.restore_backoff.restored(&self.clock);
            self.count_change("restored");
        }
        Ok(())
    }

    fn count_change(&self, outcome: &'static str) {
        let output = format!("sink/{}", self.options.name);
        self.metrics.output_changes.get_or_create(&metrics::OutputChangeLabels { output, outcome }).inc();
    }

    /// Takes the token out of the file, before it is revoked: removes the file where `on_expiry` says so, and empties
    /// it otherwise (a revoked token stays nowhere, `keep` or not). A failure is logged; there is no later to try again.
    pub async fn clear(&mut self) {
        let action = if self.options.on_expiry == OnExpiry::Remove { FileAction::Remove } else { FileAction::Truncate };
        if let Err(error) = self.perform(action).await {
            self.failed(&error, Duration::ZERO);
        }
    }

    async fn follow(&mut self, state: &Availability<Token>) -> Result<Outcome, SinkError> {
        let mut outcome = Outcome::Same;
        match state {
            Availability::Available(token) => {
                self.served = true;
                let mut bytes = render(token, self.options.format);
                if let Some(envelope) = &mut self.envelope {
                    bytes = envelope.close(bytes).await?;
                }
                outcome = self.perform(FileAction::Write(bytes)).await?;
                if self.options.on_missing.is_some() {
                    let watched = self.watched.get_or_insert_with(|| self.outputs.file(&self.options.path));
                    watched.renew().await;
                }
                self.tell(HOLDS_NEWEST);
                self.health.ready();
            }
            Availability::Unavailable { reason, .. } => {
                let action = match self.options.on_expiry {
                    OnExpiry::Truncate if self.served => Some(FileAction::Truncate),
                    OnExpiry::Remove if self.served => Some(FileAction::Remove),
                    _ => None,
                };
                if let Some(action) = action {
                    self.perform(action).await?;
                }
                self.tell(WAITING);
                self.health.not_ready(format!("waiting for a token: {reason}"));
            }
        }
        Ok(outcome)
    }

    async fn perform(&mut self, action: FileAction) -> Result<Outcome, SinkError> {
        let path = self.options.path.clone();
        let SinkOptions { mode, owner, group, .. } = self.options;
        let attributes = Attributes { mode, owner, group };
        let lock = self.lock.take();
        let done = action.event();
        let work = move || {
            let lock = match lock {
                Some(lock) if lock.holds(&path) => lock,
                // Its folder is gone, or a new one stands in its place.
                _ => FileLock::take(&path)?,
            };
            let outcome = action.run(&path, &attributes);
            Ok::<_, SinkError>((lock, outcome))
        };
        let (lock, outcome) = tokio::task::spawn_blocking(work).await.map_err(|_| SinkError::Broken)??;
        self.lock = Some(lock);
        let outcome = outcome?;
        if outcome == Outcome::Written {
            tracing::info!(
                event = done, sink = %self.options.name, path = %self.options.path.display(),
                "the sink was changed"
            );
            self.written();
        }
        Ok(outcome)
    }

    async fn sweep(&self) {
        let path = self.options.path.clone();
        // A folder that is not there yet has nothing to sweep, and the first write tells what is wrong with it.
        if let Ok(Ok(swept @ 1..)) = tokio::task::spawn_blocking(move || atomic_file::sweep(&path)).await {
            tracing::info!(event = "sink.swept", sink = %self.options.name, files = swept, "leftovers were removed");
        }
    }

    fn failed(&self, error: &SinkError, retry_in: Duration) {
        let error = format_chain(error);
        tracing::warn!(
            event = "sink.write.failed", sink = %self.options.name, path = %self.options.path.display(),
            retry_in_seconds = retry_in.as_secs_f64(), error, "the sink was not changed"
        );
        self.tell(FAILING);
        self.metrics.sink_failures.get_or_create(&self.label()).inc();
        self.health.not_ready(error);
    }

    fn written(&self) {
        let since_epoch = self.clock.now().wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
        self.metrics.sink_written.get_or_create(&self.label()).set(seconds);
    }

    fn tell(&self, state: i64) {
        self.metrics.sink_state.get_or_create(&self.label()).set(state);
    }

    fn label(&self) -> metrics::SinkLabels {
        metrics::SinkLabels { sink: self.options.name.clone() }
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        // A sink that a reload took away is not a sink that waits.
        self.metrics.sink_state.remove(&self.label());
        self.metrics.sink_written.remove(&self.label());
    }
}

async fn noticed(watched: Option<&WatchedOutput>) {
    match watched {
        Some(watched) => watched.changed().await,
        None => std::future::pending().await,
    }
}

/// What is done to the file.
enum FileAction {
    Write(Zeroizing<Vec<u8>>),
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

    fn run(self, path: &Path, attributes: &Attributes) -> Result<Outcome, ReplaceError> {
        match self {
            Self::Write(bytes) => atomic_file::replace(path, &bytes, attributes),
            Self::Truncate => atomic_file::truncate(path, attributes),
            Self::Remove => atomic_file::remove(path),
        }
    }
}

// As `Metrics::sink_state` documents them.
const HOLDS_NEWEST: i64 = 0;
const WAITING: i64 = 1;
const FAILING: i64 = 2;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const MOST_RETRY: Duration = Duration::from_mins(1);

/// Why a sink was not changed.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error(transparent)]
    FileLock(#[from] FileLockError),
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    #[error("the writing task panicked; this is a mistake in the program")]
    Broken,
}
