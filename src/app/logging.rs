//! Where log lines go: standard error, as text or JSON, filtered by level and target.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry, reload};

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

/// Starts the process's log. A second start keeps the first.
pub fn start(targets: Targets, format: LogFormat) -> LogLevel {
    let (filter, handle) = reload::Layer::new(targets);
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let lines = match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    // Fails only where a log was started before, as several tests in one process do.
    let _ = registry().with(lines).try_init();
    LogLevel(handle)
}

/// The filter that a configuration asks for. At the usual level the cloud's library, which tells each call that it
/// makes, is heard from `warn` on.
pub fn targets(log: &Log) -> Targets {
    let chatty = (log.level == LevelFilter::INFO).then_some(("azure_identity".to_owned(), LevelFilter::WARN));
    let named = log.targets.iter().map(|(name, level)| (name.clone(), *level));
    Targets::new().with_default(log.level).with_targets(chatty.into_iter().chain(named))
}

/// Reads a filter such as `info` or `info,hyper=warn`.
///
/// # Errors
/// In words: what is wrong with it.
pub fn parse(text: &str) -> Result<Targets, String> {
    text.parse::<Targets>()
        .map_err(|error| format!("--log-level: \"{text}\" is not a log level (example: \"info\"): {error}"))
}
