//! Errors of templates with their position, and never with the content of a secret.

use super::engine::Failure;

/// An error in a template, or in its use of secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", format_position(*line, *column))]
pub struct TemplateError {
    /// Line from 1; 0 if unknown.
    pub line: usize,
    /// Column from 1, in characters.
    pub column: usize,
    /// Description without any value of a secret.
    pub message: String,
}

fn format_position(line: usize, column: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}, column {column}: ") }
}

/// Converts a byte offset to line and column, both from 1.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let preceding = text.get(..offset.min(text.len())).unwrap_or(text);
    let line = preceding.matches('\n').count() + 1;
    let column = preceding.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

impl TemplateError {
    /// Converts an error of the engine, with its position in the text.
    pub(super) fn new(text: &str, failure: Failure) -> Self {
        let (line, column) = failure.offset.map_or((0, 0), |offset| line_and_column(text, offset));
        Self { line, column, message: failure.message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let check = |offset, expected| assert_eq!(line_and_column("ab\nü{{", offset), expected);
        check(0, (1, 1));
        check(2, (1, 3));
        check(3, (2, 1));
        check(5, (2, 2));
        check(99, (2, 4));
    }
}
