//! Functions that the language itself has.

use std::cmp::Ordering;
use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::compare;
use super::format::{sprint, sprintf, sprintln};
use super::quote::is_printable;
use super::value::{Failure, Text, Value};

/// Their names, with those that the executor evaluates.
pub(in crate::templates) const NAMES: [&str; 19] = [
    "and", "call", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or", "print", "printf",
    "println", "slice", "urlquery",
];

/// Functions that print their arguments.
pub(super) const PRINTING: [&str; 6] = ["html", "js", "print", "printf", "println", "urlquery"];

/// Calls a function of the language; `None` if it has none of that name.
pub(super) fn call(name: &str, args: &[Value]) -> Option<Result<Value, Failure>> {
    Some(match name {
        "call" => Err(Failure::new("call expects a function, and no value here is one")),
        "eq" => compare::eq(args).map(Value::Bool),
        "ne" => count(name, args, 2).and_then(|()| compare::eq(args)).map(|equal| Value::Bool(!equal)),
        "ge" => compare::ordered(name, args, Ordering::is_ge).map(Value::Bool),
        "gt" => compare::ordered(name, args, Ordering::is_gt).map(Value::Bool),
        "le" => compare::ordered(name, args, Ordering::is_le).map(Value::Bool),
        "lt" => compare::ordered(name, args, Ordering::is_lt).map(Value::Bool),
        "html" => printed(args).map(|text| Value::text(escape_html(&text))),
        "js" => printed(args).map(|text| Value::text(escape_script(&text))),
        "urlquery" => printed(args).map(|text| Value::text(escape_query(&text))),
        "index" => index(args),
        "len" => count(name, args, 1).and_then(|()| len(&args[0])),
        "not" => count(name, args, 1).map(|()| Value::Bool(!args[0].is_true())),
        "print" => sprint(args).map(Value::Text),
        "println" => sprintln(args).map(Value::Text),
        "printf" => match args.split_first() {
            Some((Value::Text(format) | Value::Number(format), args)) => sprintf(format, args).map(Value::Text),
            Some((format, _)) => {
                Err(Failure::new(format!("printf expects a string as argument 1, got {}", format.describe())))
            }
            None => Err(Failure::new("printf expects 1 or more arguments, got 0")),
        },
        "slice" => slice(args),
        _ => return None,
    })
}

fn count(name: &str, args: &[Value], expected: usize) -> Result<(), Failure> {
    if args.len() == expected {
        return Ok(());
    }
    Err(Failure::new(format!("{name} expects {expected} arguments, got {}", args.len())))
}

/// Prints the arguments of an escaping function.
fn printed(args: &[Value]) -> Result<Text, Failure> {
    let shown: Vec<Value> =
        args.iter().map(|arg| if arg.is_nil() { Value::text("<no value>") } else { arg.clone() }).collect();
    sprint(&shown)
}

fn len(value: &Value) -> Result<Value, Failure> {
    let length = match value {
        Value::Text(text) | Value::Number(text) => text.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => map.len(),
        other => return Err(Failure::new(format!("{} has no length", other.describe()))),
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

/// Reads a position in something of this length; `end` may be its length.
fn position(value: &Value, length: usize, may_be_end: bool) -> Result<usize, Failure> {
    let number = match value {
        Value::Int(number) | Value::Int64(number) => usize::try_from(*number).ok(),
        Value::Uint64(number) => usize::try_from(*number).ok(),
        Value::Number(digits) => digits.parse().ok(),
        other => return Err(Failure::new(format!("an index must be an integer, got {}", other.describe()))),
    };
    let number = number.filter(|number| *number < length || may_be_end && *number == length);
    number.ok_or_else(|| Failure::new("the index is out of range"))
}

fn index(args: &[Value]) -> Result<Value, Failure> {
    let Some((whole, keys)) = args.split_first() else {
        return Err(Failure::new("index expects 1 or more arguments, got 0"));
    };
    let mut value = whole.clone();
    for key in keys {
        value = match (&value, key) {
            (Value::Nil | Value::Absent, _) => return Err(Failure::new("index of nothing")),
            (Value::Map(map), Value::Text(key) | Value::Number(key)) => map.get(key).unwrap_or(Value::Absent),
            (Value::Map(_), key) => {
                return Err(Failure::new(format!("the key of a map must be a string, got {}", key.describe())));
            }
            (Value::List(list), key) => list.items[position(key, list.items.len(), false)?].clone(),
            (Value::Text(text) | Value::Number(text), key) => {
                Value::Int(i64::from(text.as_bytes()[position(key, text.len(), false)?]))
            }
            (other, _) => return Err(Failure::new(format!("{} has no index", other.describe()))),
        };
    }
    Ok(value)
}

fn slice(args: &[Value]) -> Result<Value, Failure> {
    let Some((whole, bounds)) = args.split_first() else {
        return Err(Failure::new("slice expects 1 or more arguments, got 0"));
    };
    let length = match whole {
        Value::Text(text) | Value::Number(text) => text.len(),
        Value::List(list) => list.items.len(),
        other => return Err(Failure::new(format!("{} cannot be sliced", other.describe()))),
    };
    let is_text = whole.as_text().is_some();
    if bounds.len() > 3 || is_text && bounds.len() > 2 {
        return Err(Failure::new("slice has too many bounds"));
    }
    let mut places = [0, length, length];
    for (place, bound) in places.iter_mut().zip(bounds) {
        *place = position(bound, length, true)?;
    }
    let [start, end, capacity] = places;
    if start > end || end > capacity {
        return Err(Failure::new("the bounds of slice are not in order"));
    }
    match whole {
        Value::List(list) => Ok(Value::list_of(list.of, list.items[start..end].iter().cloned())),
        other => {
            let part = other.as_text().and_then(|text| text.get(start..end));
            part.map(Value::text).ok_or_else(|| Failure::new("slice would split a character"))
        }
    }
}

fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\0' => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}

fn escape_script(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '\'' | '"' => escaped.extend(['\\', c]),
            c if (c.is_ascii() || is_printable(c)) && c >= ' ' && !"<>&=".contains(c) => escaped.push(c),
            c => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{:04X}", u32::from(c));
            }
        }
    }
    escaped
}

/// Characters that Go escapes in a query, and the space, which becomes a plus there.
const ESCAPED_IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn escape_query(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED_IN_QUERY).to_string().replace("%20", "+")
}
