//! Lists and maps: what is in them.

use gotmpl::{TemplateError, Value};

use super::Named;
use super::arguments::Arguments;
use crate::agent::templates::value::{list, text};

pub(super) const FUNCTIONS: &[Named] = &[
    ("contains", |args| {
        let args = Arguments::exactly("contains", args, 2)?;
        Ok(Value::Bool(holds(&args, 1, args.value(0)?)?))
    }),
    ("containsAll", |args| {
        let args = Arguments::exactly("containsAll", args, 2)?;
        Ok(Value::Bool(count(&args)? == args.list(0)?.len()))
    }),
    ("containsAny", |args| Ok(Value::Bool(count(&Arguments::exactly("containsAny", args, 2)?)? > 0))),
    ("containsNone", |args| Ok(Value::Bool(count(&Arguments::exactly("containsNone", args, 2)?)? == 0))),
    ("containsNotAll", |args| {
        let args = Arguments::exactly("containsNotAll", args, 2)?;
        Ok(Value::Bool(count(&args)? < args.list(0)?.len()))
    }),
    ("in", |args| {
        let args = Arguments::exactly("in", args, 2)?;
        Ok(Value::Bool(holds(&args, 0, args.value(1)?)?))
    }),
    ("loop", |args| {
        let args = Arguments::between("loop", args, 1, 2)?;
        let (from, to) = if args.len() == 1 { (0, args.whole(0)?) } else { (args.whole(0)?, args.whole(1)?) };
        if to.saturating_sub(from) > MOST_TURNS {
            return Err(args.fail("more than a hundred thousand turns"));
        }
        Ok(list((from..to).map(Value::Int)))
    }),
    ("sprig_coalesce", |args| Ok(args.iter().find(|value| value.is_truthy()).cloned().unwrap_or(Value::Nil))),
    ("sprig_default", |args| {
        let args = Arguments::exactly("sprig_default", args, 2)?;
        let (otherwise, value) = (args.value(0)?, args.value(1)?);
        Ok(if value.is_truthy() { value.clone() } else { otherwise.clone() })
    }),
    ("sprig_empty", |args| Ok(Value::Bool(!Arguments::exactly("sprig_empty", args, 1)?.value(0)?.is_truthy()))),
    ("sprig_get", |args| {
        let args = Arguments::exactly("sprig_get", args, 2)?;
        Ok(args.value(0)?.field(args.text(1)?).cloned().unwrap_or_else(|| text("")))
    }),
    ("sprig_hasKey", |args| {
        let args = Arguments::exactly("sprig_hasKey", args, 2)?;
        Ok(Value::Bool(args.value(0)?.field(args.text(1)?).is_some()))
    }),
    ("sprig_keys", |args| {
        let args = Arguments::exactly("sprig_keys", args, 1)?;
        match args.value(0)? {
            Value::Map(fields) => Ok(list(fields.keys().map(text))),
            _ => Err(args.wrong(0, "a map")),
        }
    }),
    ("sprig_ternary", |args| {
        let args = Arguments::exactly("sprig_ternary", args, 3)?;
        Ok(args.value(usize::from(!args.value(2)?.is_truthy()))?.clone())
    }),
];

const MOST_TURNS: i64 = 100_000;

/// Whether the list, the map's keys or the text of an argument holds a value.
fn holds(args: &Arguments<'_>, at: usize, value: &Value) -> Result<bool, TemplateError> {
    match args.value(at)? {
        Value::List(items) => Ok(items.iter().any(|item| item == value)),
        Value::Map(fields) => Ok(value.as_str().is_some_and(|key| fields.contains_key(key))),
        Value::String(whole) => Ok(value.as_str().is_some_and(|part| whole.contains(part))),
        _ => Err(args.wrong(at, "a list, a map or a text")),
    }
}

/// How many of the first list are in the second.
fn count(args: &Arguments<'_>) -> Result<usize, TemplateError> {
    let there = args.list(1)?;
    Ok(args.list(0)?.iter().filter(|wanted| there.contains(wanted)).count())
}
