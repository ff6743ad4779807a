//! Conversions between types: anything that is no number is 0.

use crate::templates::engine::{Failure, Value};
use crate::templates::functions::arguments::print;
use crate::templates::functions::go_integer;

/// Converts to an integer.
pub(super) fn to_integer(value: &Value) -> i64 {
    match value {
        Value::Int(number) | Value::Int64(number) => *number,
        Value::Uint64(number) => i64::try_from(*number).unwrap_or_default(),
        Value::Float(number) => truncate(*number),
        Value::Bool(flag) => i64::from(*flag),
        Value::Text(text) => parse_integer(text),
        Value::Number(digits) => digits.parse().unwrap_or_default(),
        _ => 0,
    }
}

/// Parses an integer with the prefixes of Go (`0x`, `0o`, `0b`, `0`); decimals that are zero are ignored.
fn parse_integer(text: &str) -> i64 {
    let whole = match text.split_once('.') {
        Some((whole, decimals)) if decimals.bytes().all(|byte| byte == b'0') => whole,
        _ => text,
    };
    go_integer::parse_integer(whole).and_then(|number| i64::try_from(number).ok()).unwrap_or_default()
}

#[expect(clippy::cast_possible_truncation, reason = "Go truncates so")]
pub(super) const fn truncate(number: f64) -> i64 {
    number as i64
}

/// Converts to a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "Go converts it so")]
pub(super) fn to_float(value: &Value) -> f64 {
    match value {
        Value::Float(number) => *number,
        Value::Text(text) | Value::Number(text) => text.parse().unwrap_or_default(),
        Value::Uint64(number) => *number as f64,
        value => to_integer(value) as f64,
    }
}

/// Converts to a text.
pub(super) fn to_text(value: &Value) -> Result<String, Failure> {
    match value {
        Value::Text(text) | Value::Number(text) => Ok(text.to_string()),
        value => print(value),
    }
}

/// Converts to texts: the items of a list that are something, or the value alone.
pub(super) fn to_texts(value: &Value) -> Result<Vec<String>, Failure> {
    match value {
        Value::Nil | Value::Absent => Ok(Vec::new()),
        Value::List(list) => list.items.iter().filter(|item| !item.is_nil()).map(to_text).collect(),
        value => Ok(vec![to_text(value)?]),
    }
}
