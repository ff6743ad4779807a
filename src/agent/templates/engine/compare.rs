//! Comparisons: `eq`, `ne`, `lt`, `le`, `gt`, `ge`.

use std::cmp::Ordering;

use super::value::{Failure, Value};

/// Returns true if the first argument equals one of the others.
pub(super) fn eq(args: &[Value]) -> Result<bool, Failure> {
    let Some((first, others)) = args.split_first() else {
        return Err(Failure::new("eq expects 2 or more arguments, got 0"));
    };
    if others.is_empty() {
        return Err(Failure::new("eq expects 2 or more arguments, got 1"));
    }
    for other in others {
        if is_equal(first, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_equal(left: &Value, right: &Value) -> Result<bool, Failure> {
    match (left, right) {
        (left, right) if left.is_nil() || right.is_nil() => Ok(left.is_nil() && right.is_nil()),
        (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
        (Value::List(_), Value::List(_)) | (Value::Map(_), Value::Map(_)) => {
            Err(Failure::new(format!("{} cannot be compared", left.describe())))
        }
        _ => Ok(compare(left, right)? == Ordering::Equal),
    }
}

/// Compares numbers or texts by an order.
pub(super) fn ordered(name: &str, args: &[Value], fits: fn(Ordering) -> bool) -> Result<bool, Failure> {
    let [left, right] = args else {
        return Err(Failure::new(format!("{name} expects 2 arguments, got {}", args.len())));
    };
    compare(left, right).map(fits)
}

fn compare(left: &Value, right: &Value) -> Result<Ordering, Failure> {
    let (left, right) = (&like(left, right), &like(right, left));
    if let (Some(left), Some(right)) = (integer(left), integer(right)) {
        return Ok(left.cmp(&right));
    }
    if let (Some(left), Some(right)) = (left.as_text(), right.as_text()) {
        return Ok(left.cmp(right));
    }
    if let (Value::Float(left), Value::Float(right)) = (left, right) {
        // No order with what is not a number: neither equal nor less.
        return Ok(left.partial_cmp(right).unwrap_or(Ordering::Greater));
    }
    Err(Failure::new(format!("{} and {} cannot be compared", left.describe(), right.describe())))
}

/// Returns a secret's number as a number of the other value's type, where Go refuses to compare them.
fn like(value: &Value, other: &Value) -> Value {
    let converted = match (value, other) {
        (Value::Number(digits), Value::Int(_) | Value::Int64(_) | Value::Uint64(_)) => {
            digits.parse().map(Value::Int64).ok()
        }
        (Value::Number(digits), Value::Float(_)) => digits.parse().map(Value::Float).ok(),
        _ => None,
    };
    converted.unwrap_or_else(|| value.clone())
}

const fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) | Value::Int64(number) => Some(*number as i128),
        Value::Uint64(number) => Some(*number as i128),
        _ => None,
    }
}
