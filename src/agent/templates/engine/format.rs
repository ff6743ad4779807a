//! Values as texts: the verbs of Go's package `fmt`.

mod directive;
mod number;

use std::fmt::Write as _;

use self::directive::Flags;
use super::output::Buffer;
use super::quote::{fits_in_backquotes, quote};
use super::value::{Failure, Map, MapType, Text, Value};

/// Formats arguments by a format with verbs.
pub(super) fn sprintf(format: &str, args: &[Value]) -> Result<Text, Failure> {
    let mut out = Buffer::new();
    directive::format_all(&mut out, format, args);
    out.into_text()
}

/// Prints arguments; those that are no texts with a space between them.
pub(in crate::templates) fn sprint(args: &[Value]) -> Result<Text, Failure> {
    let mut out = Buffer::new();
    let is_text = |value: &Value| value.as_text().is_some();
    for (at, arg) in args.iter().enumerate() {
        if at > 0 && !is_text(arg) && !is_text(&args[at - 1]) {
            out.push(" ");
        }
        format_value(&mut out, arg);
    }
    out.into_text()
}

/// Prints arguments with spaces between them and a line end.
pub(super) fn sprintln(args: &[Value]) -> Result<Text, Failure> {
    let mut out = Buffer::new();
    for (at, arg) in args.iter().enumerate() {
        if at > 0 {
            out.push(" ");
        }
        format_value(&mut out, arg);
    }
    out.push("\n");
    out.into_text()
}

/// Prints a value as the verb `v` does.
pub(in crate::templates) fn format_value(out: &mut Buffer, value: &Value) {
    format_by_verb(out, &Flags::default(), value, 'v', 0);
}

/// Deepest list in a list that is printed; Go's programs crash instead.
const MAX_DEPTH: usize = 200;

fn format_by_verb(out: &mut Buffer, flags: &Flags, value: &Value, verb: char, depth: usize) {
    if depth > MAX_DEPTH || out.is_full() {
        return;
    }
    match (value, verb) {
        (Value::Nil | Value::Absent, 'T' | 'v') => {
            if flags.is_go_syntax && depth > 0 {
                out.push("interface {}(nil)");
            } else {
                flags.pad(out, "<nil>");
            }
        }
        (Value::Nil | Value::Absent, _) if depth > 0 => out.push("<nil>"),
        (Value::Nil | Value::Absent, _) => format_bad_verb(out, flags, value, verb),
        (_, 'T') => flags.pad(out, flags.cut(value.type_name())),
        (Value::Bool(flag), 't' | 'v') => flags.pad(out, if *flag { "true" } else { "false" }),
        (Value::Int(number) | Value::Int64(number), _) => {
            if !number::format_integer(out, flags, i128::from(*number), verb) {
                format_bad_verb(out, flags, value, verb);
            }
        }
        (Value::Uint64(number), 'v') if flags.is_go_syntax => out.push(&format!("0x{number:x}")),
        (Value::Uint64(number), _) => {
            if !number::format_integer(out, flags, i128::from(*number), verb) {
                format_bad_verb(out, flags, value, verb);
            }
        }
        (Value::Float(number), _) => {
            if !number::format_floating(out, flags, *number, verb) {
                format_bad_verb(out, flags, value, verb);
            }
        }
        (Value::Text(text) | Value::Number(text), _) => {
            let is_number = matches!(value, Value::Number(_)) && number::format_digits(out, flags, text, verb);
            if !is_number && !format_text(out, flags, text, verb) {
                format_bad_verb(out, flags, value, verb);
            }
        }
        (Value::List(list), _) => format_list(out, flags, value, &list.items, verb, depth),
        (Value::Map(map), _) => format_map(out, flags, value, map, verb, depth),
        (Value::Bool(_) | Value::Counter(..) | Value::Scratch(_), _) => format_bad_verb(out, flags, value, verb),
    }
}

/// Writes that a verb does not fit a value, as Go does in place of an error.
fn format_bad_verb(out: &mut Buffer, flags: &Flags, value: &Value, verb: char) {
    out.push("%!");
    out.push_char(verb);
    out.push("(");
    match value {
        Value::Nil | Value::Absent => out.push("<nil>"),
        // They have no text; Go prints their addresses.
        Value::Counter(..) | Value::Scratch(_) => out.push(value.type_name()),
        value => {
            out.push(value.type_name());
            out.push("=");
            format_by_verb(out, flags, value, 'v', 0);
        }
    }
    out.push(")");
}

fn format_list(out: &mut Buffer, flags: &Flags, value: &Value, items: &[Value], verb: char, depth: usize) {
    let is_go_syntax = verb == 'v' && flags.is_go_syntax;
    if is_go_syntax {
        out.push(value.type_name());
    }
    let (open, between, close) = if is_go_syntax { ("{", ", ", "}") } else { ("[", " ", "]") };
    out.push(open);
    for (at, item) in items.iter().enumerate() {
        if out.is_full() {
            return;
        }
        if at > 0 {
            out.push(between);
        }
        format_by_verb(out, flags, item, verb, depth + 1);
    }
    out.push(close);
}

fn format_map(out: &mut Buffer, flags: &Flags, value: &Value, map: &Map, verb: char, depth: usize) {
    if let MapType::Struct("*semver.Version") = map.of {
        let original = map.get("String").unwrap_or(Value::Nil);
        return format_by_verb(out, flags, &original, verb, depth);
    }
    let is_go_syntax = verb == 'v' && flags.is_go_syntax;
    let (open, between, close) = if is_go_syntax { ("{", ", ", "}") } else { ("map[", " ", "]") };
    if is_go_syntax {
        out.push(value.type_name());
    }
    out.push(open);
    for (at, (key, value)) in map.entries().into_iter().enumerate() {
        if out.is_full() {
            return;
        }
        if at > 0 {
            out.push(between);
        }
        format_by_verb(out, flags, &Value::Text(key), verb, depth + 1);
        out.push(":");
        format_by_verb(out, flags, &value, verb, depth + 1);
    }
    out.push(close);
}

/// Formats a text; returns false if it has no such verb.
fn format_text(out: &mut Buffer, flags: &Flags, text: &str, verb: char) -> bool {
    match verb {
        'v' if flags.is_go_syntax => flags.pad(out, &quote(text, false)),
        'v' | 's' => flags.pad(out, flags.cut(text)),
        'q' => {
            let text = flags.cut(text);
            if flags.sharp && fits_in_backquotes(text) {
                flags.pad(out, &format!("`{text}`"));
            } else {
                flags.pad(out, &quote(text, flags.plus));
            }
        }
        'x' | 'X' => {
            let bytes = text.as_bytes();
            let bytes = &bytes[..flags.precision.unwrap_or(bytes.len()).min(bytes.len())];
            let prefix = if !flags.sharp {
                ""
            } else if verb == 'x' {
                "0x"
            } else {
                "0X"
            };
            let mut written = String::with_capacity(bytes.len() * 2 + 2);
            for (at, byte) in bytes.iter().enumerate() {
                if at > 0 && flags.space {
                    written.push(' ');
                }
                if at == 0 || flags.space {
                    written.push_str(prefix);
                }
                // Writing to a string cannot fail.
                let _ = if verb == 'x' { write!(written, "{byte:02x}") } else { write!(written, "{byte:02X}") };
            }
            flags.pad(out, &written);
        }
        _ => return false,
    }
    true
}
