//! The terminal, or whatever standard output is: colours, size, and redraws in place.

use std::io::{IsTerminal as _, Write as _};

use keyward_config::Environment;

use super::format::Line;
use crate::cli::{print_line, record_write_failure};

/// Properties of standard output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    is_terminal: bool,
    in_colour: bool,
}

impl Screen {
    /// Detects a terminal. Colours need one, and are off if `NO_COLOR` is set (no-color.org) or `TERM` is `dumb`.
    pub(super) fn detect() -> Self {
        let variables = Environment::current().variables;
        let value = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let is_terminal = std::io::stdout().is_terminal();
        Self { is_terminal, in_colour: is_terminal && value("NO_COLOR").is_empty() && value("TERM") != "dumb" }
    }

    pub(super) const fn is_terminal(self) -> bool {
        self.is_terminal
    }

    /// Prints lines below each other.
    pub(super) fn print(self, lines: &[Line]) {
        for line in lines {
            print_line(&line.paint(self.in_colour));
        }
    }

    /// Redraws the whole screen. Lines that do not fit are cut, so that nothing scrolls.
    pub(super) fn redraw(self, lines: &[Line]) {
        let (rows, columns) = size();
        let mut text = String::from(HOME);
        for line in fit(lines, rows, columns) {
            text.push_str(&line.paint(self.in_colour));
            text.push_str(END_OF_LINE);
        }
        text.push_str(CLEAR_BELOW);
        write(&text);
    }
}

/// The terminal's alternate screen, which the drop leaves with the shell's contents as they were.
pub(super) struct AlternateScreen(());

impl AlternateScreen {
    pub(super) fn enter() -> Self {
        write(ENTER_ALTERNATE);
        Self(())
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        write(LEAVE_ALTERNATE);
    }
}

/// Cuts lines to a size; the last row says how many are omitted.
fn fit(lines: &[Line], rows: usize, columns: usize) -> Vec<Line> {
    let cut = |line: &Line| {
        let state = line.state.map_or(0, |_| super::format::STATE_WIDTH);
        Line { state: line.state, text: line.text.chars().take(columns.saturating_sub(state)).collect() }
    };
    if lines.len() < rows {
        return lines.iter().map(cut).collect();
    }
    // One row stays free for the cursor, one is for the count.
    let visible_rows = rows.saturating_sub(2);
    let rest = format!("... {} more lines", lines.len() - visible_rows);
    lines.iter().take(visible_rows).map(cut).chain([Line::plain(rest)]).collect()
}

/// Returns rows and columns of the terminal, or those of the smallest usual one.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 2 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    }
}

fn write(text: &str) {
    let mut output = std::io::stdout();
    record_write_failure(output.write_all(text.as_bytes()).and_then(|()| output.flush()));
}

const ENTER_ALTERNATE: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE_ALTERNATE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
/// Clears the rest of the line and begins the next.
const END_OF_LINE: &str = "\x1b[K\r\n";
const CLEAR_BELOW: &str = "\x1b[J";

#[cfg(test)]
mod tests {
    use keyward_telemetry::status::StatusState;

    use super::*;

    #[test]
    fn lines_are_cut_to_the_terminal() {
        let line = |text: &str| Line { state: Some(StatusState::Ok), text: text.to_owned() };
        let texts = |lines: Vec<Line>| lines.into_iter().map(|line| line.paint(false)).collect::<Vec<_>>();
        assert_eq!(texts(fit(&[line("abcdef"), Line::plain("abcdef")], 24, 12)), ["OK       abc", "abcdef"]);
        let five = ["1", "2", "3", "4", "5"].map(Line::plain);
        assert_eq!(texts(fit(&five, 6, 80)), ["1", "2", "3", "4", "5"]);
        assert_eq!(texts(fit(&five, 5, 80)), ["1", "2", "3", "... 2 more lines"]);
    }
}
