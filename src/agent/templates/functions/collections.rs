//! Functions on lists and maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::{TemplateError as EngineError, Value};

use super::NamedFunction;
use super::arguments::Arguments;
use crate::templates::value::{list, text};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("contains", |args| {
        let args = Arguments::exactly("contains", args, 2)?;
        Ok(Value::Bool(contains(&args, 1, args.value(0)?)?))
    }),
    ("containsAll", |args| {
        let args = Arguments::exactly("containsAll", args, 2)?;
        Ok(Value::Bool(count_common(&args)? == args.list(0)?.len()))
    }),
    ("containsAny", |args| Ok(Value::Bool(count_common(&Arguments::exactly("containsAny", args, 2)?)? > 0))),
    ("containsNone", |args| Ok(Value::Bool(count_common(&Arguments::exactly("containsNone", args, 2)?)? == 0))),
    ("containsNotAll", |args| {
        let args = Arguments::exactly("containsNotAll", args, 2)?;
        Ok(Value::Bool(count_common(&args)? < args.list(0)?.len()))
    }),
    ("explodeMap", |args| {
        let args = Arguments::exactly("explodeMap", args, 1)?;
        let mut exploded = BTreeMap::new();
        for (key, value) in fields(&args, 0)? {
            let names: Vec<&str> = key.split('/').filter(|name| !name.is_empty()).take(MAX_DEPTH).collect();
            explode(&mut exploded, &names, value).map_err(|()| args.fail("a key is also the prefix of another"))?;
        }
        Ok(Value::Map(Arc::new(exploded)))
    }),
    ("in", |args| {
        let args = Arguments::exactly("in", args, 2)?;
        Ok(Value::Bool(contains(&args, 0, args.value(1)?)?))
    }),
    ("loop", |args| {
        let args = Arguments::between("loop", args, 1, 2)?;
        let (from, to) = if args.len() == 1 { (0, args.integer(0)?) } else { (args.integer(0)?, args.integer(1)?) };
        if to.saturating_sub(from) > MAX_LOOP {
            return Err(args.fail("more than a hundred thousand iterations"));
        }
        Ok(list((from..to).map(Value::Int)))
    }),
    ("mergeMap", |args| {
        let args = Arguments::exactly("mergeMap", args, 2)?;
        Ok(merge(fields(&args, 0)?, fields(&args, 1)?))
    }),
    ("mergeMapWithOverride", |args| {
        let args = Arguments::exactly("mergeMapWithOverride", args, 2)?;
        Ok(merge(fields(&args, 1)?, fields(&args, 0)?))
    }),
    ("sprig_coalesce", |args| Ok(args.iter().find(|value| value.is_truthy()).cloned().unwrap_or(Value::Nil))),
    ("sprig_default", |args| {
        let args = Arguments::exactly("sprig_default", args, 2)?;
        let otherwise = args.value(0)?;
        let value = args.value(1)?;
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
            _ => Err(args.type_error(0, "a map")),
        }
    }),
    ("sprig_ternary", |args| {
        let args = Arguments::exactly("sprig_ternary", args, 3)?;
        Ok(args.value(usize::from(!args.value(2)?.is_truthy()))?.clone())
    }),
];

const MAX_LOOP: i64 = 100_000;

/// Bounds the path segments of one key.
const MAX_DEPTH: usize = 32;

type Fields = BTreeMap<Arc<str>, Value>;

fn fields<'a>(args: &Arguments<'a>, at: usize) -> Result<&'a Fields, EngineError> {
    match args.value(at)? {
        Value::Map(fields) => Ok(fields),
        _ => Err(args.type_error(at, "a map")),
    }
}

/// Adds the entries of the second map that the first lacks or has empty. Nested maps are merged the same way.
fn merge(first: &Fields, second: &Fields) -> Value {
    let mut all = first.clone();
    for (key, other) in second {
        let value = match (all.get(key), other) {
            (Some(Value::Map(one)), Value::Map(other)) => merge(one, other),
            (Some(one), _) if one.is_truthy() => continue,
            _ => other.clone(),
        };
        all.insert(Arc::clone(key), value);
    }
    Value::Map(Arc::new(all))
}

/// Inserts a value below its path segments.
fn explode(whole: &mut Fields, names: &[&str], value: &Value) -> Result<(), ()> {
    let Some((first, rest)) = names.split_first() else { return Ok(()) };
    if rest.is_empty() {
        return whole.insert(Arc::from(*first), value.clone()).map_or(Ok(()), |_| Err(()));
    }
    let folder = whole.entry(Arc::from(*first)).or_insert_with(|| Value::Map(Arc::new(Fields::new())));
    let Value::Map(below) = folder else { return Err(()) };
    explode(Arc::make_mut(below), rest, value)
}

/// Returns true if the list, the map's keys or the string of an argument contains a value.
fn contains(args: &Arguments<'_>, at: usize, value: &Value) -> Result<bool, EngineError> {
    match args.value(at)? {
        Value::List(items) => Ok(items.iter().any(|item| item == value)),
        Value::Map(fields) => Ok(value.as_str().is_some_and(|key| fields.contains_key(key))),
        Value::String(whole) => Ok(value.as_str().is_some_and(|part| whole.contains(part))),
        _ => Err(args.type_error(at, "a list, a map or a string")),
    }
}

/// Counts the items of the first list that are in the second.
fn count_common(args: &Arguments<'_>) -> Result<usize, EngineError> {
    let list = args.list(1)?;
    Ok(args.list(0)?.iter().filter(|item| list.contains(item)).count())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::templates::value::{from_json, to_json};

    #[test]
    fn maps_are_merged_and_exploded_as_in_consul_template() {
        let call = |name: &str, args: &[Json]| {
            let args: Vec<Value> = args.iter().map(from_json).collect();
            let (_, function) = FUNCTIONS.iter().find(|(function, _)| *function == name).unwrap();
            function(&args).map(|found| to_json(&found).unwrap()).map_err(|error| error.to_string())
        };
        let one = json!({ "a": 1, "b": { "c": 1, "d": "" } });
        let other = json!({ "a": 2, "b": { "d": 3 }, "e": 4 });
        let check =
            |name, expected: Json| assert_eq!(call(name, &[one.clone(), other.clone()]), Ok(expected), "{name}");
        check("mergeMap", json!({ "a": 1, "b": { "c": 1, "d": 3 }, "e": 4 }));
        check("mergeMapWithOverride", json!({ "a": 2, "b": { "c": 1, "d": 3 }, "e": 4 }));
        let exploded = call("explodeMap", &[json!({ "a/b": 1, "a/c/d": 2, "e": 3 })]);
        assert_eq!(exploded, Ok(json!({ "a": { "b": 1, "c": { "d": 2 } }, "e": 3 })));
        assert!(call("explodeMap", &[json!({ "a": 1, "a/b": 2 })]).is_err());
        assert!(call("mergeMap", &[json!({}), json!([])]).is_err());
    }
}
