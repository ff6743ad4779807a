//! `toTOML`, in the layout of Go's library.

use super::NamedFunction;
use super::json::MAX_DEPTH;
use crate::templates::engine::{Buffer, Map, MapType, Value, format_float};

pub(super) const FUNCTIONS: &[NamedFunction] = &[("toTOML", 1, 1, |args| {
    let mut writer = Writer { out: Buffer::new() };
    let written = match args.value(0)? {
        Value::Map(map) => writer.table(map, &mut Vec::new()),
        value => writer.value(value, 0),
    };
    written.map_err(|reason| args.fail(reason))?;
    let written = writer.out.finish()?;
    Ok(Value::text(written.trim()))
})];

struct Writer {
    out: Buffer,
}

type Written = Result<(), &'static str>;

impl Writer {
    /// Writes the values of a table, then the tables in it.
    fn table(&mut self, map: &Map, path: &mut Vec<String>) -> Written {
        if path.len() > MAX_DEPTH || self.out.is_full() {
            return Err("the value is nested too deeply, or the result exceeds 16 MiB");
        }
        if map.of == MapType::AnyKeys {
            return Err("a map of YAML has keys of any type, which TOML has not");
        }
        let entries = map.entries();
        for (key, value) in &entries {
            if !value.is_nil() && !is_table(value) && !is_tables(value) {
                self.out.repeat("  ", path.len());
                self.out.push(&write_key(key));
                self.out.push(" = ");
                self.value(value, path.len())?;
                self.out.push("\n");
            }
        }
        for (key, value) in &entries {
            path.push(write_key(key));
            match value {
                Value::Map(map) => {
                    if path.len() == 1 {
                        self.blank_line();
                    }
                    self.head(path, "[", "]");
                    self.table(map, path)?;
                }
                Value::List(list) if is_tables(value) => {
                    for item in &list.items {
                        if let Value::Map(map) = item {
                            self.blank_line();
                            self.head(path, "[[", "]]");
                            self.table(map, path)?;
                        }
                    }
                }
                _ => {}
            }
            path.pop();
        }
        Ok(())
    }

    fn blank_line(&mut self) {
        if self.out.len() > 0 {
            self.out.push("\n");
        }
    }

    fn head(&mut self, path: &[String], open: &str, close: &str) {
        self.out.repeat("  ", path.len() - 1);
        self.out.push(open);
        self.out.push(&path.join("."));
        self.out.push(close);
        self.out.push("\n");
    }

    fn value(&mut self, value: &Value, depth: usize) -> Written {
        if depth > MAX_DEPTH || self.out.is_full() {
            return Err("the value is nested too deeply, or the result exceeds 16 MiB");
        }
        match value {
            Value::Nil | Value::Absent => return Err("TOML has no null in a list"),
            Value::Bool(flag) => self.out.push(if *flag { "true" } else { "false" }),
            Value::Int(number) | Value::Int64(number) => self.out.push(&number.to_string()),
            Value::Uint64(number) => self.out.push(&number.to_string()),
            Value::Float(number) => self.out.push(&format_number(*number)),
            Value::Number(digits) => match (digits.parse::<i64>(), digits.parse()) {
                (Err(_), Ok(number)) => self.out.push(&format_number(number)),
                _ => self.out.push(digits),
            },
            Value::Text(text) => self.text(text),
            Value::List(list) => {
                self.out.push("[");
                for (at, item) in list.items.iter().enumerate() {
                    if at > 0 {
                        self.out.push(", ");
                    }
                    self.value(item, depth + 1)?;
                }
                self.out.push("]");
            }
            Value::Map(map) => {
                self.out.push("{");
                let entries = map.entries().into_iter().filter(|(_, value)| !value.is_nil());
                for (at, (key, item)) in entries.enumerate() {
                    if at > 0 {
                        self.out.push(", ");
                    }
                    self.out.push(&write_key(&key));
                    self.out.push(" = ");
                    self.value(&item, depth + 1)?;
                }
                self.out.push("}");
            }
            Value::Counter(..) | Value::Scratch(_) => return Err("the value has no TOML form"),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        self.out.push("\"");
        for c in text.chars() {
            match c {
                '"' => self.out.push("\\\""),
                '\\' => self.out.push("\\\\"),
                '\u{8}' => self.out.push("\\b"),
                '\t' => self.out.push("\\t"),
                '\n' => self.out.push("\\n"),
                '\u{c}' => self.out.push("\\f"),
                '\r' => self.out.push("\\r"),
                '\0'..' ' | '\u{7f}' => self.out.push(&format!("\\u{:04x}", u32::from(c))),
                c => self.out.push_char(c),
            }
        }
        self.out.push("\"");
    }
}

const fn is_table(value: &Value) -> bool {
    matches!(value, Value::Map(_))
}

/// Returns true for a list of tables only.
fn is_tables(value: &Value) -> bool {
    matches!(value, Value::List(list) if !list.items.is_empty() && list.items.iter().all(is_table))
}

fn format_number(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let digits = format_float(number, b'f', None, false);
    if digits.contains('.') { digits } else { format!("{digits}.0") }
}

fn write_key(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !key.is_empty() && key.bytes().all(is_bare) {
        return key.to_owned();
    }
    let mut writer = Writer { out: Buffer::new() };
    writer.text(key);
    writer.out.finish().unwrap_or_default()
}
