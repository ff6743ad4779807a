//! Functions on maps.

use std::collections::BTreeMap;

use super::cast::to_text;
use crate::templates::engine::{Failure, Text, Value};
use crate::templates::functions::arguments::Arguments;
use crate::templates::functions::collections::merge;
use crate::templates::functions::{FunctionResult, MANY, NamedFunction};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_deepCopy", 1, 1, |args| copy(args.value(0)?, 0, &mut MAX_COPIED.clone())),
    ("sprig_dict", 0, MANY, |args| {
        let pairs = args.all().chunks(2).map(|pair| {
            let value = pair.get(1).cloned().unwrap_or_else(|| Value::text(""));
            Ok((Text::from(to_text(&pair[0])?), value))
        });
        Ok(Value::map(pairs.collect::<Result<BTreeMap<Text, Value>, Failure>>()?))
    }),
    ("sprig_dig", 3, MANY, |args| {
        let last = args.len() - 1;
        let mut value = args.value(last)?.clone();
        args.map(last)?;
        for at in 0..last - 1 {
            let Value::Map(map) = &value else { return Err(args.fail("a value on the way is not a map")) };
            match map.get(args.text(at)?) {
                Some(next) => value = next,
                None => return Ok(args.value(last - 1)?.clone()),
            }
        }
        Ok(value)
    }),
    ("sprig_get", 2, 2, |args| Ok(args.map(0)?.get(args.text(1)?).unwrap_or_else(|| Value::text("")))),
    ("sprig_hasKey", 2, 2, |args| Ok(Value::Bool(args.map(0)?.contains(args.text(1)?)))),
    ("sprig_keys", 0, MANY, |args| {
        let mut keys = Vec::new();
        for at in 0..args.len() {
            keys.extend(args.map(at)?.entries().into_iter().map(|(key, _)| key));
        }
        Ok(Value::texts(keys))
    }),
    ("sprig_merge", 1, MANY, |args| merge_all(args, false)),
    ("sprig_mergeOverwrite", 1, MANY, |args| merge_all(args, true)),
    ("sprig_mustDeepCopy", 1, 1, |args| copy(args.value(0)?, 0, &mut MAX_COPIED.clone())),
    ("sprig_mustMerge", 1, MANY, |args| merge_all(args, false)),
    ("sprig_mustMergeOverwrite", 1, MANY, |args| merge_all(args, true)),
    ("sprig_omit", 1, MANY, |args| select(args, false)),
    ("sprig_pick", 1, MANY, |args| select(args, true)),
    ("sprig_pluck", 1, MANY, |args| {
        let mut found = Vec::new();
        for at in 1..args.len() {
            found.extend(args.map(at)?.get(args.text(0)?));
        }
        Ok(Value::list(found))
    }),
    ("sprig_set", 3, 3, |args| {
        args.map(0)?
            .set(args.text(1)?.into(), args.value(2)?.clone())
            .map_err(|failure| args.fail(&failure.message))?;
        Ok(args.value(0)?.clone())
    }),
    ("sprig_unset", 2, 2, |args| {
        args.map(0)?.remove(args.text(1)?);
        Ok(args.value(0)?.clone())
    }),
    ("sprig_values", 1, 1, |args| Ok(Value::list(args.map(0)?.entries().into_iter().map(|(_, value)| value)))),
];

/// Returns a map with those keys that are named, or with the others.
fn select(args: &Arguments<'_>, wanted: bool) -> FunctionResult {
    let keys: Result<Vec<&str>, Failure> = (1..args.len()).map(|at| args.text(at)).collect();
    let keys = keys?;
    let entries = args.map(0)?.entries().into_iter().filter(|(key, _)| keys.contains(&&**key) == wanted);
    Ok(Value::map(entries))
}

/// Merges the further maps into the first, and returns it.
fn merge_all(args: &Arguments<'_>, overrides: bool) -> FunctionResult {
    let first = args.map(0)?;
    for at in 1..args.len() {
        if let Value::Map(merged) = merge(first, args.map(at)?, overrides)? {
            for (key, value) in merged.entries() {
                first.set(key, value).map_err(|failure| args.fail(&failure.message))?;
            }
        }
    }
    Ok(args.value(0)?.clone())
}

/// Most values of a copy: a list that contains another one twice, and so on, would take all memory.
const MAX_COPIED: usize = 1_000_000;

/// Copies lists and maps with all that is in them.
fn copy(value: &Value, depth: usize, remaining: &mut usize) -> FunctionResult {
    const MAX_DEPTH: usize = 100;
    if depth > MAX_DEPTH || *remaining == 0 {
        return Err(Failure::new("the value is nested too deeply, or too large to be copied"));
    }
    *remaining -= 1;
    Ok(match value {
        Value::List(list) => {
            let items: Result<Vec<Value>, Failure> =
                list.items.iter().map(|item| copy(item, depth + 1, remaining)).collect();
            Value::list_of(list.of, items?)
        }
        Value::Map(map) => {
            let copied = |(key, value): (Text, Value)| Ok((key, copy(&value, depth + 1, remaining)?));
            let entries: Result<Vec<(Text, Value)>, Failure> = map.entries().into_iter().map(copied).collect();
            Value::map_of(map.of, entries?)
        }
        other => other.clone(),
    })
}
