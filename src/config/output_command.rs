//! Keys of the command that runs after an output has changed, and of the variables that programs get.

use std::path::Path;
use std::time::Duration;

use keyward_agent::output_command::OutputCommand;
use keyward_machine::command::{CommandSpec, EnvVars, is_reserved};

use super::NeedKind;
use super::diagnostic::Location;
use super::reader::Reader;
use super::tree::quote;

/// Reads the command that runs after a change of an output.
pub(super) fn output_command(reader: &mut Reader<'_>) -> Option<OutputCommand> {
    let timeout = reader.duration(
        "command_timeout",
        Duration::from_secs(30),
        Duration::from_millis(100)..=Duration::from_hours(1),
    );
    let command = command(reader)?;
    reader.record(reader.key("command"), NeedKind::Run(command.clone()));
    Some(OutputCommand { command, timeout })
}

/// The program to run: a list of its name and its arguments, or with `shell = true` one line for a shell.
fn command(reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let shell = reader.flag("shell", false);
    let Some(at) = reader.locate("command") else {
        for name in ["shell", "command_timeout"] {
            if let Some(at) = reader.locate(name) {
                reader.error(at, name, "has no effect without command", "set command, or leave it out");
            }
        }
        return None;
    };
    let arguments = if shell { reader.one_or_more("command") } else { reader.command_line("command")? };
    let arguments: Vec<String> = arguments.into_iter().map(|text| text.value).collect();
    if let (false, Some(program)) = (shell, arguments.first()) {
        warn_if_program_missing(reader, at, program);
    }
    match (shell, arguments.as_slice()) {
        (true, [line]) => Some(CommandSpec::shell_argv(line)),
        (true, _) => {
            let advice = "write the line as one string, or leave shell out";
            reader.error(at, "command", "a shell takes one string", advice);
            None
        }
        (false, [line]) if line.contains(' ') && !Path::new(line).exists() => {
            let message = format!("{} is not the name of a program", quote(line));
            let advice = "write the program and each argument as a string of its own, or shell = true";
            reader.error(at, "command", message, advice);
            None
        }
        (false, []) => None,
        (false, _) => Some(arguments),
    }
}

/// Reports a program whose absolute path does not exist. It is a warning or note, as a package may install it later.
pub(super) fn warn_if_program_missing(reader: &Reader<'_>, at: Location, program: &str) {
    if Path::new(program).is_absolute() && !program.contains(' ') && !Path::new(program).exists() {
        let message = format!("the program {program} does not exist");
        reader.scope.diagnostics.optional_on_host(at, &reader.key("command"), message, "install it, or name another");
    }
}

/// Returns the variables that a program gets: the default ones and those of `pass_env`.
pub(super) fn variables(reader: &mut Reader<'_>) -> EnvVars {
    let at = reader.locate("pass_env").unwrap_or(reader.at);
    let pass: Vec<String> = reader.list("pass_env").unwrap_or_default().into_iter().map(|text| text.value).collect();
    for name in &pass {
        let message = if is_reserved(name.trim_end_matches('*')) {
            format!("{name} is never passed to a program")
        } else if is_variable(name.strip_suffix('*').unwrap_or(name)) || name == "*" {
            continue;
        } else {
            format!("{} is not a variable name", quote(name))
        };
        let advice = "write the name of a variable; it may end in *";
        reader.error(at, "pass_env", message, advice);
    }
    EnvVars::select(&reader.scope.environment.variables, &pass)
}

pub(super) fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
