//! A line on the terminal that says what a command waits for. Elsewhere nothing is written.

use std::io::{IsTerminal as _, Write as _};

use super::output::strip_control_chars;

/// Maximum length of the line, so that it does not wrap on a usual terminal.
const MAX_LENGTH: usize = 76;

/// Shows what the command waits for, in place of the previous line.
pub(super) fn show_progress(text: &str) {
    let text: String = strip_control_chars(text).replace(['\n', '\t'], " ");
    let cut: String = text.chars().take(MAX_LENGTH).collect();
    let end = if cut.len() < text.len() { "..." } else { "" };
    write(&format!("\r\x1b[K{cut}{end}"));
}

/// Removes the line.
pub(super) fn clear_progress() {
    write("\r\x1b[K");
}

/// Removes the line when dropped, also where the command fails.
#[must_use = "the line is removed when this is dropped"]
pub(super) struct ProgressLine(());

impl ProgressLine {
    /// Shows what the command waits for until the drop.
    pub(super) fn start(text: &str) -> Self {
        show_progress(text);
        Self(())
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        clear_progress();
    }
}

fn write(text: &str) {
    let mut output = std::io::stderr();
    if output.is_terminal() {
        // Nobody can be told that standard error does not work.
        let _ = output.write_all(text.as_bytes());
    }
}
