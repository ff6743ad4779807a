//! What is wrong with a template, and where: never what a secret holds.

use gotmpl::TemplateError as EngineError;

/// A mistake in a template, or in what it makes of its secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place(*line, *column))]
pub struct TemplateError {
    /// The line, from 1; 0 where it is not known.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What it is, without any value.
    pub message: String,
}

fn place(line: usize, column: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}, column {column}: ") }
}

/// A place in a template's text: its line and column, from 1.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

impl TemplateError {
    /// A mistake of the syntax.
    pub(super) fn syntax(error: EngineError) -> Self {
        match error {
            EngineError::Parse { line, col, message, .. } | EngineError::Lex { line, col, message, .. } => {
                Self { line, column: col, message }
            }
            other => Self { line: 0, column: 0, message: other.to_string() },
        }
    }

    /// What went wrong at a place while rendering. The engine's words are taken where they hold no value: a value may be a
    /// secret.
    pub(super) fn at(text: &str, offset: usize, error: &EngineError) -> Self {
        let (line, column) = line_and_column(text, offset);
        let message = match error {
            EngineError::Exec(words) if words.starts_with("can't use ") => {
                "a number gives range one variable, and no second".to_owned()
            }
            EngineError::Exec(words) => match words.split_once("must be string, got ") {
                Some((before, _)) => format!("{before}must be a string"),
                None => words.clone(),
            },
            EngineError::MissingKey { key } => {
                format!("there is no {key:?} here; where it may be absent, ask with index, which gives nothing then")
            }
            EngineError::IndexOutOfRange { .. } => "the index is out of range".to_owned(),
            EngineError::FuncPanic { name, .. } => format!("the function {name} cannot work with what it was given"),
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
    fn a_place_counts_lines_and_characters_from_one() {
        let check = |offset, wanted| assert_eq!(line_and_column("ab\nü{{", offset), wanted);
        check(0, (1, 1));
        check(2, (1, 3));
        check(3, (2, 1));
        check(5, (2, 2));
        check(99, (2, 4));
    }

    #[test]
    fn the_engines_words_lose_the_values_in_them() {
        let check = |error: EngineError, wanted: &str| {
            let wrong = TemplateError::at("x", 0, &error).to_string();
            assert_eq!(wrong, format!("line 1, column 1: {wanted}"));
        };
        let exec = |words: &str| EngineError::Exec(words.to_owned());
        check(exec("can't use 4711 to iterate over"), "a number gives range one variable, and no second");
        check(exec("printf: first arg must be string, got 4711"), "printf: first arg must be a string");
        let panic = EngineError::FuncPanic { name: "slice".to_owned(), message: "canary".to_owned() };
        check(panic, "the function slice cannot work with what it was given");
    }
}
