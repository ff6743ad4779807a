//! Functions of consul-template on numbers. The piped value is the last argument, so that `5 | subtract 2` is 3.

use super::arguments::Arguments;
use super::{FunctionResult, NamedFunction};
use crate::templates::engine::{Failure, Value};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("add", 2, 2, |args| calculate(args, i128::checked_add, |a, b| a + b)),
    ("divide", 2, 2, |args| calculate(args, i128::checked_div, |a, b| a / b)),
    ("maximum", 2, 2, |args| calculate(args, |a, b| Some(a.max(b)), f64::max)),
    ("minimum", 2, 2, |args| calculate(args, |a, b| Some(a.min(b)), f64::min)),
    ("modulo", 2, 2, |args| {
        if number(args, 0)?.is_err() || number(args, 1)?.is_err() {
            return Err(args.fail("the numbers must be integers"));
        }
        calculate(args, i128::checked_rem, |a, b| a % b)
    }),
    ("multiply", 2, 2, |args| calculate(args, i128::checked_mul, |a, b| a * b)),
    ("parseBool", 1, 1, |args| match args.text(0)? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
        // As in consul-template, an empty text is false.
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
        _ => Err(args.fail("the argument is not a boolean")),
    }),
    ("parseFloat", 1, 1, |args| parse(args, Value::Float)),
    ("parseInt", 1, 1, |args| parse(args, Value::Int64)),
    ("parseUint", 1, 1, |args| parse(args, Value::Uint64)),
    ("subtract", 2, 2, |args| calculate(args, i128::checked_sub, |a, b| a - b)),
];

fn parse<T: std::str::FromStr + Default>(args: &Arguments<'_>, value: fn(T) -> Value) -> FunctionResult {
    match args.text(0)? {
        "" => Ok(value(T::default())),
        text => text.parse().map(value).map_err(|_| args.fail("the argument is not a valid number")),
    }
}

/// Reads a number: an integer, or as an error a floating-point number.
fn number(args: &Arguments<'_>, at: usize) -> Result<Result<i128, f64>, Failure> {
    Ok(match args.value(at)? {
        Value::Int(number) | Value::Int64(number) => Ok(i128::from(*number)),
        Value::Uint64(number) => Ok(i128::from(*number)),
        Value::Float(number) => Err(*number),
        Value::Number(digits) => match digits.parse::<i64>() {
            Ok(number) => Ok(i128::from(number)),
            Err(_) => Err(digits.parse().map_err(|_| args.type_error(at, "a number"))?),
        },
        _ => return Err(args.type_error(at, "a number")),
    })
}

/// Applies an operation to the second argument and the first, in that order; in floating point if one of them is.
fn calculate(
    args: &Arguments<'_>,
    integers: impl Fn(i128, i128) -> Option<i128>,
    floats: impl Fn(f64, f64) -> f64,
) -> FunctionResult {
    #[expect(clippy::cast_precision_loss, reason = "Go converts it so")]
    let float = |number: Result<i128, f64>| match number {
        Ok(integer) => integer as f64,
        Err(float) => float,
    };
    let (second, first) = (number(args, 0)?, number(args, 1)?);
    let (Ok(whole), Ok(by)) = (first, second) else {
        return Ok(Value::Float(floats(float(first), float(second))));
    };
    let error = || args.fail("the result does not fit in 64 bits");
    let result = integers(whole, by).ok_or_else(error)?;
    match (args.value(0)?, args.value(1)?) {
        (Value::Uint64(_), Value::Uint64(_)) => u64::try_from(result).map(Value::Uint64).map_err(|_| error()),
        _ => i64::try_from(result).map(Value::Int64).map_err(|_| error()),
    }
}
