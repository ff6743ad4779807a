//! Functions on regular expressions.

use regex_lite::Regex;

use crate::templates::engine::{Failure, Value};
use crate::templates::functions::arguments::Arguments;
use crate::templates::functions::strings::{parse_regex, replace_regex};
use crate::templates::functions::{FunctionResult, NamedFunction};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_mustRegexFind", 2, 2, find),
    ("sprig_mustRegexFindAll", 3, 3, find_all),
    ("sprig_mustRegexMatch", 2, 2, |args| Ok(Value::Bool(parse_regex(args)?.is_match(args.text(1)?)))),
    ("sprig_mustRegexReplaceAll", 3, 3, replace),
    ("sprig_mustRegexReplaceAllLiteral", 3, 3, replace_literal),
    ("sprig_mustRegexSplit", 3, 3, split),
    ("sprig_regexFind", 2, 2, find),
    ("sprig_regexFindAll", 3, 3, find_all),
    ("sprig_regexMatch", 2, 2, |args| {
        let string = args.text(1)?;
        // As in sprig, an invalid expression matches nothing.
        Ok(Value::Bool(Regex::new(args.text(0)?).is_ok_and(|regex| regex.is_match(string))))
    }),
    ("sprig_regexQuoteMeta", 1, 1, |args| {
        let mut quoted = String::with_capacity(args.text(0)?.len());
        for c in args.text(0)?.chars() {
            if r"\.+*?()|[]{}^$".contains(c) {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        Ok(Value::text(quoted))
    }),
    ("sprig_regexReplaceAll", 3, 3, replace),
    ("sprig_regexReplaceAllLiteral", 3, 3, replace_literal),
    ("sprig_regexSplit", 3, 3, split),
];

fn find(args: &Arguments<'_>) -> FunctionResult {
    let found = parse_regex(args)?.find(args.text(1)?).map(|found| found.as_str().to_owned());
    Ok(Value::text(found.unwrap_or_default()))
}

/// Reads the most results that a function returns; negative for all.
fn limit(args: &Arguments<'_>) -> Result<usize, Failure> {
    Ok(usize::try_from(args.integer(2)?).unwrap_or(usize::MAX))
}

fn find_all(args: &Arguments<'_>) -> FunctionResult {
    let regex = parse_regex(args)?;
    let found = regex.find_iter(args.text(1)?).take(limit(args)?);
    Ok(Value::texts(found.map(|found| found.as_str().to_owned())))
}

fn replace(args: &Arguments<'_>) -> FunctionResult {
    replace_regex(&parse_regex(args)?, args.text(1)?, args.text(2)?)
}

fn replace_literal(args: &Arguments<'_>) -> FunctionResult {
    replace_regex(&parse_regex(args)?, args.text(1)?, &args.text(2)?.replace('$', "$$"))
}

fn split(args: &Arguments<'_>) -> FunctionResult {
    let regex = parse_regex(args)?;
    let (text, limit) = (args.text(1)?, limit(args)?);
    if limit == 0 {
        return Ok(Value::texts::<&str>([]));
    }
    if text.is_empty() {
        return Ok(Value::texts([""]));
    }
    let mut parts: Vec<&str> = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for found in regex.find_iter(text) {
        if parts.len() + 1 == limit {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(&text[begin..end]);
        }
        begin = found.end();
    }
    if end != text.len() {
        parts.push(&text[begin..]);
    }
    Ok(Value::texts(parts))
}
