//! Numbers: read and reckoned with. What is piped in comes last, so that `5 | subtract 2` is 3.

use gotmpl::{TemplateError as EngineError, Value};

use super::arguments::Arguments;
use super::{FunctionResult, NamedFunction};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("add", |args| both("add", args, i64::checked_add, |a, b| a + b)),
    ("divide", |args| both("divide", args, i64::checked_div, |a, b| a / b)),
    ("maximum", |args| both("maximum", args, |a, b| Some(a.max(b)), f64::max)),
    ("minimum", |args| both("minimum", args, |a, b| Some(a.min(b)), f64::min)),
    ("modulo", |args| both("modulo", args, i64::checked_rem, |a, b| a % b)),
    ("multiply", |args| both("multiply", args, i64::checked_mul, |a, b| a * b)),
    ("parseBool", |args| {
        let args = Arguments::exactly("parseBool", args, 1)?;
        match args.text(0)? {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            // As consul-template has it: nothing is false.
            "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(args.fail("the text is neither true nor false")),
        }
    }),
    ("parseFloat", |args| parsed("parseFloat", args, Value::Float)),
    ("parseInt", |args| parsed("parseInt", args, Value::Int)),
    ("parseUint", |args| parsed("parseUint", args, Value::Uint)),
    ("subtract", |args| both("subtract", args, i64::checked_sub, |a, b| a - b)),
];

fn parsed<T: std::str::FromStr + Default>(name: &str, args: &[Value], value: fn(T) -> Value) -> FunctionResult {
    let args = Arguments::exactly(name, args, 1)?;
    match args.text(0)? {
        "" => Ok(value(T::default())),
        text => text.parse().map(value).map_err(|_| args.fail("the text is no such number")),
    }
}

/// Reckons with the second argument and the first, in that order; with fractions where one of them has some.
fn both(
    name: &str,
    args: &[Value],
    whole: impl Fn(i64, i64) -> Option<i64>,
    fraction: impl Fn(f64, f64) -> f64,
) -> FunctionResult {
    let args = Arguments::exactly(name, args, 2)?;
    let number = |at: usize| match args.value(at)? {
        value @ (Value::Int(_) | Value::Uint(_) | Value::Float(_)) => Ok(value),
        _ => Err(args.wrong(at, "a number")),
    };
    let (second, first) = (number(0)?, number(1)?);
    if let (Value::Float(_), _) | (_, Value::Float(_)) = (first, second) {
        let pair = first.as_float().zip(second.as_float());
        return Ok(pair.map_or(Value::Nil, |(first, second)| Value::Float(fraction(first, second))));
    }
    let result = whole(args.whole(1)?, args.whole(0)?);
    result.map(Value::Int).ok_or_else(|| EngineError::Exec(format!("{name}: the result is no number of 64 bits")))
}
