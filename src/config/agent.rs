//! `[agent]` and `[log]`: the process as a whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use keyward_telemetry::time_format::format_duration;
use tracing::level_filters::LevelFilter;

use super::reader::Reader;
use super::tree::quote;
use super::values::{ValueError, invalid};
use super::{Agent, Log, LogFormat, ReadyWhen, SandboxMode};

/// Default of `agent.state_dir`.
pub(crate) const STATE_DIR: &str = "/var/lib/keyward";

impl Default for Agent {
    fn default() -> Self {
        let default = Path::new(STATE_DIR);
        let state_dir = default.is_dir().then(|| default.to_owned());
        Self {
            state_dir,
            sandbox: SandboxMode::BestEffort,
            ready: ReadyWhen::Outputs,
            stop_grace: Duration::from_secs(10),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: LevelFilter::INFO, targets: BTreeMap::new(), format: LogFormat::Text }
    }
}

/// Reads `[agent]`.
pub(super) fn read(mut reader: Reader<'_>) -> Agent {
    let default = Agent::default();
    // Taken when the files were gathered.
    reader.locate("drop_in");
    let state_dir =
        if reader.locate("state_dir").is_some() { reader.state_folder("state_dir") } else { default.state_dir };
    let ready = [("listener", ReadyWhen::Listener), ("token", ReadyWhen::Token), ("outputs", ReadyWhen::Outputs)];
    let sandbox = SandboxMode::ALL.map(|mode| (mode.name(), mode));
    let agent = Agent {
        state_dir,
        sandbox: reader.choice("sandbox", &sandbox).unwrap_or(default.sandbox),
        ready: reader.choice("ready", &ready).unwrap_or(default.ready),
        stop_grace: reader.duration("stop_grace", default.stop_grace, Duration::ZERO..=Duration::from_mins(10)),
    };
    reader.finish();
    agent
}

/// Reads `[log]`.
pub(super) fn read_log(mut reader: Reader<'_>) -> Log {
    let (level, targets) = reader.parse_text("level", levels).unwrap_or((LevelFilter::INFO, BTreeMap::new()));
    let format = reader.choice("format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    reader.finish();
    Log { level, targets, format: format.unwrap_or(LogFormat::Text) }
}

/// Default level and levels by target, parsed from a string such as `info,keyward_http=debug`.
type LogLevels = (LevelFilter, BTreeMap<String, LevelFilter>);

fn levels(text: &str) -> Result<LogLevels, ValueError> {
    let advice = "write error, warn, info, debug, trace or off, and TARGET=LEVEL after a comma";
    let mut all = None;
    let mut targets = BTreeMap::new();
    for part in text.split(',').map(str::trim) {
        let (target, word) = part.split_once('=').map_or((None, part), |(target, word)| (Some(target), word));
        let Some(level) = level(word) else { return invalid("is not a log level", advice) };
        let duplicate = match target {
            None => all.replace(level).is_some(),
            Some(target) if is_target(target) => targets.insert(target.to_owned(), level).is_some(),
            Some(_) => return invalid("is not a log level", advice),
        };
        if duplicate {
            return invalid("gives a level twice", advice);
        }
    }
    Ok((all.unwrap_or(LevelFilter::INFO), targets))
}

/// Reads the levels that a command line gives, in the form that `[log]` has them, over a format.
pub fn log(text: &str, format: LogFormat) -> Result<Log, String> {
    let error = |error: ValueError| format!("{} {}; {}", quote(text), error.message, error.advice);
    let (level, targets) = levels(text).map_err(error)?;
    Ok(Log { level, targets, format })
}

/// The words that are levels; the parser of the logging library takes numbers and capitals too.
fn level(word: &str) -> Option<LevelFilter> {
    matches!(word, "error" | "warn" | "info" | "debug" | "trace" | "off").then(|| word.parse().ok()).flatten()
}

fn is_target(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-'))
}

/// Describes readiness, rights, stop and log in clauses.
pub(super) fn describe(agent: &Agent, log: &Log) -> Vec<String> {
    let ready = match agent.ready {
        ReadyWhen::Listener => "its listeners are bound",
        ReadyWhen::Token => "every session has its first token",
        ReadyWhen::Outputs => "every session has its first token and every required output has taken it",
    };
    let sandbox = match agent.sandbox {
        SandboxMode::Enforce => "limits its rights to what the configuration needs, or does not start",
        SandboxMode::BestEffort => "limits its rights to what the configuration needs, as far as the kernel can",
        SandboxMode::Off => "keeps the rights that it is started with",
    };
    let format = match log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "JSON",
    };
    let levels: Vec<_> = std::iter::once(log.level.to_string())
        .chain(log.targets.iter().map(|(target, level)| format!("{target} at {level}")))
        .collect();
    vec![
        format!("is ready when {ready}"),
        sandbox.to_owned(),
        format!("waits up to {} for requests in flight when it stops", format_duration(agent.stop_grace)),
        format!("logs at {}, as {format}", levels.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_log_level_of_the_command_line_is_shown_in_its_error() {
        let expected =
            "\"loud\" is not a log level; write error, warn, info, debug, trace or off, and TARGET=LEVEL after a comma";
        assert_eq!(log("loud", LogFormat::Text).unwrap_err(), expected);
        assert!(log("", LogFormat::Text).unwrap_err().starts_with("\"\" is not a log level; "));
    }

    #[test]
    fn a_log_level_may_name_targets() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found =
                levels(text).map(|(level, targets)| format!("{level} {targets:?}")).map_err(|error| error.message);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        };
        check("debug", Ok("debug {}"));
        check("off", Ok("off {}"));
        check("warn, keyward_http=trace", Ok(r#"warn {"keyward_http": LevelFilter::TRACE}"#));
        check("a=debug,b=off", Ok(r#"info {"a": LevelFilter::DEBUG, "b": LevelFilter::OFF}"#));
        check("loud", Err("is not a log level"));
        check("5", Err("is not a log level"));
        check("info,", Err("is not a log level"));
        check("=info", Err("is not a log level"));
        check("info,debug", Err("gives a level twice"));
    }
}
