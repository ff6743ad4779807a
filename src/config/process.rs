//! `[process]`: the program that runs with the rendered variables.

use std::time::Duration;

use keyward_agent::process::{OnChange, ProcessOptions, RestartLimit, RestartMode};
use keyward_machine::command::{parse_signal, signal_name};
use keyward_telemetry::time_format::format_duration;
use rustix::process::Signal;

use super::NeedKind;
use super::output_command::{variables, warn_if_program_missing};
use super::reader::Reader;
use super::references::Text;
use super::values::{self, ValueError, invalid};

/// Reads `[process]`, `None` if it names no program, and the identity whose variables it gets.
pub(super) fn read(mut reader: Reader<'_>) -> (Option<ProcessOptions>, Option<Text>) {
    let identity = reader.text("identity");
    let command = reader.command_line("command");
    if command.is_none() && reader.locate("command").is_none() {
        reader
            .missing("command", "write the program and each of its arguments, such as [\"/usr/bin/app\", \"--serve\"]");
    }
    let command: Vec<String> = command.unwrap_or_default().into_iter().map(|text| text.value).collect();
    if let (Some(program), Some(at)) = (command.first(), reader.locate("command")) {
        warn_if_program_missing(&reader, at, program);
    }
    let keywords =
        [("restart", OnChange::Restart), ("signal", OnChange::Signal(Signal::HUP)), ("ignore", OnChange::Ignore)];
    let on_change = reader.choice("on_change", &keywords).unwrap_or(OnChange::Restart);
    let signal_location = reader.locate("change_signal");
    let change_signal = reader.parse_text("change_signal", signal);
    let on_change = match (on_change, signal_location) {
        (OnChange::Signal(default), _) => OnChange::Signal(change_signal.unwrap_or(default)),
        (other, None) => other,
        (other, Some(at)) => {
            let message = "only allowed with on_change = \"signal\"";
            reader.error(at, "change_signal", message, "set on_change = \"signal\", or leave it out");
            other
        }
    };
    let limit_location = reader.locate("max_restarts_per");
    let max_restarts_per = reader.parse_text("max_restarts_per", restart_limit);
    if let Some(at) = limit_location.filter(|_| on_change != OnChange::Restart) {
        let message = "only allowed with on_change = \"restart\"";
        reader.error(at, "max_restarts_per", message, "set on_change = \"restart\", or leave it out");
    }
    let restart =
        [("never", RestartMode::Never), ("on_failure", RestartMode::OnFailure), ("always", RestartMode::Always)];
    let options = ProcessOptions {
        command,
        variables: variables(&mut reader),
        on_change,
        max_restarts_per,
        restart: reader.choice("restart", &restart).unwrap_or(RestartMode::Never),
        stop_signal: reader.parse_text("stop_signal", signal).unwrap_or(Signal::TERM),
        stop_timeout: reader.duration(
            "stop_timeout",
            Duration::from_secs(30),
            Duration::from_millis(100)..=Duration::from_mins(10),
        ),
        debounce: reader.duration("debounce", Duration::from_secs(2), Duration::ZERO..=Duration::from_mins(5)),
    };
    let has_command = !options.command.is_empty();
    if has_command {
        reader.record(reader.key("command"), NeedKind::Run(options.command.clone()));
    }
    reader.finish();
    (has_command.then_some(options), identity)
}

fn signal(text: &str) -> Result<Signal, ValueError> {
    match parse_signal(text) {
        Some(signal) => Ok(signal),
        None => {
            invalid("is not a supported signal", "write SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2 or SIGKILL")
        }
    }
}

/// Parses a limit of restarts: `3/1h`.
fn restart_limit(text: &str) -> Result<RestartLimit, ValueError> {
    const FORM: &str = "write how many in which time, such as \"3/1h\"";
    let Some((max, span)) = text.split_once('/') else { return invalid("is not a number in a time", FORM) };
    let max = max.trim().parse().ok().filter(|max| (1..=MAX_RESTARTS).contains(max));
    let Some(max) = max else {
        return invalid(format!("does not begin with a number from 1 to {MAX_RESTARTS}"), FORM);
    };
    match values::duration(span, &(Duration::from_secs(1)..=Duration::from_hours(7 * 24))) {
        Ok(span) => Ok(RestartLimit { max, span }),
        Err(error) => invalid(format!("has a time that {}", error.message), error.advice),
    }
}

/// Maximum number of `max_restarts_per`, whose times are kept in memory.
const MAX_RESTARTS: usize = 1000;

/// Describes the child process for `keyward check`, one clause per entry.
pub(super) fn describe(process: &ProcessOptions) -> Vec<String> {
    let arguments = process.command.iter().map(|argument| if argument.is_empty() { "\"\"" } else { argument });
    vec![
        format!(
            "runs {} once all templates are rendered and all certificates are written",
            arguments.collect::<Vec<_>>().join(" ")
        ),
        match process.on_change {
            OnChange::Restart => {
                let limit = process.max_restarts_per.map(|RestartLimit { max, span }| {
                    let times = if max == 1 { "once".to_owned() } else { format!("{max} times") };
                    format!(", {times} in {} at most", format_duration(span))
                });
                format!("restarts it when a variable has changed{}", limit.unwrap_or_default())
            }
            OnChange::Signal(signal) => format!("sends it SIG{} when a variable has changed", signal_name(signal)),
            OnChange::Ignore => "leaves it alone when a variable has changed".to_owned(),
        },
        match process.restart {
            RestartMode::Never => "exits with its exit code when it ends".to_owned(),
            RestartMode::OnFailure => "restarts it when it fails, and exits when it succeeds".to_owned(),
            RestartMode::Always => "restarts it whenever it ends".to_owned(),
        },
        format!(
            "stops it with SIG{}, and kills it after {}",
            signal_name(process.stop_signal),
            format_duration(process.stop_timeout)
        ),
    ]
}
