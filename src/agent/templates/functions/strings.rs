//! Functions of consul-template on strings.

use regex_lite::Regex;

use super::NamedFunction;
use super::arguments::{self, Arguments, join, print};
use super::case::{lower, title, upper};
use crate::templates::engine::{Buffer, Failure, MapType, Value, check_size};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("indent", 2, 2, |args| {
        let (spaces, mut out) = (args.size(0, 1000)?, Buffer::new());
        for (at, line) in args.text(1)?.split('\n').enumerate() {
            out.push(if at > 0 { "\n" } else { "" });
            out.repeat(" ", if line.is_empty() { 0 } else { spaces });
            out.push(line);
        }
        out.into_text().map(Value::Text)
    }),
    ("join", 2, 2, |args| {
        let items: Result<Vec<String>, Failure> = args.list(1)?.iter().map(print).collect();
        join(&items?, args.text(0)?)
    }),
    ("regexMatch", 2, 2, |args| Ok(Value::Bool(parse_regex(args)?.is_match(args.text(1)?)))),
    ("regexReplaceAll", 3, 3, |args| replace_regex(&parse_regex(args)?, args.text(2)?, args.text(1)?)),
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
    arguments::replace(args.text(2)?, args.text(0)?, args.text(1)?).map(Value::text)
}

/// Replaces what an expression matches; `$1` in the replacement is what its first group matches.
pub(super) fn replace_regex(regex: &Regex, text: &str, replacement: &str) -> Result<Value, Failure> {
    let references = replacement.matches('$').count();
    let (mut out, mut end) = (Buffer::new(), 0);
    for captures in regex.captures_iter(text) {
        let Some(whole) = captures.get(0) else { continue };
        // The longest that it can become.
        check_size(references.saturating_mul(whole.len()).saturating_add(replacement.len()))?;
        let mut expanded = String::new();
        captures.expand(replacement, &mut expanded);
        out.push(&text[end..whole.start()]);
        out.push(&expanded);
        end = whole.end();
        if out.is_full() {
            break;
        }
    }
    out.push(&text[end..]);
    out.into_text().map(Value::Text)
}

pub(super) fn parse_regex(args: &Arguments<'_>) -> Result<Regex, Failure> {
    Regex::new(args.text(0)?).map_err(|_| args.fail("argument 1 is not a regular expression"))
}
