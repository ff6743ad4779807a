//! The process's log: lines on standard error, as text or JSON, filtered by level and target.

use std::io::Write;
use std::time::Duration;

use keyward_config::{Environment, Log, LogFormat};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry, reload};

use super::journal::{self, JournalFormat};
use super::log_writer::LogWriter;

/// Changes the filter of a running log.
#[derive(Debug, Clone)]
pub struct LogLevel(reload::Handle<Targets, registry::Registry>);

impl LogLevel {
    /// Filters by `targets` from now on.
    pub(crate) fn set(&self, targets: Targets) {
        if let Err(error) = self.0.reload(targets) {
            tracing::warn!(event = "log.level.failed", error = error.to_string(), "the log level stays as it was");
        }
    }
}

/// Running log. Dropping it flushes queued lines for at most one second.
#[derive(Debug)]
#[must_use = "what is logged last is lost without it"]
pub struct Logging {
    /// Changes its filter.
    pub level: LogLevel,
    lines: LogWriter,
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.lines.flush(Duration::from_secs(1));
    }
}

/// Starts the process's log. A second start keeps the first.
///
/// Lines are written by a thread of their own: a reader that has stalled costs lines, which are counted, and no time. In the
/// text format, lines for the journal have a priority.
pub fn start(targets: Targets, format: LogFormat) -> std::io::Result<Logging> {
    let is_journal = journal::is_stderr(&Environment::current().variables);
    start_on(targets, format, is_journal, std::io::stderr())
}

/// Starts the log as [`start`] does, into a file.
#[cfg(feature = "dev")]
pub fn start_in(targets: Targets, format: LogFormat, file: std::fs::File) -> std::io::Result<Logging> {
    start_on(targets, format, false, file)
}

fn start_on(
    targets: Targets,
    format: LogFormat,
    is_journal: bool,
    mut out: impl Write + Send + 'static,
) -> std::io::Result<Logging> {
    let (filter, handle) = reload::Layer::new(targets);
    let logging = Logging { level: LogLevel(handle), lines: LogWriter::default() };
    let layer = fmt::layer().with_writer(logging.lines.clone()).with_ansi(false);
    let layer = match format {
        LogFormat::Text if is_journal => layer.event_format(JournalFormat::default()).with_filter(filter).boxed(),
        LogFormat::Text => layer.with_filter(filter).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_filter(filter).boxed(),
    };
    // Fails only where a log was started before, as several tests in one process do.
    let registry = registry().with(layer);
    #[cfg(feature = "ui")]
    let registry = registry.with(keyward_telemetry::recent_events::RecentEvents);
    if registry.try_init().is_ok() {
        let lines = logging.lines.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            lines.write_to(&mut out, |count| {
                tracing::warn!(
                    event = "log.lines.dropped",
                    count,
                    "the log's reader stalled or a write failed, lines were dropped"
                );
            });
        })?;
    }
    Ok(logging)
}

/// The filter of a configuration. At the level `info`, libraries log from `warn` on: their lines about each call would
/// repeat ours. At `debug` they log at the same level as keyward.
pub fn targets(log: &Log) -> Targets {
    let (default_level, own_target) = match log.level {
        LevelFilter::INFO => (LevelFilter::WARN, Some((OURS.to_owned(), LevelFilter::INFO))),
        level => (level, None),
    };
    Targets::new().with_default(default_level).with_targets(own_target.into_iter().chain(log.targets.clone()))
}

/// The targets of this program's own lines begin so: they are paths of modules, in the crates `keyward_agent`, `keyward_http` and so on.
const OURS: &str = "keyward";

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_log_at_debug_and_keyward_at_info() {
        let is_enabled = |log: &str, target: &str, record: Level| {
            let level = log.parse().unwrap();
            let targets = std::collections::BTreeMap::new();
            let log = Log { level, targets, format: LogFormat::Text };
            super::targets(&log).would_enable(target, &record)
        };
        for library in ["typespec_client_core::http::policies::logging", "azure_identity", "hyper_util::client"] {
            assert!(!is_enabled("info", library, Level::INFO), "{library}");
            assert!(is_enabled("info", library, Level::WARN) && is_enabled("debug", library, Level::INFO), "{library}");
        }
        assert!(is_enabled("info", "keyward_agent::token_lifecycle", Level::INFO));
        assert!(!is_enabled("info", "keyward_agent::token_lifecycle", Level::DEBUG));
        assert!(!is_enabled("warn", "keyward_agent::token_lifecycle", Level::INFO));
    }
}
