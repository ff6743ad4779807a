//! Functions on numbers. The piped value is the last argument, so that `5 | subtract 2` is 3.

use gotmpl::{TemplateError as EngineError, Value};

use super::arguments::Arguments;
use super::{FunctionResult, NamedFunction};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("add", |args| calculate("add", args, i64::checked_add, |a, b| a + b)),
    ("divide", |args| calculate("divide", args, i64::checked_div, |a, b| a / b)),
    ("maximum", |args| calculate("maximum", args, |a, b| Some(a.max(b)), f64::max)),
    ("minimum", |args| calculate("minimum", args, |a, b| Some(a.min(b)), f64::min)),
    ("modulo", |args| calculate("modulo", args, i64::checked_rem, |a, b| a % b)),
    ("multiply", |args| calculate("multiply", args, i64::checked_mul, |a, b| a * b)),
    ("parseBool", |args| {
        let args = Arguments::exactly("parseBool", args, 1)?;
        match args.text(0)? {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            // As in consul-template, an empty text is false.
            "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(args.fail("the argument is not a boolean")),
        }
    }),
    ("parseFloat", |args| parse("parseFloat", args, Value::Float)),
    ("parseInt", |args| parse("parseInt", args, Value::Int)),
    ("parseUint", |args| parse("parseUint", args, Value::Uint)),
    ("subtract", |args| calculate("subtract", args, i64::checked_sub, |a, b| a - b)),
];

fn parse<T: std::str::FromStr + Default>(name: &str, args: &[Value], value: fn(T) -> Value) -> FunctionResult {
    let args = Arguments::exactly(name, args, 1)?;
    match args.text(0)? {
        "" => Ok(value(T::default())),
        text => text.parse().map(value).map_err(|_| args.fail("the argument is not a valid number")),
    }
}

/// Applies an operation to the second argument and the first, in that order; in floating point if one of them is.
fn calculate(
    name: &str,
    args: &[Value],
    integers: impl Fn(i64, i64) -> Option<i64>,
    floats: impl Fn(f64, f64) -> f64,
) -> FunctionResult {
    let args = Arguments::exactly(name, args, 2)?;
    let number = |at: usize| match args.value(at)? {
        value @ (Value::Int(_) | Value::Uint(_) | Value::Float(_)) => Ok(value),
        _ => Err(args.type_error(at, "a number")),
    };
    let second = number(0)?;
    let first = number(1)?;
    if let (Value::Float(_), _) | (_, Value::Float(_)) = (first, second) {
        let pair = first.as_float().zip(second.as_float());
        return Ok(pair.map_or(Value::Nil, |(first, second)| Value::Float(floats(first, second))));
    }
    let result = integers(args.integer(1)?, args.integer(0)?);
    result.map(Value::Int).ok_or_else(|| EngineError::Exec(format!("{name}: the result does not fit in 64 bits")))
}
