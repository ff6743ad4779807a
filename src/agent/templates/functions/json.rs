//! JSON, read and written.

use serde_json::Value as Json;

use super::NamedFunction;
use super::arguments::Arguments;
use crate::templates::engine::{Buffer, Failure, Value, format_json};
use crate::templates::value::from_json;

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("parseJSON", 1, 1, |args| if args.text(0)?.is_empty() { Ok(Value::map::<&str>([])) } else { parse(args) }),
    ("sprig_fromJson", 1, 1, |args| Ok(parse(args).unwrap_or(Value::Absent))),
    ("sprig_mustFromJson", 1, 1, parse),
    ("sprig_mustToJson", 1, 1, |args| write(args, Form::Escaped, false)),
    ("sprig_mustToPrettyJson", 1, 1, |args| write(args, Form::Escaped, true)),
    ("sprig_mustToRawJson", 1, 1, |args| write(args, Form::Plain, false)),
    ("sprig_toJson", 1, 1, |args| write(args, Form::Escaped, false)),
    ("sprig_toPrettyJson", 1, 1, |args| write(args, Form::Escaped, true)),
    ("sprig_toRawJson", 1, 1, |args| write(args, Form::Plain, false)),
    ("toJSON", 1, 1, |args| write(args, Form::Escaped, false)),
    ("toJSONPretty", 1, 1, |args| write(args, Form::Escaped, true)),
    ("toUnescapedJSON", 1, 1, |args| write(args, Form::Plain, false)),
    ("toUnescapedJSONPretty", 1, 1, |args| write(args, Form::Plain, true)),
];

fn parse(args: &Arguments<'_>) -> Result<Value, Failure> {
    // The parser's message contains characters of the string.
    serde_json::from_str::<Json>(args.text(0)?)
        .map(|json| from_json(&json))
        .map_err(|error| args.fail(&format!("invalid JSON at line {} column {}", error.line(), error.column())))
}

/// Form of the characters `<`, `>` and `&`, which mean something in HTML.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Escaped,
    Plain,
}

fn write(args: &Arguments<'_>, form: Form, is_pretty: bool) -> Result<Value, Failure> {
    let mut writer = Writer { out: Buffer::new(), form, is_pretty };
    writer.value(args.value(0)?, 0).map_err(|reason| args.fail(reason))?;
    writer.out.into_text().map(Value::Text)
}

/// Deepest list in a list.
pub(super) const MAX_DEPTH: usize = 200;

struct Writer {
    out: Buffer,
    form: Form,
    is_pretty: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), &'static str> {
        if depth > MAX_DEPTH {
            return Err("the value is nested too deeply");
        }
        match value {
            Value::Nil | Value::Absent => self.out.push("null"),
            Value::Bool(flag) => self.out.push(if *flag { "true" } else { "false" }),
            Value::Int(number) | Value::Int64(number) => self.out.push(&number.to_string()),
            Value::Uint64(number) => self.out.push(&number.to_string()),
            Value::Float(number) if number.is_finite() => self.out.push(&format_json(*number)),
            Value::Number(number) => self.out.push(number),
            Value::Text(text) => self.text(text),
            Value::List(list) => {
                self.out.push("[");
                for (at, item) in list.items.iter().enumerate() {
                    self.separate(at, depth);
                    self.value(item, depth + 1)?;
                }
                self.close(list.items.len(), depth, "]");
            }
            Value::Map(map) => {
                self.out.push("{");
                for (at, (key, item)) in map.entries().into_iter().enumerate() {
                    self.separate(at, depth);
                    self.text(&key);
                    self.out.push(if self.is_pretty { ": " } else { ":" });
                    self.value(&item, depth + 1)?;
                }
                self.close(map.len(), depth, "}");
            }
            Value::Float(_) => return Err("the number has no JSON form"),
            Value::Counter(..) | Value::Scratch(_) => return Err("the value has no JSON form"),
        }
        if self.out.is_full() { Err("the result exceeds 16 MiB") } else { Ok(()) }
    }

    fn separate(&mut self, at: usize, depth: usize) {
        if at > 0 {
            self.out.push(",");
        }
        if self.is_pretty {
            self.out.push("\n");
            self.out.repeat("  ", depth + 1);
        }
    }

    fn close(&mut self, length: usize, depth: usize, close: &str) {
        if self.is_pretty && length > 0 {
            self.out.push("\n");
            self.out.repeat("  ", depth);
        }
        self.out.push(close);
    }

    fn text(&mut self, text: &str) {
        self.out.push("\"");
        // Characters that need no escape are written together.
        let mut begin = 0;
        for (at, c) in text.char_indices() {
            let escape = match c {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '\u{8}' => "\\b",
                '\u{c}' => "\\f",
                '<' | '>' | '&' if self.form == Form::Escaped => "",
                '\0'..' ' | '\u{2028}' | '\u{2029}' => "",
                _ => continue,
            };
            self.out.push(&text[begin..at]);
            begin = at + c.len_utf8();
            if escape.is_empty() {
                self.escape(c);
            } else {
                self.out.push(escape);
            }
        }
        self.out.push(&text[begin..]);
        self.out.push("\"");
    }

    fn escape(&mut self, c: char) {
        self.out.push(&format!("\\u{:04x}", u32::from(c)));
    }
}
