//! `scratch`: notes that a template keeps during one rendering. Its methods get the notes as their first argument.

use std::rc::Rc;

use super::arguments::Arguments;
use super::{FunctionResult, NamedFunction};
use crate::templates::engine::{Failure, Map, Value};

pub(super) const METHODS: &[NamedFunction] = &[
    ("scratch.Get", 2, 2, |args| Ok(notes(args)?.get(args.text(1)?).unwrap_or(Value::Absent))),
    ("scratch.Key", 2, 2, |args| Ok(Value::Bool(notes(args)?.contains(args.text(1)?)))),
    ("scratch.MapSet", 4, 4, |args| map_set(args, true)),
    ("scratch.MapSetX", 4, 4, |args| map_set(args, false)),
    ("scratch.MapValues", 2, 2, |args| match notes(args)?.get(args.text(1)?) {
        None => Ok(Value::list([])),
        Some(Value::Map(map)) => Ok(Value::list(map.entries().into_iter().map(|(_, value)| value))),
        Some(_) => Err(args.fail("the note is not a map")),
    }),
    ("scratch.Set", 3, 3, |args| set(args, notes(args)?, 1)),
    ("scratch.SetX", 3, 3, |args| {
        let notes = notes(args)?;
        if notes.contains(args.text(1)?) { Ok(Value::text("")) } else { set(args, notes, 1) }
    }),
];

fn notes<'a>(args: &Arguments<'a>) -> Result<&'a Rc<Map>, Failure> {
    match args.value(0)? {
        Value::Scratch(notes) => Ok(notes),
        _ => Err(args.type_error(0, "scratch")),
    }
}

/// Sets an entry to the argument after its key; nothing is printed.
fn set(args: &Arguments<'_>, map: &Map, key: usize) -> FunctionResult {
    let value = args.value(key + 1)?.clone();
    map.set(args.text(key)?.into(), value).map_err(|failure| args.fail(&failure.message))?;
    Ok(Value::text(""))
}

fn map_set(args: &Arguments<'_>, replaces: bool) -> FunctionResult {
    let notes = notes(args)?;
    let name = args.text(1)?;
    let map = match notes.get(name) {
        Some(Value::Map(map)) => map,
        Some(_) => return Err(args.fail("the note is not a map")),
        None => {
            let empty = Value::map::<&str>([]);
            notes.set(name.into(), empty.clone())?;
            let Value::Map(map) = empty else { return Ok(empty) };
            map
        }
    };
    if !replaces && map.contains(args.text(2)?) { Ok(Value::text("")) } else { set(args, &map, 2) }
}
