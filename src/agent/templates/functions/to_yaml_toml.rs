//! `toYAML` and `toTOML`.

use std::fmt::Write as _;

use gotmpl::Value;
use serde_json::Value as Json;
use zeroize::Zeroizing;

use super::NamedFunction;
use super::arguments::Arguments;
use crate::templates::value::{ZeroizingJson, text, to_json};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("toTOML", |args| {
        let args = Arguments::exactly("toTOML", args, 1)?;
        let value = without_nil(args.value(0)?);
        if !matches!(value, Value::Map(_)) {
            return Err(args.type_error(0, "a map"));
        }
        let json = ZeroizingJson(to_json(&value)?);
        if has_too_large_number(&json.0) {
            return Err(args.fail(NOT_IN_TOML));
        }
        // The library's message may contain the value.
        let written = toml::to_string(&json.0).map(Zeroizing::new);
        let written = written.map_err(|_| args.fail(NOT_IN_TOML))?;
        Ok(text(written.trim()))
    }),
    ("toYAML", |args| {
        let args = Arguments::exactly("toYAML", args, 1)?;
        let json = ZeroizingJson(to_json(args.value(0)?)?);
        let mut written = Zeroizing::new(String::with_capacity(4 * 1024));
        write_yaml(&mut written, &json.0, 0);
        Ok(text(written.trim_end()))
    }),
];

const NOT_IN_TOML: &str = "TOML has no null in a list and no number this large";

/// Returns true if a number exceeds a signed 64-bit integer, the most that TOML requires of parsers.
fn has_too_large_number(json: &Json) -> bool {
    match json {
        Json::Number(number) => number.is_u64() && !number.is_i64(),
        Json::Array(items) => items.iter().any(has_too_large_number),
        Json::Object(fields) => fields.values().any(has_too_large_number),
        _ => false,
    }
}

/// Removes fields without a value, which TOML cannot express.
fn without_nil(value: &Value) -> Value {
    match value {
        Value::Map(fields) => {
            let present = fields.iter().filter(|(_, value)| !matches!(value, Value::Nil));
            Value::Map(std::sync::Arc::new(present.map(|(key, value)| (key.clone(), without_nil(value))).collect()))
        }
        Value::List(items) => Value::List(items.iter().map(without_nil).collect()),
        other => other.clone(),
    }
}

