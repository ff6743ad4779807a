//! Functions on strings.

use std::sync::Arc;

use gotmpl::Value;
use regex_lite::Regex;

use super::arguments::Arguments;
use super::{FunctionResult, NamedFunction};
use crate::templates::value::{list, map, text};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("indent", |args| {
        let args = Arguments::exactly("indent", args, 2)?;
        indent(&args, "")
    }),
    ("join", |args| {
        let args = Arguments::exactly("join", args, 2)?;
        let items: Vec<String> = args.list(1)?.iter().map(ToString::to_string).collect();
        Ok(text(items.join(args.text(0)?)))
    }),
    ("regexMatch", |args| {
        let args = Arguments::exactly("regexMatch", args, 2)?;
        Ok(Value::Bool(parse_regex(&args)?.is_match(args.text(1)?)))
    }),
    ("regexReplaceAll", |args| {
        let args = Arguments::exactly("regexReplaceAll", args, 3)?;
        Ok(text(parse_regex(&args)?.replace_all(args.text(2)?, args.text(1)?)))
    }),
    ("replaceAll", |args| {
        let args = Arguments::exactly("replaceAll", args, 3)?;
        Ok(text(args.text(2)?.replace(args.text(0)?, args.text(1)?)))
    }),
    ("split", |args| {
        let args = Arguments::exactly("split", args, 2)?;
        let by = args.text(0)?;
        let string = args.text(1)?.trim();
        if string.is_empty() {
            return Ok(list([]));
        }
        // As in Go, an empty separator splits into characters.
        if by.is_empty() {
            return Ok(list(string.chars().map(|c| text(c.to_string()))));
        }
        Ok(list(string.split(by).map(text)))
    }),
    ("splitToMap", |args| {
        let args = Arguments::exactly("splitToMap", args, 3)?;
        let by = args.text(0)?;
        let between = args.text(1)?;
        let pairs = args.text(2)?.trim().split(by).filter(|pair| !pair.is_empty());
        Ok(map(pairs.map(|pair| match pair.split_once(between) {
            Some((key, value)) => (key, text(value)),
            None => (pair, text("")),
        })))
    }),
    ("sprig_lower", |args| Ok(text(Arguments::exactly("sprig_lower", args, 1)?.text(0)?.to_lowercase()))),
    ("sprig_nindent", |args| {
        let args = Arguments::exactly("sprig_nindent", args, 2)?;
        indent(&args, "\n")
    }),
    ("sprig_quote", |args| {
        let args = Arguments::between("sprig_quote", args, 0, usize::MAX)?;
        map_and_join(&args, |text| format!("{text:?}"))
    }),
    ("sprig_squote", |args| {
        let args = Arguments::between("sprig_squote", args, 0, usize::MAX)?;
        map_and_join(&args, |text| format!("'{text}'"))
    }),
    ("sprig_trim", |args| Ok(text(Arguments::exactly("sprig_trim", args, 1)?.text(0)?.trim()))),
    ("sprig_upper", |args| Ok(text(Arguments::exactly("sprig_upper", args, 1)?.text(0)?.to_uppercase()))),
    ("toLower", |args| Ok(text(Arguments::exactly("toLower", args, 1)?.text(0)?.to_lowercase()))),
    ("toTitle", |args| {
        let args = Arguments::exactly("toTitle", args, 1)?;
        let mut begins = true;
        let mut title = String::with_capacity(args.text(0)?.len());
        for c in args.text(0)?.chars() {
            if begins {
                title.extend(c.to_uppercase());
            } else {
                title.push(c);
            }
            begins = !(c.is_alphanumeric() || c == '_' || c == '\'');
        }
        Ok(text(title))
    }),
    ("toUpper", |args| Ok(text(Arguments::exactly("toUpper", args, 1)?.text(0)?.to_uppercase()))),
    ("trim", |args| {
        let args = Arguments::between("trim", args, 1, 2)?;
        if args.len() == 1 {
            return Ok(text(args.text(0)?.trim()));
        }
        let cut: Vec<char> = args.text(0)?.chars().collect();
        Ok(text(args.text(1)?.trim_matches(cut.as_slice())))
    }),
    ("trimPrefix", |args| {
        let args = Arguments::exactly("trimPrefix", args, 2)?;
        let string = args.text(1)?;
        Ok(text(string.strip_prefix(args.text(0)?).unwrap_or(string)))
    }),
    ("trimSpace", |args| Ok(text(Arguments::exactly("trimSpace", args, 1)?.text(0)?.trim()))),
    ("trimSuffix", |args| {
        let args = Arguments::exactly("trimSuffix", args, 2)?;
        let string = args.text(1)?;
        Ok(text(string.strip_suffix(args.text(0)?).unwrap_or(string)))
    }),
];

/// Converts each argument, and joins the results with spaces.
fn map_and_join(args: &Arguments<'_>, convert: fn(String) -> String) -> FunctionResult {
    let all: Result<Vec<_>, _> = (0..args.len()).map(|at| args.format_argument(at).map(convert)).collect();
    Ok(text(all?.join(" ")))
}

fn parse_regex(args: &Arguments<'_>) -> Result<Regex, gotmpl::TemplateError> {
    Regex::new(args.text(0)?).map_err(|_| args.fail("argument 1 is not a regular expression"))
}

/// Indents the non-empty lines of argument 2 by the number of spaces in argument 1.
fn indent(args: &Arguments<'_>, prefix: &str) -> FunctionResult {
    let spaces = usize::try_from(args.integer(0)?).ok().filter(|spaces| *spaces <= 1000);
    let spaces = " ".repeat(spaces.ok_or_else(|| args.type_error(0, "a number from 0 to 1000"))?);
    let line = |line: &str| if line.is_empty() { String::new() } else { format!("{spaces}{line}") };
    let lines: Vec<String> = args.text(1)?.split('\n').map(line).collect();
    Ok(Value::String(Arc::from(format!("{prefix}{}", lines.join("\n")))))
}
