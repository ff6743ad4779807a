//! Functions of sprig, under the names that consul-template gives them. The piped value is the last argument.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::{TemplateError as EngineError, Value};
use regex_lite::Regex;

use super::arguments::Arguments;
use super::{FunctionResult, NamedFunction, PURE};
use crate::templates::value::{list, text};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_atoi", |args| {
        let args = Arguments::exactly("sprig_atoi", args, 1)?;
        // As in sprig, a string that is not a number is 0.
        Ok(Value::Int(args.text(0)?.parse().unwrap_or_default()))
    }),
    ("sprig_cat", |args| {
        let args = Arguments::between("sprig_cat", args, 0, usize::MAX)?;
        let parts: Result<Vec<_>, _> = (0..args.len()).map(|at| args.format_argument(at)).collect();
        Ok(text(parts?.join(" ")))
    }),
    ("sprig_contains", |args| {
        apply_to_strings("sprig_contains", args, |part, string| Value::Bool(string.contains(part)))
    }),
    ("sprig_dict", |args| {
        let args = Arguments::between("sprig_dict", args, 0, usize::MAX)?;
        let pairs = (0..args.len()).step_by(2).map(|at| {
            let value = if at + 1 < args.len() { args.value(at + 1)?.clone() } else { text("") };
            Ok((Arc::from(args.format_argument(at)?), value))
        });
        Ok(Value::Map(Arc::new(pairs.collect::<Result<BTreeMap<Arc<str>, Value>, EngineError>>()?)))
    }),
    ("sprig_first", |args| apply_to_list("sprig_first", args, |items| items.first().cloned())),
    ("sprig_fromJson", |args| alias("parseJSON", args)),
    ("sprig_has", |args| {
        let args = Arguments::exactly("sprig_has", args, 2)?;
        Ok(Value::Bool(args.list(1)?.contains(args.value(0)?)))
    }),
    ("sprig_hasPrefix", |args| {
        apply_to_strings("sprig_hasPrefix", args, |part, string| Value::Bool(string.starts_with(part)))
    }),
    ("sprig_hasSuffix", |args| {
        apply_to_strings("sprig_hasSuffix", args, |part, string| Value::Bool(string.ends_with(part)))
    }),
    ("sprig_indent", |args| {
        let args = Arguments::exactly("sprig_indent", args, 2)?;
        // Unlike `indent`, sprig indents empty lines too.
        let spaces = usize::try_from(args.integer(0)?).ok().filter(|spaces| *spaces <= 1000);
        let spaces = " ".repeat(spaces.ok_or_else(|| args.type_error(0, "a number from 0 to 1000"))?);
        Ok(text(format!("{spaces}{}", args.text(1)?.replace('\n', &format!("\n{spaces}")))))
    }),
    ("sprig_initial", |args| apply_to_list("sprig_initial", args, |items| Some(list(items.split_last()?.1.to_vec())))),
    ("sprig_int", |args| {
        let args = Arguments::exactly("sprig_int", args, 1)?;
        match args.value(0)? {
            Value::Float(number) => args.truncate(*number),
            _ => Ok(Value::Int(args.integer(0)?)),
        }
    }),
    ("sprig_join", |args| alias("join", args)),
    ("sprig_last", |args| apply_to_list("sprig_last", args, |items| items.last().cloned())),
    ("sprig_list", |args| Ok(list(args.to_vec()))),
    ("sprig_regexMatch", |args| alias("regexMatch", args)),
    ("sprig_regexReplaceAll", |args| {
        let args = Arguments::exactly("sprig_regexReplaceAll", args, 3)?;
        let regex = Regex::new(args.text(0)?).map_err(|_| args.fail("argument 1 is not a regular expression"))?;
        Ok(text(regex.replace_all(args.text(1)?, args.text(2)?)))
    }),
    ("sprig_repeat", |args| {
        let args = Arguments::exactly("sprig_repeat", args, 2)?;
        let count = args.integer(0)?.max(0);
        let once = args.text(1)?;
        let count = usize::try_from(count).ok().filter(|count| count.saturating_mul(once.len()) <= MAX_REPEATED);
        Ok(text(once.repeat(count.ok_or_else(|| args.fail("the result exceeds 1 MiB"))?)))
    }),
    ("sprig_replace", |args| alias("replaceAll", args)),
    ("sprig_rest", |args| apply_to_list("sprig_rest", args, |items| Some(list(items.split_first()?.1.to_vec())))),
    ("sprig_reverse", |args| apply_to_list("sprig_reverse", args, |items| Some(list(items.iter().rev().cloned())))),
    ("sprig_sortAlpha", |args| {
        apply_to_list("sprig_sortAlpha", args, |items| {
            let mut strings: Vec<String> = items.iter().map(ToString::to_string).collect();
            strings.sort_unstable();
            Some(list(strings.iter().map(text)))
        })
    }),
    ("sprig_splitList", |args| {
        let args = Arguments::exactly("sprig_splitList", args, 2)?;
        let by = args.text(0)?;
        let string = args.text(1)?;
        if by.is_empty() {
            return Ok(list(string.chars().map(|c| text(c.to_string()))));
        }
        Ok(list(string.split(by).map(text)))
    }),
    ("sprig_substr", |args| {
        let args = Arguments::exactly("sprig_substr", args, 3)?;
        let start = args.integer(0)?;
        let end = args.integer(1)?;
        let string = args.text(2)?;
        // In bytes; a negative end means the end of the string.
        let start = usize::try_from(start).unwrap_or_default();
        let end = usize::try_from(end).map_or(string.len(), |end| end.min(string.len()));
        string
            .get(start..end)
            .map(text)
            .ok_or_else(|| args.fail("the range is outside the string or splits a character"))
    }),
    ("sprig_title", |args| alias("toTitle", args)),
    ("sprig_toJson", |args| alias("toJSON", args)),
    ("sprig_toPrettyJson", |args| alias("toJSONPretty", args)),
    ("sprig_toString", |args| Ok(text(Arguments::exactly("sprig_toString", args, 1)?.value(0)?.to_string()))),
    ("sprig_trimAll", |args| alias("trim", args)),
    ("sprig_trimPrefix", |args| alias("trimPrefix", args)),
    ("sprig_trimSuffix", |args| alias("trimSuffix", args)),
    ("sprig_trunc", |args| {
        let args = Arguments::exactly("sprig_trunc", args, 2)?;
        let count = args.integer(0)?;
        let string = args.text(1)?;
        let length = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(string.len());
        // In bytes; from the end for a negative number.
        let part = if count < 0 { string.get(string.len() - length..) } else { string.get(..length) };
        part.map(text).ok_or_else(|| args.fail("the cut would split a character"))
    }),
    ("sprig_uniq", |args| {
        apply_to_list("sprig_uniq", args, |items| {
            let mut unique: Vec<Value> = Vec::new();
            for item in items {
                if !unique.contains(item) {
                    unique.push(item.clone());
                }
            }
            Some(list(unique))
        })
    }),
    ("sprig_values", |args| {
        let args = Arguments::exactly("sprig_values", args, 1)?;
        match args.value(0)? {
            Value::Map(fields) => Ok(list(fields.values().cloned())),
            _ => Err(args.type_error(0, "a map")),
        }
    }),
];

