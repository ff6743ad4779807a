//! Functions on lists.

use super::cast::{to_text, to_texts};
use crate::templates::engine::{Elements, Value};
use crate::templates::functions::arguments::{Arguments, join};
use crate::templates::functions::equality::Comparison;
use crate::templates::functions::{FunctionResult, MANY, NamedFunction};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_all", 0, MANY, |args| Ok(Value::Bool(args.all().iter().all(Value::is_true)))),
    ("sprig_any", 0, MANY, |args| Ok(Value::Bool(args.all().iter().any(Value::is_true)))),
    ("sprig_append", 2, 2, append),
    ("sprig_chunk", 2, 2, chunk),
    ("sprig_coalesce", 0, MANY, |args| {
        Ok(args.all().iter().find(|value| value.is_true()).cloned().unwrap_or(Value::Absent))
    }),
    ("sprig_compact", 1, 1, compact),
    ("sprig_concat", 0, MANY, |args| {
        let mut all = Vec::new();
        for at in 0..args.len() {
            all.extend(args.list(at)?.iter().cloned());
        }
        Ok(Value::list(all))
    }),
    ("sprig_default", 1, 2, |args| {
        let given = args.all().get(1).filter(|given| given.is_true());
        Ok(given.unwrap_or(args.value(0)?).clone())
    }),
    ("sprig_empty", 1, 1, |args| Ok(Value::Bool(!args.value(0)?.is_true()))),
    ("sprig_first", 1, 1, first),
    ("sprig_has", 2, 2, has),
    ("sprig_initial", 1, 1, initial),
    ("sprig_join", 2, 2, |args| join(&to_texts(args.value(1)?)?, args.text(0)?)),
    ("sprig_last", 1, 1, last),
    ("sprig_list", 0, MANY, |args| Ok(Value::list(args.all().iter().cloned()))),
    ("sprig_mustAppend", 2, 2, append),
    ("sprig_mustChunk", 2, 2, chunk),
    ("sprig_mustCompact", 1, 1, compact),
    ("sprig_mustFirst", 1, 1, first),
    ("sprig_mustHas", 2, 2, has),
    ("sprig_mustInitial", 1, 1, initial),
    ("sprig_mustLast", 1, 1, last),
    ("sprig_mustPrepend", 2, 2, prepend),
    ("sprig_mustPush", 2, 2, append),
    ("sprig_mustRest", 1, 1, rest),
    ("sprig_mustReverse", 1, 1, reverse),
    ("sprig_mustSlice", 1, 3, slice),
    ("sprig_mustUniq", 1, 1, uniq),
    ("sprig_mustWithout", 1, MANY, without),
    ("sprig_prepend", 2, 2, prepend),
    ("sprig_push", 2, 2, append),
    ("sprig_rest", 1, 1, rest),
    ("sprig_reverse", 1, 1, reverse),
    ("sprig_slice", 1, 3, slice),
    ("sprig_sortAlpha", 1, 1, |args| {
        let mut texts = match args.value(0)? {
            Value::List(_) => to_texts(args.value(0)?)?,
            other => vec![to_text(other)?],
        };
        texts.sort_unstable();
        Ok(Value::texts(texts))
    }),
    ("sprig_toStrings", 1, 1, |args| Ok(Value::texts(to_texts(args.value(0)?)?))),
    ("sprig_tuple", 0, MANY, |args| Ok(Value::list(args.all().iter().cloned()))),
    ("sprig_uniq", 1, 1, uniq),
    ("sprig_without", 1, MANY, without),
];

fn append(args: &Arguments<'_>) -> FunctionResult {
    Ok(Value::list(args.list(0)?.iter().chain([args.value(1)?]).cloned()))
}

fn prepend(args: &Arguments<'_>) -> FunctionResult {
    Ok(Value::list([args.value(1)?].into_iter().chain(args.list(0)?).cloned()))
}

fn chunk(args: &Arguments<'_>) -> FunctionResult {
    let size = args.size(0, usize::MAX)?;
    if size == 0 {
        return Err(args.type_error(0, "a number above 0"));
    }
    let chunks = args.list(1)?.chunks(size).map(|chunk| Value::list(chunk.iter().cloned()));
    Ok(Value::list_of(Elements::Lists, chunks))
}

fn compact(args: &Arguments<'_>) -> FunctionResult {
    Ok(Value::list(args.list(0)?.iter().filter(|item| item.is_true()).cloned()))
}

fn first(args: &Arguments<'_>) -> FunctionResult {
    Ok(args.list(0)?.first().cloned().unwrap_or(Value::Absent))
}

fn last(args: &Arguments<'_>) -> FunctionResult {
    Ok(args.list(0)?.last().cloned().unwrap_or(Value::Absent))
}

fn rest(args: &Arguments<'_>) -> FunctionResult {
    Ok(Value::list(args.list(0)?.iter().skip(1).cloned()))
}

fn initial(args: &Arguments<'_>) -> FunctionResult {
    let items = args.list(0)?;
    Ok(Value::list(items[..items.len().saturating_sub(1)].iter().cloned()))
}

fn reverse(args: &Arguments<'_>) -> FunctionResult {
    Ok(Value::list(args.list(0)?.iter().rev().cloned()))
}

fn has(args: &Arguments<'_>) -> FunctionResult {
    Ok(Value::Bool(Comparison::new().is_any_equal(args.list_or_nothing(1)?, args.value(0)?)?))
}

fn slice(args: &Arguments<'_>) -> FunctionResult {
    let items = args.list(0)?;
    let start = if args.len() > 1 { args.size(1, items.len())? } else { 0 };
    let end = if args.len() > 2 { args.size(2, items.len())? } else { items.len() };
    let part = items.get(start..end).ok_or_else(|| args.fail("the range is outside the list"))?;
    Ok(Value::list(part.iter().cloned()))
}

fn uniq(args: &Arguments<'_>) -> FunctionResult {
    let mut unique: Vec<Value> = Vec::new();
    let mut comparison = Comparison::new();
    for item in args.list(0)? {
        if !comparison.is_any_equal(&unique, item)? {
            unique.push(item.clone());
        }
    }
    Ok(Value::list(unique))
}

fn without(args: &Arguments<'_>) -> FunctionResult {
    let mut comparison = Comparison::new();
    let mut kept = Vec::new();
    for item in args.list(0)? {
        if !comparison.is_any_equal(&args.all()[1..], item)? {
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}
