//! Output of commands: lines on standard output, and notes, warnings and errors on standard error.

use std::io::Write as _;
use std::sync::OnceLock;

use keyward_app::journal;
use keyward_config::Environment;
use keyward_telemetry::error_code::ErrorCode;

use super::Exit;

/// Prints a line of a command's own output.
pub(super) fn print_line(line: &str) {
    record_write_failure(writeln!(std::io::stdout(), "{line}"));
}

/// Prints bytes of a command's output.
pub(super) fn print(bytes: &[u8]) {
    record_write_failure(std::io::stdout().write_all(bytes));
}

/// First error of writing output. A closed pipe, as with `head`, does not count.
static OUTPUT_FAILURE: OnceLock<std::io::Error> = OnceLock::new();

pub(super) fn record_write_failure(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = OUTPUT_FAILURE.set(error);
    }
}

/// Flushes the output. A failed write makes the command fail, whatever its exit code was.
pub(super) fn finish_output(exit: Exit) -> Exit {
    record_write_failure(std::io::stdout().flush());
    match OUTPUT_FAILURE.get() {
        Some(error) => {
            print_error(&format!("cannot write to standard output: {error}"));
            if exit == Exit::Ok { Exit::Failed } else { exit }
        }
        None => exit,
    }
}

/// Prints a note on standard error.
pub(super) fn print_note(line: &str) {
    write_to_stderr(NOTICE, &format!("note: {line}"));
}

/// Prints why a command failed, with the code of the error.
pub(super) fn print_error_with_code(code: ErrorCode, line: &str) {
    print_error(&ErrorCode::tag(Some(code), line));
}

/// Prints why a command failed, in one line.
pub(super) fn print_error(line: &str) {
    write_to_stderr(ERROR, &format!("error: {line}"));
}

/// Prints a warning, after which the command continues.
pub(super) fn print_warning(line: &str) {
    write_to_stderr(WARNING, &format!("warning: {line}"));
}

/// Priorities of the journal (`sd-daemon(3)`).
pub(super) const ERROR: u8 = 3;
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// Prints lines to standard error, each with its priority if that is the journal.
pub(super) fn write_to_stderr(priority: u8, text: &str) {
    let is_journal = journal::is_stderr(&Environment::current().variables);
    let prefix = if is_journal { format!("<{priority}>") } else { String::new() };
    let lines = text.lines().fold(String::new(), |lines, line| lines + &prefix + line + "\n");
    // A failure of standard error cannot be reported.
    let _ = std::io::stderr().write_all(lines.as_bytes());
}