const MAX_REPEATED: usize = 1 << 20;

/// Calls the function of consul-template that does the same.
fn alias(name: &str, args: &[Value]) -> FunctionResult {
    match PURE.get(name) {
        Some(function) => function(args),
        None => Err(EngineError::UndefinedFunction(name.to_owned())),
    }
}

fn apply_to_strings(name: &str, args: &[Value], response: fn(&str, &str) -> Value) -> FunctionResult {
    let args = Arguments::exactly(name, args, 2)?;
    Ok(response(args.text(0)?, args.text(1)?))
}

/// Applies a function to a list; `nil` if it returns nothing, as for an empty list.
fn apply_to_list(name: &str, args: &[Value], response: fn(&[Value]) -> Option<Value>) -> FunctionResult {
    let args = Arguments::exactly(name, args, 1)?;
    Ok(response(args.list(0)?).unwrap_or(Value::Nil))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::templates::value::{from_json, to_json};

    #[test]
    fn functions_have_the_results_of_sprig() {
        let check = |name: &str, args: &[Json], expected: Json| {
            let args: Vec<Value> = args.iter().map(from_json).collect();
            let found = alias(name, &args).map(|found| to_json(&found).unwrap());
            assert_eq!(found.map_err(|error| error.to_string()), Ok(expected), "{name}");
        };
        check("sprig_atoi", &[json!("12")], json!(12));
        check("sprig_atoi", &[json!("x")], json!(0));
        check("sprig_cat", &[json!("a"), json!(1)], json!("a 1"));
        check("sprig_contains", &[json!("b"), json!("abc")], json!(true));
        check("sprig_dict", &[json!("a"), json!(1), json!("b")], json!({ "a": 1, "b": "" }));
        check("sprig_first", &[json!([1, 2])], json!(1));
        check("sprig_first", &[json!([])], json!(null));
        check("sprig_fromJson", &[json!("{\"a\":[1]}")], json!({ "a": [1] }));
        check("sprig_has", &[json!(2), json!([1, 2])], json!(true));
        check("sprig_hasPrefix", &[json!("a"), json!("ab")], json!(true));
        check("sprig_hasSuffix", &[json!("a"), json!("ab")], json!(false));
        check("sprig_indent", &[json!(2), json!("a\n\nb")], json!("  a\n  \n  b"));
        check("sprig_initial", &[json!([1, 2, 3])], json!([1, 2]));
        check("sprig_int", &[json!("3")], json!(3));
        check("sprig_int", &[json!(3.9)], json!(3));
        check("sprig_join", &[json!("-"), json!(["a", 1])], json!("a-1"));
        check("sprig_last", &[json!([1, 2])], json!(2));
        check("sprig_list", &[json!(1), json!("a")], json!([1, "a"]));
        check("sprig_regexMatch", &[json!("^a"), json!("ab")], json!(true));
        check("sprig_regexReplaceAll", &[json!("a(x*)b"), json!("-ab-axxb-"), json!("${1}W")], json!("-W-xxW-"));
        check("sprig_repeat", &[json!(2), json!("ab")], json!("abab"));
        check("sprig_replace", &[json!("a"), json!("b"), json!("aa")], json!("bb"));
        check("sprig_rest", &[json!([1, 2, 3])], json!([2, 3]));
        check("sprig_reverse", &[json!([1, 2])], json!([2, 1]));
        check("sprig_sortAlpha", &[json!(["b", "a", 1])], json!(["1", "a", "b"]));
        check("sprig_splitList", &[json!(","), json!("a,,b")], json!(["a", "", "b"]));
        check("sprig_substr", &[json!(1), json!(3), json!("abcd")], json!("bc"));
        check("sprig_substr", &[json!(1), json!(-1), json!("abcd")], json!("bcd"));
        check("sprig_title", &[json!("ab c")], json!("Ab C"));
        check("sprig_toJson", &[json!({ "a": 1 })], json!("{\"a\":1}"));
        check("sprig_toString", &[json!(3)], json!("3"));
        check("sprig_trimAll", &[json!("$"), json!("$5$")], json!("5"));
        check("sprig_trimPrefix", &[json!("a"), json!("ab")], json!("b"));
        check("sprig_trimSuffix", &[json!("b"), json!("ab")], json!("a"));
        check("sprig_trunc", &[json!(2), json!("abc")], json!("ab"));
        check("sprig_trunc", &[json!(-2), json!("abc")], json!("bc"));
        check("sprig_uniq", &[json!(["b", "a", "b"])], json!(["b", "a"]));
        check("sprig_values", &[json!({ "b": 2, "a": 1 })], json!([1, 2]));
        check("sprig_quote", &[json!("a\"b"), json!(1)], json!("\"a\\\"b\" \"1\""));
        check("sprig_squote", &[json!("a"), json!(true)], json!("'a' 'true'"));
        assert!(alias("sprig_repeat", &[Value::Int(1 << 40), text("ab")]).is_err());
        assert!(alias("sprig_trunc", &[Value::Int(1), text("\u{fc}")]).is_err());
    }
}
