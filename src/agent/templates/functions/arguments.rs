//! Arguments of a function call. Error messages never contain their values.

use gotmpl::{TemplateError as EngineError, Value};

/// Longest string that functions process, in bytes. A string that is appended to itself in a loop would take all memory.
const MAX_TEXT: usize = 16 << 20;

/// Refuses strings above [`MAX_TEXT`].
pub(super) fn check_size(text: &str) -> Result<(), EngineError> {
    if text.len() > MAX_TEXT {
        return Err(EngineError::Exec(format!("a string here exceeds {} MiB", MAX_TEXT >> 20)));
    }
    Ok(())
}

/// The arguments of one call.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    name: &'a str,
    all: &'a [Value],
}

impl<'a> Arguments<'a> {
    /// Checks that there are `expected` arguments.
    pub(super) fn exactly(name: &'a str, all: &'a [Value], expected: usize) -> Result<Self, EngineError> {
        Self::between(name, all, expected, expected)
    }

    /// Checks that there are `min` to `max` arguments.
    pub(super) fn between(name: &'a str, all: &'a [Value], min: usize, max: usize) -> Result<Self, EngineError> {
        if (min..=max).contains(&all.len()) {
            return Ok(Self { name, all });
        }
        let expected = match (min, max) {
            (min, max) if min == max => min.to_string(),
            (min, usize::MAX) => format!("{min} or more"),
            (min, max) => format!("{min} to {max}"),
        };
        Err(EngineError::Exec(format!("{name} expects {expected} arguments, got {}", all.len())))
    }

    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn value(&self, at: usize) -> Result<&'a Value, EngineError> {
        self.all.get(at).ok_or_else(|| self.type_error(at, "a value"))
    }

    /// Returns a string.
    pub(super) fn text(&self, at: usize) -> Result<&'a str, EngineError> {
        let text = self.value(at)?.as_str().ok_or_else(|| self.type_error(at, "a string"))?;
        check_size(text)?;
        Ok(text)
    }

    /// Returns a string, a number or a boolean as it would be printed.
    pub(super) fn format_argument(&self, at: usize) -> Result<String, EngineError> {
        match self.value(at)? {
            Value::String(text) => Ok(text.to_string()),
            value @ (Value::Int(_) | Value::Uint(_) | Value::Float(_) | Value::Bool(_)) => Ok(value.to_string()),
            _ => Err(self.type_error(at, "a string")),
        }
    }

    /// Returns an integer, also from a string of digits.
    pub(super) fn integer(&self, at: usize) -> Result<i64, EngineError> {
        let number = match self.value(at)? {
            Value::Int(number) => Some(*number),
            Value::Uint(number) => i64::try_from(*number).ok(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.type_error(at, "an integer"))
    }

    /// Truncates a number to an integer.
    pub(super) fn truncate(&self, number: f64) -> Result<Value, EngineError> {
        let integer = format!("{:.0}", number.trunc()).parse().ok();
        integer.map(Value::Int).ok_or_else(|| self.fail("the number does not fit in 64 bits"))
    }

    /// Returns a list.
    pub(super) fn list(&self, at: usize) -> Result<&'a [Value], EngineError> {
        match self.value(at)? {
            Value::List(items) => Ok(items),
            _ => Err(self.type_error(at, "a list")),
        }
    }

    /// Builds the error for an argument of another type.
    pub(super) fn type_error(&self, at: usize, expected: &str) -> EngineError {
        let got = match self.all.get(at) {
            None | Some(Value::Nil) => "nothing",
            Some(Value::String(_)) => "a string",
            Some(Value::List(_)) => "a list",
            Some(Value::Map(_)) => "a map",
            Some(Value::Bool(_)) => "a boolean",
            Some(Value::Function(_)) => "a function",
            Some(_) => "a number",
        };
        EngineError::Exec(format!("{} expects {expected} as argument {}, got {got}", self.name, at + 1))
    }

    /// Builds the error for a call that fails.
    pub(super) fn fail(&self, reason: &str) -> EngineError {
        EngineError::Exec(format!("{}: {reason}", self.name))
    }
}
