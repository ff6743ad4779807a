//! Functions on texts.

use super::cast::to_text;
use super::wrap::{abbreviate, wrap};
use crate::templates::engine::{Failure, MapType, Value, quote};
use crate::templates::functions::arguments::{self, Arguments};
use crate::templates::functions::case::{by_word, lower, lower_char, title, upper, upper_char, words};
use crate::templates::functions::strings::{replace, split};
use crate::templates::functions::{FunctionResult, MANY, NamedFunction};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_abbrev", 2, 2, |args| {
        let (width, text) = (args.size(0, usize::MAX)?, args.text(1)?);
        if width < 4 { Ok(Value::text(text)) } else { abbreviate(args, text, 0, width) }
    }),
    ("sprig_abbrevboth", 3, 3, |args| {
        let (offset, width, text) = (args.size(0, usize::MAX)?, args.size(1, usize::MAX)?, args.text(2)?);
        let is_short = width < 4 || offset > 0 && width < 7;
        if is_short { Ok(Value::text(text)) } else { abbreviate(args, text, offset, width) }
    }),
    ("sprig_camelcase", 1, 1, |args| {
        let capital = |word: String| by_word(&word, upper_char, lower_char);
        Ok(Value::text(words(args.text(0)?).into_iter().map(capital).collect::<String>()))
    }),
    ("sprig_cat", 0, MANY, |args| {
        let parts: Result<Vec<String>, Failure> = present(args).map(to_text).collect();
        Ok(Value::text(parts?.join(" ")))
    }),
    ("sprig_contains", 2, 2, |args| Ok(Value::Bool(args.text(1)?.contains(args.text(0)?)))),
    ("sprig_hasPrefix", 2, 2, |args| Ok(Value::Bool(args.text(1)?.starts_with(args.text(0)?)))),
    ("sprig_hasSuffix", 2, 2, |args| Ok(Value::Bool(args.text(1)?.ends_with(args.text(0)?)))),
    // Unlike `indent`, sprig indents empty lines too.
    ("sprig_indent", 2, 2, |args| indent(args, "")),
    ("sprig_initials", 1, 1, |args| {
        let letters = args.text(0)?.split_whitespace().filter_map(|word| word.chars().next());
        Ok(Value::text(letters.collect::<String>()))
    }),
    ("sprig_kebabcase", 1, 1, |args| Ok(Value::text(lower(&words(args.text(0)?).join("-"))))),
    ("sprig_lower", 1, 1, |args| Ok(Value::text(lower(args.text(0)?)))),
    ("sprig_nindent", 2, 2, |args| indent(args, "\n")),
    ("sprig_nospace", 1, 1, |args| {
        Ok(Value::text(args.text(0)?.chars().filter(|c| !c.is_whitespace()).collect::<String>()))
    }),
    ("sprig_plural", 3, 3, |args| Ok(Value::text(args.text(usize::from(args.integer(2)? != 1))?))),
    ("sprig_quote", 0, MANY, |args| quote_all(args, |text| quote(text, false))),
    ("sprig_repeat", 2, 2, |args| {
        let once = args.text(1)?;
        let count = args.size(0, usize::MAX)?;
        if count.saturating_mul(once.len()) > MAX_REPEATED {
            return Err(args.fail("the result exceeds 1 MiB"));
        }
        Ok(Value::text(once.repeat(count)))
    }),
    ("sprig_replace", 3, 3, replace),
    ("sprig_snakecase", 1, 1, |args| Ok(Value::text(lower(&words(args.text(0)?).join("_"))))),
    ("sprig_split", 2, 2, |args| Ok(number_parts(args.text(1)?.split(args.text(0)?)))),
    ("sprig_splitList", 2, 2, |args| Ok(split(args.text(1)?, args.text(0)?))),
    ("sprig_splitn", 3, 3, |args| Ok(number_parts(args.text(2)?.splitn(args.size(1, usize::MAX)?, args.text(0)?)))),
    ("sprig_squote", 0, MANY, |args| quote_all(args, |text| format!("'{text}'"))),
    ("sprig_substr", 3, 3, |args| {
        let text = args.text(2)?;
        let (start, end) = (usize::try_from(args.integer(0)?), usize::try_from(args.integer(1)?));
        // In bytes; a negative end means the end of the text.
        let end = end.ok().filter(|end| *end <= text.len()).unwrap_or(text.len());
        let part = text.get(start.unwrap_or_default()..end);
        part.map(Value::text).ok_or_else(|| args.fail("the range is outside the text or splits a character"))
    }),
    ("sprig_swapcase", 1, 1, |args| {
        let swap = |c: char| if c.is_uppercase() { lower_char(c) } else { upper_char(c) };
        Ok(Value::text(args.text(0)?.chars().map(swap).collect::<String>()))
    }),
    ("sprig_title", 1, 1, |args| Ok(Value::text(title(args.text(0)?)))),
    ("sprig_toString", 1, 1, |args| Ok(Value::text(to_text(args.value(0)?)?))),
    ("sprig_trim", 1, 1, |args| Ok(Value::text(args.text(0)?.trim()))),
    ("sprig_trimAll", 2, 2, trim_all),
    ("sprig_trimall", 2, 2, trim_all),
    ("sprig_trimPrefix", 2, 2, |args| {
        Ok(Value::text(args.text(1)?.strip_prefix(args.text(0)?).unwrap_or(args.text(1)?)))
    }),
    ("sprig_trimSuffix", 2, 2, |args| {
        Ok(Value::text(args.text(1)?.strip_suffix(args.text(0)?).unwrap_or(args.text(1)?)))
    }),
    ("sprig_trunc", 2, 2, |args| {
        let (count, text) = (args.integer(0)?, args.text(1)?);
        let length = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(text.len());
        // In bytes; from the end for a negative number.
        let part = if count < 0 { text.get(text.len() - length..) } else { text.get(..length) };
        part.map(Value::text).ok_or_else(|| args.fail("the cut would split a character"))
    }),
    ("sprig_untitle", 1, 1, |args| Ok(Value::text(by_word(args.text(0)?, lower_char, |c| c)))),
    ("sprig_upper", 1, 1, |args| Ok(Value::text(upper(args.text(0)?)))),
    ("sprig_wrap", 2, 2, |args| wrap(args.text(1)?, args.size(0, usize::MAX)?, "\n")),
    ("sprig_wrapWith", 3, 3, |args| wrap(args.text(2)?, args.size(0, usize::MAX)?, args.text(1)?)),
];

