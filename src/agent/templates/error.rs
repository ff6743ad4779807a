//! Errors of templates with their position, and never with the content of a secret.

use gotmpl::TemplateError as EngineError;

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
    /// Converts an error of the parser.
    pub(super) fn from_syntax(error: EngineError) -> Self {
        match error {
            EngineError::Parse { line, col, message, .. } | EngineError::Lex { line, col, message, .. } => {
                Self { line, column: col, message }
            }
            other => Self { line: 0, column: 0, message: other.to_string() },
        }
    }

    /// Converts an error of a rendering at `offset`. The engine's message is replaced where it contains a value, which may be a
    /// secret.
    pub(super) fn from_rendering(text: &str, offset: usize, error: &EngineError) -> Self {
        let (line, column) = line_and_column(text, offset);
        let message = match error {
            EngineError::Exec(message) if message.starts_with("can't use ") => {
                "range over a number sets one variable, not two".to_owned()
            }
            EngineError::Exec(message) => match message.split_once("must be string, got ") {
                Some((before, _)) => format!("{before}must be a string"),
                None => message.clone(),
            },
            EngineError::MissingKey { key } => {
                format!("there is no {key:?} here; if it is optional, use index, which returns nothing then")
            }
            EngineError::IndexOutOfRange { .. } => "the index is out of range".to_owned(),
            EngineError::FuncPanic { name, .. } => format!("the function {name} cannot use its arguments"),
            EngineError::TypeMismatch { .. }
            | EngineError::RecursionLimit
            | EngineError::RangeIterLimit
            | EngineError::UndefinedTemplate(_)
            | EngineError::UndefinedFunction(_)
            | EngineError::UndefinedVariable(_)
            | EngineError::ArgCount { .. }
            | EngineError::NotIterable(_) => error.to_string(),
            _ => "it cannot be rendered".to_owned(),
        };
        Self { line, column, message }
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

    #[test]
    fn values_are_removed_from_the_engines_messages() {
        let check = |error: EngineError, expected: &str| {
            let wrong = TemplateError::from_rendering("x", 0, &error).to_string();
            assert_eq!(wrong, format!("line 1, column 1: {expected}"));
        };
        let exec = |message: &str| EngineError::Exec(message.to_owned());
        check(exec("can't use 4711 to iterate over"), "range over a number sets one variable, not two");
        check(exec("printf: first arg must be string, got 4711"), "printf: first arg must be a string");
        let panic = EngineError::FuncPanic { name: "slice".to_owned(), message: "canary".to_owned() };
        check(panic, "the function slice cannot use its arguments");
    }
}
