//! Arguments of a function call. Error messages never contain their values.

use std::rc::Rc;

use crate::templates::engine::{Buffer, Failure, Map, Value, check_size, format_float, format_value};

/// The arguments of one call.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    name: &'a str,
    all: &'a [Value],
}

impl<'a> Arguments<'a> {
    /// Checks that there are `min` to `max` arguments.
    pub(super) fn between(name: &'a str, all: &'a [Value], min: usize, max: usize) -> Result<Self, Failure> {
        if (min..=max).contains(&all.len()) {
            return Ok(Self { name, all });
        }
        let expected = match (min, max) {
            (min, max) if min == max => min.to_string(),
            (min, usize::MAX) => format!("{min} or more"),
            (min, max) => format!("{min} to {max}"),
        };
        Err(Failure::new(format!("{name} expects {expected} arguments, got {}", all.len())))
    }

    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) const fn all(&self) -> &'a [Value] {
        self.all
    }

    pub(super) fn value(&self, at: usize) -> Result<&'a Value, Failure> {
        self.all.get(at).ok_or_else(|| self.type_error(at, "a value"))
    }

    /// Returns a string, or the digits of a secret's number.
    pub(super) fn text(&self, at: usize) -> Result<&'a str, Failure> {
        let text = self.value(at)?.as_text().ok_or_else(|| self.type_error(at, "a string"))?;
        check_size(text.len())?;
        Ok(text)
    }

    /// Returns a string, a number or a boolean as it would be printed.
    pub(super) fn format_argument(&self, at: usize) -> Result<String, Failure> {
        match self.value(at)? {
            Value::Text(text) | Value::Number(text) => Ok(text.to_string()),
            Value::Float(number) => Ok(format_float(*number, b'g', None, false)),
            value @ (Value::Int(_) | Value::Int64(_) | Value::Uint64(_) | Value::Bool(_)) => print(value),
            _ => Err(self.type_error(at, "a string")),
        }
    }

    /// Returns an integer, also from a string of digits.
    pub(super) fn integer(&self, at: usize) -> Result<i64, Failure> {
        let number = match self.value(at)? {
            Value::Int(number) | Value::Int64(number) => Some(*number),
            Value::Uint64(number) => i64::try_from(*number).ok(),
            Value::Text(text) | Value::Number(text) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.type_error(at, "an integer"))
    }

    /// Returns an integer that is not negative, and at most `max`.
    pub(super) fn size(&self, at: usize, max: usize) -> Result<usize, Failure> {
        let number = usize::try_from(self.integer(at)?).ok().filter(|number| *number <= max);
        number.ok_or_else(|| match max {
            usize::MAX => self.type_error(at, "a number that is not negative"),
            max => self.type_error(at, &format!("a number from 0 to {max}")),
        })
    }

    /// Returns a list.
    pub(super) fn list(&self, at: usize) -> Result<&'a [Value], Failure> {
        match self.value(at)? {
            Value::List(list) => Ok(&list.items),
            _ => Err(self.type_error(at, "a list")),
        }
    }

    /// Returns a list; nothing is an empty one.
    pub(super) fn list_or_nothing(&self, at: usize) -> Result<&'a [Value], Failure> {
        if self.value(at)?.is_nil() { Ok(&[]) } else { self.list(at) }
    }

    pub(super) fn map(&self, at: usize) -> Result<&'a Rc<Map>, Failure> {
        match self.value(at)? {
            Value::Map(map) => Ok(map),
            _ => Err(self.type_error(at, "a map")),
        }
    }

    pub(super) fn flag(&self, at: usize) -> Result<bool, Failure> {
        match self.value(at)? {
            Value::Bool(flag) => Ok(*flag),
            _ => Err(self.type_error(at, "a boolean")),
        }
    }

    /// Builds the error for an argument of another type.
    pub(super) fn type_error(&self, at: usize, expected: &str) -> Failure {
        let got = self.all.get(at).map_or("nothing", Value::describe);
        Failure::new(format!("{} expects {expected} as argument {}, got {got}", self.name, at + 1))
    }

    /// Builds the error for a call that fails.
    pub(super) fn fail(&self, reason: &str) -> Failure {
        Failure::new(format!("{}: {reason}", self.name))
    }
}

/// Joins texts.
pub(super) fn join<T: AsRef<str>>(texts: &[T], separator: &str) -> Result<Value, Failure> {
    let mut joined = Buffer::new();
    for (at, text) in texts.iter().enumerate() {
        joined.push(if at > 0 { separator } else { "" });
        joined.push(text.as_ref());
    }
    joined.into_text().map(Value::Text)
}

/// Replaces a part of a text wherever it stands. A result that is too long is refused before it is made.
pub(super) fn replace(text: &str, part: &str, by: &str) -> Result<String, Failure> {
    check_size(text.matches(part).count().saturating_mul(by.len()).saturating_add(text.len()))?;
    Ok(text.replace(part, by))
}

/// Returns a value as it would be printed.
pub(super) fn print(value: &Value) -> Result<String, Failure> {
    let mut out = Buffer::new();
    format_value(&mut out, value);
    out.finish()
}