/// Writes a value and a line end, at `depth` levels of indentation, which are already written. Maps and lists take lines of their
/// own, a list at the depth of its key, as consul-template writes them.
fn write_yaml(out: &mut String, value: &Json, depth: usize) {
    match value {
        Json::Object(fields) if !fields.is_empty() => {
            for (number, (key, value)) in fields.iter().enumerate() {
                if number > 0 {
                    indent(out, depth);
                }
                write_scalar(out, key);
                out.push(':');
                match value {
                    Json::Object(fields) if !fields.is_empty() => {
                        out.push('\n');
                        indent(out, depth + 1);
                        write_yaml(out, value, depth + 1);
                    }
                    Json::Array(items) if !items.is_empty() => {
                        out.push('\n');
                        indent(out, depth);
                        write_yaml(out, value, depth);
                    }
                    _ => {
                        out.push(' ');
                        write_yaml(out, value, depth);
                    }
                }
            }
        }
        Json::Array(items) if !items.is_empty() => {
            for (number, item) in items.iter().enumerate() {
                if number > 0 {
                    indent(out, depth);
                }
                out.push_str("- ");
                write_yaml(out, item, depth + 1);
            }
        }
        other => {
            match other {
                Json::String(text) => write_scalar(out, text),
                Json::Number(number) => out.push_str(&yaml_number(&number.to_string())),
                // An empty map, an empty list, a boolean, null.
                other => out.push_str(&other.to_string()),
            }
            out.push('\n');
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Adds a point and the exponent's sign: YAML 1.1 reads `1e21` as a string.
fn yaml_number(json: &str) -> String {
    let Some((mantissa, exponent)) = json.split_once('e') else { return json.to_owned() };
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
    format!("{mantissa}{point}e{sign}{exponent}")
}

/// Writes a string plain if parsers of YAML 1.1 and 1.2 read it as a string, and in double quotes otherwise.
fn write_scalar(out: &mut String, text: &str) {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    if begins && text.bytes().all(plain) && !RESERVED.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Characters that a parser may refuse or read as a line end.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Texts that YAML 1.1 reads as a boolean or null.
const RESERVED: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::value::from_json;
    use serde_json::json;

    fn call(name: &str, value: &Json) -> Result<String, String> {
        let (_, function) = FUNCTIONS.iter().find(|(function, _)| *function == name).unwrap();
        match function(&[from_json(value)]) {
            Ok(Value::String(text)) => Ok(text.to_string()),
            Ok(_) => panic!("no text"),
            Err(error) => Err(error.to_string().replace("execution error: ", "")),
        }
    }

    #[test]
    fn yaml_has_the_layout_of_consul_template() {
        let check = |value: Json, expected: &str| assert_eq!(call("toYAML", &value).unwrap(), expected, "{value}");
        check(
            json!({ "b": { "d": { "e": 1 }, "c": [1, "x", true] }, "a": "text" }),
            "a: text\nb:\n  c:\n  - 1\n  - x\n  - true\n  d:\n    e: 1",
        );
        check(json!([{ "a": 1, "b": [2] }, [3, [4]], {}]), "- a: 1\n  b:\n  - 2\n- - 3\n  - - 4\n- {}");
        check(
            json!({ "a": {}, "b": [], "c": null, "d": 0.5, "e": u64::MAX }),
            "a: {}\nb: []\nc: null\nd: 0.5\ne: 18446744073709551615",
        );
        check(json!({ "a": 1e21, "b": 2.5e-9, "c": -1 }), "a: 1.0e+21\nb: 2.5e-9\nc: -1");
        check(json!("text"), "text");
        check(json!(7), "7");
    }

    #[test]
    fn texts_that_yaml_would_read_as_another_type_are_quoted() {
        let check = |text: &str, expected: &str| assert_eq!(call("toYAML", &json!(text)).unwrap(), expected, "{text}");
        for plain in ["web-1", "a/b.c", "hvs.abc_DEF", "nothing", "yesterday"] {
            check(plain, plain);
        }
        for quoted in [
            "",
            " a",
            "a b",
            "No",
            "TRUE",
            "null",
            "~",
            "1",
            "1.5",
            "0x1f",
            "1:30",
            "2026-01-01",
            "-",
            "a: b",
            "#a",
            "é",
            ".inf",
            "<<",
            "=",
            "*a",
        ] {
            check(quoted, &format!("\"{quoted}\""));
        }
        check("a\"b\\c\nd\te", r#""a\"b\\c\nd\te""#);
        check("\u{0}\u{85}\u{2028}\u{feff}", r#""\u0000\u0085\u2028\ufeff""#);
        assert_eq!(
            call("toYAML", &json!({ "on": 1, "a b": 2, "8080": 3 })).unwrap(),
            "\"8080\": 3\n\"a b\": 2\n\"on\": 1"
        );
    }

    #[test]
    fn toml_omits_fields_without_a_value() {
        let check = |value: Json, expected: Result<&str, &str>| {
            let found = call("toTOML", &value);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{value}");
        };
        check(
            json!({ "z": 1, "a": { "b": "x", "c": null, "d": { "e": true } }, "list": [1, 2] }),
            Ok("list = [1, 2]\nz = 1\n\n[a]\nb = \"x\"\n\n[a.d]\ne = true"),
        );
        check(
            json!({ "t": [{ "a": 1 }, { "a": 2.5 }], "a b": "q\"\n" }),
            Ok("\"a b\" = \"\"\"\nq\"\n\"\"\"\n\n[[t]]\na = 1\n\n[[t]]\na = 2.5"),
        );
        check(json!({}), Ok(""));
        let list = "TOML has no null in a list and no number this large";
        check(json!({ "a": [null] }), Err(&format!("toTOML: {list}")));
        check(json!({ "a": u64::MAX }), Err(&format!("toTOML: {list}")));
        check(json!([1]), Err("toTOML expects a map as argument 1, got a list"));
    }

    #[test]
    fn toml_survives_a_round_trip() {
        let value = json!({ "a": { "b": ["x", "'", "\"\"\"", "é\u{7f}"], "c": [{ "d": "1\n2" }] }, "": -0.5 });
        let read: Json = toml::from_str(&call("toTOML", &value).unwrap()).unwrap();
        assert_eq!(read, value);
    }
}