const MAX_REPEATED: usize = 1 << 20;

/// Returns the arguments that are something.
fn present<'a>(args: &Arguments<'a>) -> impl Iterator<Item = &'a Value> {
    args.all().iter().filter(|value| !value.is_nil())
}

/// Quotes each argument, and joins the results with spaces.
fn quote_all(args: &Arguments<'_>, quote: fn(&str) -> String) -> FunctionResult {
    let quoted: Result<Vec<String>, Failure> = present(args).map(|value| Ok(quote(&to_text(value)?))).collect();
    Ok(Value::text(quoted?.join(" ")))
}

fn indent(args: &Arguments<'_>, prefix: &str) -> FunctionResult {
    let spaces = " ".repeat(args.size(0, 1000)?);
    let indented = arguments::replace(args.text(1)?, "\n", &format!("\n{spaces}"))?;
    Ok(Value::text(format!("{prefix}{spaces}{indented}")))
}

fn trim_all(args: &Arguments<'_>) -> FunctionResult {
    let removed: Vec<char> = args.text(0)?.chars().collect();
    Ok(Value::text(args.text(1)?.trim_matches(removed.as_slice())))
}

/// Returns parts as a map with the keys `_0`, `_1` and so on.
fn number_parts<'a>(parts: impl Iterator<Item = &'a str>) -> Value {
    Value::map_of(MapType::Texts, parts.enumerate().map(|(at, part)| (format!("_{at}"), Value::text(part))))
}
