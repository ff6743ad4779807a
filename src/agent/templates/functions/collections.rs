//! Functions of consul-template on lists and maps.

use std::collections::BTreeMap;

use super::NamedFunction;
use super::arguments::Arguments;
use super::equality::Comparison;
use crate::templates::engine::{Failure, Map, Text, Value};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("contains", 2, 2, |args| contains_value(args.value(1)?, args.value(0)?)),
    ("containsAll", 2, 2, |args| Ok(Value::Bool(count_common(args)? == args.list(0)?.len()))),
    ("containsAny", 2, 2, |args| Ok(Value::Bool(count_common(args)? > 0))),
    ("containsNone", 2, 2, |args| Ok(Value::Bool(count_common(args)? == 0))),
    ("containsNotAll", 2, 2, |args| Ok(Value::Bool(count_common(args)? < args.list(0)?.len()))),
    ("explodeMap", 1, 1, |args| {
        let mut exploded = Folder::new();
        for (key, value) in args.map(0)?.entries() {
            let names: Vec<&str> = key.split('/').filter(|name| !name.is_empty()).take(MAX_DEPTH).collect();
            explode(&mut exploded, &names, &value).map_err(|()| args.fail("a key is also the prefix of another"))?;
        }
        Ok(to_value(exploded))
    }),
    ("in", 2, 2, |args| contains_value(args.value(0)?, args.value(1)?)),
    ("loop", 1, 2, |args| {
        let (from, to) = if args.len() == 1 { (0, args.integer(0)?) } else { (args.integer(0)?, args.integer(1)?) };
        if to.saturating_sub(from) > MAX_LOOP {
            return Err(args.fail("more than a hundred thousand iterations"));
        }
        Ok(Value::Counter(from, to))
    }),
    ("mergeMap", 2, 2, |args| merge(args.map(0)?, args.map(1)?, false)),
    ("mergeMapWithOverride", 2, 2, |args| merge(args.map(0)?, args.map(1)?, true)),
];

const MAX_LOOP: i64 = 100_000;

/// Bounds the path segments of one key.
const MAX_DEPTH: usize = 32;

/// Returns a map with the entries of two: those of the second replace the first's if `overrides` and they are not empty, and else
/// fill in what the first lacks or has empty. Nested maps are merged the same way.
pub(super) fn merge(first: &Map, second: &Map, overrides: bool) -> Result<Value, Failure> {
    merge_at(first, second, overrides, 0, &mut MAX_MERGED.clone())
}

/// Most maps within maps that are merged: a map that contains another one twice, and so on, would take all memory.
const MAX_MERGED: usize = 10_000;

fn merge_at(first: &Map, second: &Map, overrides: bool, depth: usize, remaining: &mut usize) -> Result<Value, Failure> {
    if depth > MAX_DEPTH || *remaining == 0 {
        return Err(Failure::new("the maps contain too many maps"));
    }
    *remaining -= 1;
    let mut all: BTreeMap<Text, Value> = first.entries().into_iter().collect();
    for (key, other) in second.entries() {
        let value = match (all.get(&key), &other) {
            (Some(Value::Map(one)), Value::Map(other)) => merge_at(one, other, overrides, depth + 1, remaining)?,
            (Some(one), _) if !overrides && one.is_true() => continue,
            (Some(_), other) if overrides && !other.is_true() => continue,
            _ => other,
        };
        all.insert(key, value);
    }
    Ok(Value::map_of(first.of, all))
}

/// A map under construction.
type Folder = BTreeMap<String, Entry>;

enum Entry {
    Value(Value),
    Folder(Folder),
}

/// Inserts a value below its path segments.
fn explode(whole: &mut Folder, names: &[&str], value: &Value) -> Result<(), ()> {
    let Some((first, rest)) = names.split_first() else { return Ok(()) };
    if rest.is_empty() {
        return whole.insert((*first).to_owned(), Entry::Value(value.clone())).map_or(Ok(()), |_| Err(()));
    }
    match whole.entry((*first).to_owned()).or_insert_with(|| Entry::Folder(Folder::new())) {
        Entry::Folder(below) => explode(below, rest, value),
        Entry::Value(_) => Err(()),
    }
}

fn to_value(folder: Folder) -> Value {
    Value::map(folder.into_iter().map(|(name, entry)| match entry {
        Entry::Value(value) => (name, value),
        Entry::Folder(below) => (name, to_value(below)),
    }))
}

fn contains_value(whole: &Value, value: &Value) -> Result<Value, Failure> {
    contains(whole, value, &mut Comparison::new()).map(Value::Bool)
}

/// Returns true if a list has a value as item, or a string as part. Anything else contains nothing, as in consul-template.
fn contains(whole: &Value, value: &Value, comparison: &mut Comparison) -> Result<bool, Failure> {
    match whole {
        Value::List(list) => comparison.is_any_equal(&list.items, value),
        Value::Text(whole) => Ok(matches!(value, Value::Text(part) if whole.contains(&**part))),
        _ => Ok(false),
    }
}

/// Counts the items of the first list that are in the second.
fn count_common(args: &Arguments<'_>) -> Result<usize, Failure> {
    args.list(1)?;
    let (whole, mut comparison, mut count) = (args.value(1)?, Comparison::new(), 0);
    for item in args.list(0)? {
        count += usize::from(contains(whole, item, &mut comparison)?);
    }
    Ok(count)
}
