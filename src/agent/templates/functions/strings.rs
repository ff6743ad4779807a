//! Functions of consul-template on strings.

use regex_lite::Regex;

use super::NamedFunction;
use super::arguments::{Arguments, print};
use super::case::{lower, title, upper};
use crate::templates::engine::{Failure, MapType, Value};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("indent", 2, 2, |args| {
        let spaces = " ".repeat(args.size(0, 1000)?);
        let line = |line: &str| if line.is_empty() { String::new() } else { format!("{spaces}{line}") };
        let lines: Vec<String> = args.text(1)?.split('\n').map(line).collect();
        Ok(Value::text(lines.join("\n")))
    }),
    ("join", 2, 2, |args| {
        let items: Result<Vec<String>, Failure> = args.list(1)?.iter().map(print).collect();
        Ok(Value::text(items?.join(args.text(0)?)))
    }),
    ("regexMatch", 2, 2, |args| Ok(Value::Bool(parse_regex(args)?.is_match(args.text(1)?)))),
    ("regexReplaceAll", 3, 3, |args| {
        Ok(Value::text(parse_regex(args)?.replace_all(args.text(2)?, args.text(1)?).into_owned()))
    }),
    ("replaceAll", 3, 3, |args| replace(args)),
    ("split", 2, 2, |args| {
        let string = args.text(1)?.trim();
        Ok(if string.is_empty() { Value::texts::<&str>([]) } else { split(string, args.text(0)?) })
    }),
    ("splitToMap", 3, 3, |args| {
        let between = args.text(1)?;
        let pairs = args.text(2)?.trim().split(args.text(0)?).filter_map(|pair| pair.split_once(between));
        Ok(Value::map_of(MapType::Texts, pairs.map(|(key, value)| (key, Value::text(value)))))
    }),
    ("toLower", 1, 1, |args| Ok(Value::text(lower(args.text(0)?)))),
    ("toTitle", 1, 1, |args| Ok(Value::text(title(args.text(0)?)))),
    ("toUpper", 1, 1, |args| Ok(Value::text(upper(args.text(0)?)))),
    ("trim", 1, 2, |args| {
        if args.len() == 1 {
            return Ok(Value::text(args.text(0)?.trim()));
        }
        let removed: Vec<char> = args.text(0)?.chars().collect();
        Ok(Value::text(args.text(1)?.trim_matches(removed.as_slice())))
    }),
    ("trimPrefix", 2, 2, |args| {
        let string = args.text(1)?;
        Ok(Value::text(string.strip_prefix(args.text(0)?).unwrap_or(string)))
    }),
    ("trimSpace", 1, 1, |args| Ok(Value::text(args.text(0)?.trim()))),
    ("trimSuffix", 2, 2, |args| {
        let string = args.text(1)?;
        Ok(Value::text(string.strip_suffix(args.text(0)?).unwrap_or(string)))
    }),
];

/// Splits a text; an empty separator splits into characters.
pub(super) fn split(text: &str, by: &str) -> Value {
    if by.is_empty() {
        return Value::texts(text.chars().map(|c| c.to_string()));
    }
    Value::texts(text.split(by))
}

pub(super) fn replace(args: &Arguments<'_>) -> Result<Value, Failure> {
    Ok(Value::text(args.text(2)?.replace(args.text(0)?, args.text(1)?)))
}

pub(super) fn parse_regex(args: &Arguments<'_>) -> Result<Regex, Failure> {
    Regex::new(args.text(0)?).map_err(|_| args.fail("argument 1 is not a regular expression"))
}
