//! Functions on numbers.

use super::cast::{to_float, to_integer};
use super::decimal;
use crate::templates::engine::{Elements, Failure, Value};
use crate::templates::functions::arguments::Arguments;
use crate::templates::functions::{MANY, NamedFunction};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_add", 0, MANY, |args| Ok(Value::Int64(integers(args).fold(0, i64::wrapping_add)))),
    ("sprig_add1", 1, 1, |args| Ok(Value::Int64(to_integer(args.value(0)?).wrapping_add(1)))),
    ("sprig_add1f", 1, 1, |args| Ok(Value::Float(decimal::add(to_float(args.value(0)?), 1.0)))),
    ("sprig_addf", 0, MANY, |args| Ok(Value::Float(floats(args).fold(0.0, decimal::add)))),
    ("sprig_atoi", 1, 1, |args| Ok(Value::Int(args.text(0)?.parse().unwrap_or_default()))),
    ("sprig_biggest", 1, MANY, |args| Ok(largest(args))),
    ("sprig_ceil", 1, 1, |args| Ok(Value::Float(to_float(args.value(0)?).ceil()))),
    ("sprig_div", 2, 2, |args| {
        let quotient = to_integer(args.value(0)?).checked_div(to_integer(args.value(1)?));
        quotient.map(Value::Int64).ok_or_else(|| args.fail("the result does not fit in 64 bits"))
    }),
    ("sprig_divf", 1, MANY, |args| {
        let quotient = floats(args).skip(1).try_fold(to_float(args.value(0)?), decimal::divide);
        quotient.map(Value::Float).ok_or_else(|| args.fail("a divisor is zero"))
    }),
    ("sprig_float64", 1, 1, |args| Ok(Value::Float(to_float(args.value(0)?)))),
    ("sprig_floor", 1, 1, |args| Ok(Value::Float(to_float(args.value(0)?).floor()))),
    ("sprig_int", 1, 1, |args| Ok(Value::Int(to_integer(args.value(0)?)))),
    ("sprig_int64", 1, 1, |args| Ok(Value::Int64(to_integer(args.value(0)?)))),
    ("sprig_max", 1, MANY, |args| Ok(largest(args))),
    ("sprig_maxf", 1, MANY, |args| Ok(Value::Float(floats(args).fold(f64::NEG_INFINITY, f64::max)))),
    ("sprig_min", 1, MANY, |args| Ok(Value::Int64(integers(args).min().unwrap_or_default()))),
    ("sprig_minf", 1, MANY, |args| Ok(Value::Float(floats(args).fold(f64::INFINITY, f64::min)))),
    ("sprig_mod", 2, 2, |args| {
        let rest = to_integer(args.value(0)?).checked_rem(to_integer(args.value(1)?));
        rest.map(Value::Int64).ok_or_else(|| args.fail("the result does not fit in 64 bits"))
    }),
    ("sprig_mul", 1, MANY, |args| Ok(Value::Int64(integers(args).fold(1, i64::wrapping_mul)))),
    ("sprig_mulf", 1, MANY, |args| Ok(Value::Float(floats(args).fold(1.0, decimal::multiply)))),
    ("sprig_round", 2, 3, |args| {
        let border = if args.len() > 2 { to_float(args.value(2)?) } else { 0.5 };
        let power = 10_f64.powi(i32::try_from(args.integer(1)?).unwrap_or_default());
        let scaled = power * to_float(args.value(0)?);
        Ok(Value::Float(if scaled.fract() >= border { scaled.ceil() } else { scaled.floor() } / power))
    }),
    ("sprig_seq", 0, 3, |args| {
        let numbers: Vec<i64> = integers(args).collect();
        let (from, to, step) = match numbers.as_slice() {
            [] => return Ok(Value::text("")),
            [to] => (1, *to, if *to < 1 { -1 } else { 1 }),
            [from, to] => (*from, *to, if to < from { -1 } else { 1 }),
            [from, step, to, ..] => (*from, *to, *step),
        };
        let end = to.saturating_add(step.signum());
        let texts: Vec<String> = steps(args, from, end, step)?.iter().map(ToString::to_string).collect();
        Ok(Value::text(texts.join(" ")))
    }),
    ("sprig_sub", 2, 2, |args| Ok(Value::Int64(to_integer(args.value(0)?).wrapping_sub(to_integer(args.value(1)?))))),
    ("sprig_subf", 1, MANY, |args| {
        Ok(Value::Float(floats(args).skip(1).fold(to_float(args.value(0)?), decimal::subtract)))
    }),
    ("sprig_toDecimal", 1, 1, |args| {
        let octal = args.format_argument(0)?;
        Ok(Value::Int64(i64::from_str_radix(&octal, 8).unwrap_or_default()))
    }),
    ("sprig_until", 1, 1, |args| {
        let end = args.integer(0)?;
        Ok(to_list(&steps(args, 0, end, if end < 0 { -1 } else { 1 })?))
    }),
    ("sprig_untilStep", 3, 3, |args| Ok(to_list(&steps(args, args.integer(0)?, args.integer(1)?, args.integer(2)?)?))),
];

fn integers<'a>(args: &Arguments<'a>) -> impl Iterator<Item = i64> + use<'a> {
    args.all().iter().map(to_integer)
}

fn floats<'a>(args: &Arguments<'a>) -> impl Iterator<Item = f64> + use<'a> {
    args.all().iter().map(to_float)
}

fn largest(args: &Arguments<'_>) -> Value {
    Value::Int64(integers(args).max().unwrap_or_default())
}

const MAX_STEPS: usize = 100_000;

/// Returns the numbers from the first to before the end; none if the step leads away from it.
fn steps(args: &Arguments<'_>, from: i64, end: i64, step: i64) -> Result<Vec<i64>, Failure> {
    let mut numbers = Vec::new();
    let mut next = from;
    while step > 0 && next < end || step < 0 && next > end {
        if numbers.len() >= MAX_STEPS {
            return Err(args.fail("more than a hundred thousand numbers"));
        }
        numbers.push(next);
        let Some(sum) = next.checked_add(step) else { break };
        next = sum;
    }
    Ok(numbers)
}

fn to_list(numbers: &[i64]) -> Value {
    Value::list_of(Elements::Ints, numbers.iter().map(|number| Value::Int(*number)))
}
