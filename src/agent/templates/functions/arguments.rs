//! What a function is given, one by one. What is said of an argument never tells its value.

use gotmpl::{TemplateError as EngineError, Value};

/// The longest text that a function works on, in bytes: one that is put into itself again and again would take all memory.
const MAX_TEXT: usize = 16 << 20;

/// Refuses a text that has run away.
pub(super) fn bounded(text: &str) -> Result<(), EngineError> {
    if text.len() > MAX_TEXT {
        return Err(EngineError::Exec(format!("a text here is larger than {} MiB", MAX_TEXT >> 20)));
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
    /// Takes so many.
    pub(super) fn exactly(name: &'a str, all: &'a [Value], wanted: usize) -> Result<Self, EngineError> {
        Self::between(name, all, wanted, wanted)
    }

    /// Takes so many or more, up to `most`.
    pub(super) fn between(name: &'a str, all: &'a [Value], least: usize, most: usize) -> Result<Self, EngineError> {
        if (least..=most).contains(&all.len()) {
            return Ok(Self { name, all });
        }
        let wanted = match (least, most) {
            (least, most) if least == most => least.to_string(),
            (least, usize::MAX) => format!("{least} or more"),
            (least, most) => format!("{least} to {most}"),
        };
        Err(EngineError::Exec(format!("{name} takes {wanted} arguments, and got {}", all.len())))
    }

    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn value(&self, at: usize) -> Result<&'a Value, EngineError> {
        self.all.get(at).ok_or_else(|| self.wrong(at, "a value"))
    }

    /// A text.
    pub(super) fn text(&self, at: usize) -> Result<&'a str, EngineError> {
        let text = self.value(at)?.as_str().ok_or_else(|| self.wrong(at, "a text"))?;
        bounded(text)?;
        Ok(text)
    }

    /// A text, a number or a flag, as it would be printed.
    pub(super) fn shown(&self, at: usize) -> Result<String, EngineError> {
        match self.value(at)? {
            Value::String(text) => Ok(text.to_string()),
            value @ (Value::Int(_) | Value::Uint(_) | Value::Float(_) | Value::Bool(_)) => Ok(value.to_string()),
            _ => Err(self.wrong(at, "a text")),
        }
    }

    /// A whole number; a text of digits counts.
    pub(super) fn whole(&self, at: usize) -> Result<i64, EngineError> {
        let number = match self.value(at)? {
            Value::Int(number) => Some(*number),
            Value::Uint(number) => i64::try_from(*number).ok(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.wrong(at, "a whole number"))
    }

    /// A number without its fraction.
    pub(super) fn whole_of(&self, number: f64) -> Result<Value, EngineError> {
        let whole = format!("{:.0}", number.trunc()).parse().ok();
        whole.map(Value::Int).ok_or_else(|| self.fail("the number is none of 64 bits"))
    }

    /// A list.
    pub(super) fn list(&self, at: usize) -> Result<&'a [Value], EngineError> {
        match self.value(at)? {
            Value::List(items) => Ok(items),
            _ => Err(self.wrong(at, "a list")),
        }
    }

    /// Says that an argument is something else.
    pub(super) fn wrong(&self, at: usize, wanted: &str) -> EngineError {
        let got = match self.all.get(at) {
            None | Some(Value::Nil) => "nothing",
            Some(Value::String(_)) => "a text",
            Some(Value::List(_)) => "a list",
            Some(Value::Map(_)) => "a map",
            Some(Value::Bool(_)) => "a flag",
            Some(Value::Function(_)) => "a function",
            Some(_) => "a number",
        };
        EngineError::Exec(format!("{} wants {wanted} as argument {}, and got {got}", self.name, at + 1))
    }

    /// Says that the call cannot be done, for this reason.
    pub(super) fn fail(&self, why: &str) -> EngineError {
        EngineError::Exec(format!("{}: {why}", self.name))
    }
}
