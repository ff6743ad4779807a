//! JSON as Go's `encoding/json` writes it: escaped for HTML, and numbers of Go's float64.

use std::io;

use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use serde_json::{Number, Value};

/// Formats a value.
pub(super) fn to_text(value: &Value) -> String {
    let mut bytes = Vec::new();
    // Cannot fail: a value has only text keys, and memory takes every byte.
    let _ = serde::Serialize::serialize(value, &mut Serializer::with_formatter(&mut bytes, GoFormatter));
    String::from_utf8(bytes).unwrap_or_default()
}

/// Converts every number of a value as Go does where it reads JSON into `interface{}`: to float64, so that 100000.0 is
/// written as 100000, and digits beyond 2^53 are lost.
pub(super) fn round_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(rounded) = number.as_f64().and_then(to_float_number) {
                *number = rounded;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(round_numbers),
        Value::Object(fields) => fields.values_mut().for_each(round_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Integers stay integers, which are written without a point.
#[expect(clippy::cast_possible_truncation, reason = "the value has no fraction, and its size is checked")]
fn to_float_number(value: f64) -> Option<Number> {
    if value.fract() == 0.0 && value.abs() < 9e18 { Some(Number::from(value as i64)) } else { Number::from_f64(value) }
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        // The rule of ECMAScript, which Go follows.
        if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{value:e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let sign = if exponent.starts_with('-') { "" } else { "+" };
            return write!(writer, "{digits}e{sign}{exponent}");
        }
        write!(writer, "{value}")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let escaped = ['<', '>', '&', '\u{2028}', '\u{2029}'];
        let mut rest = fragment;
        while let Some((at, found)) = rest.char_indices().find(|(_, c)| escaped.contains(c)) {
            CompactFormatter.write_string_fragment(writer, &rest[..at])?;
            write!(writer, "\\u{:04x}", u32::from(found))?;
            rest = &rest[at + found.len_utf8()..];
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_and_numbers_are_written_as_by_go() {
        let check = |value: &str, expected: &str| {
            let mut value = serde_json::from_str(value).unwrap();
            round_numbers(&mut value);
            assert_eq!(to_text(&value), expected, "{value}");
        };
        check("100000.0", "100000");
        check("1e20", "100000000000000000000");
        check("12345678901234567890123", "1.2345678901234568e+22");
        check("9007199254740993", "9007199254740992");
        check("1.1", "1.1");
        check("0.000001", "0.000001");
        check("0.00000015", "1.5e-7");
        check("-5e30", "-5e+30");
        check("[0, -3, true, null]", "[0,-3,true,null]");
        assert_eq!(to_text(&json!("p\"<&>é\n\u{2028}")), r#""p\"\u003c\u0026\u003eé\n\u2028""#);
    }
}
