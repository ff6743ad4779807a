//! Where log lines go: standard error, as text or JSON, filtered by level and target.

use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry, reload};

use super::lines::Lines;
use crate::config::{Log, LogFormat};

/// Changes the filter of a running log.
#[derive(Debug, Clone)]
pub struct LogLevel(reload::Handle<Targets, registry::Registry>);

impl LogLevel {
    /// Filters by `targets` from now on.
    pub fn set(&self, targets: Targets) {
        if let Err(error) = self.0.reload(targets) {
            tracing::warn!(event = "log.level.failed", %error, "the log level stays as it was");
        }
    }
}

/// A started log. Dropped, it waits a second at most for lines that are on their way out.
#[derive(Debug)]
#[must_use = "what is logged last is lost without it"]
pub struct Logging {
    /// Changes its filter.
    pub level: LogLevel,
    lines: Lines,
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.lines.flush(Duration::from_secs(1));
    }
}

/// Starts the process's log. A second start keeps the first.
///
/// Lines are written by a thread of their own: a reader that has stalled costs lines, which are counted, and no time.
///
/// # Errors
/// The thread cannot be started.
pub fn start(targets: Targets, format: LogFormat) -> std::io::Result<Logging> {
    let (filter, handle) = reload::Layer::new(targets);
    let logging = Logging { level: LogLevel(handle), lines: Lines::default() };
    let layer = fmt::layer().with_writer(logging.lines.clone()).with_ansi(false);
    let layer = match format {
        LogFormat::Text => layer.with_filter(filter).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_filter(filter).boxed(),
    };
    // Fails only where a log was started before, as several tests in one process do.
    if registry().with(layer).try_init().is_ok() {
        let lines = logging.lines.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            lines.write_to(&mut std::io::stderr(), |count| {
                tracing::warn!(event = "log.lines.dropped", count, "the log's reader stalled, lines were dropped");
            });
        })?;
    }
    Ok(logging)
}

/// The filter that a configuration asks for. At the usual level the cloud's library, which tells each call that it
/// makes, is heard from `warn` on.
pub fn targets(log: &Log) -> Targets {
    let chatty = (log.level == LevelFilter::INFO).then_some(("azure_identity".to_owned(), LevelFilter::WARN));
    let named = log.targets.iter().map(|(name, level)| (name.clone(), *level));
    Targets::new().with_default(log.level).with_targets(chatty.into_iter().chain(named))
}
