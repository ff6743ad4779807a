//! `toYAML`, in the layout and with the quotes of Go's library.

mod scalar;

use super::NamedFunction;
use super::json::MAX_DEPTH;
use crate::templates::engine::{Buffer, Map, MapType, Text, Value, format_float};

pub(super) const FUNCTIONS: &[NamedFunction] = &[("toYAML", 1, 1, |args| {
    let mut writer = Writer { out: Buffer::new(), column: 0 };
    writer.value(args.value(0)?, 0, 0).map_err(|reason| args.fail(reason))?;
    let written = writer.out.finish()?;
    Ok(Value::text(written.trim_end()))
})];

struct Writer {
    out: Buffer,
    /// Characters in the current line.
    column: usize,
}

/// Characters after which a long text is continued in the next line.
const WIDTH: usize = 80;

impl Writer {
    fn push(&mut self, text: &str) {
        self.out.push(text);
        self.column += text.chars().count();
    }

    fn push_char(&mut self, c: char) {
        self.out.push_char(c);
        self.column += 1;
    }

    /// Begins a line with an indentation.
    fn line(&mut self, indent: usize) {
        self.out.push("\n");
        self.out.repeat(" ", indent);
        self.column = indent;
    }

    /// Writes a value whose lists and maps begin in this column, which is reached already.
    fn value(&mut self, value: &Value, column: usize, depth: usize) -> Result<(), &'static str> {
        if depth > MAX_DEPTH {
            return Err("the value is nested too deeply");
        }
        if self.out.is_full() {
            return Err("the result exceeds 16 MiB");
        }
        match value {
            Value::Map(map) if map.len() > 0 => self.map(map, column, depth)?,
            Value::List(list) if !list.items.is_empty() => {
                for (at, item) in list.items.iter().enumerate() {
                    if at > 0 {
                        self.line(column);
                    }
                    self.push("- ");
                    self.value(item, column + 2, depth + 1)?;
                }
            }
            Value::Map(_) => self.push("{}"),
            Value::List(_) => self.push("[]"),
            Value::Nil | Value::Absent => self.push("null"),
            Value::Bool(flag) => self.push(if *flag { "true" } else { "false" }),
            Value::Int(number) | Value::Int64(number) => self.push(&number.to_string()),
            Value::Uint64(number) => self.push(&number.to_string()),
            Value::Float(number) => self.push(&format_number(*number)),
            Value::Number(digits) => self.push(&format_digits(digits)),
            Value::Text(text) => scalar::write(self, text, column.max(2), true),
            Value::Counter(..) | Value::Scratch(_) => return Err("the value has no YAML form"),
        }
        Ok(())
    }

    fn map(&mut self, map: &Map, column: usize, depth: usize) -> Result<(), &'static str> {
        let mut entries = map.entries();
        sort(&mut entries);
        for (at, (key, value)) in entries.into_iter().enumerate() {
            if at > 0 {
                self.line(column);
            }
            self.key(&key, map.of);
            self.push(":");
            match &value {
                Value::Map(map) if map.len() > 0 => {
                    self.line(column + 2);
                    self.value(&value, column + 2, depth + 1)?;
                }
                // The items of a list begin below their key.
                Value::List(list) if !list.items.is_empty() => {
                    self.line(column);
                    self.value(&value, column, depth + 1)?;
                }
                _ => {
                    self.push(" ");
                    self.value(&value, column + 2, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    fn key(&mut self, key: &Text, of: MapType) {
        // A key that was no text there is none again.
        if of == MapType::AnyKeys && scalar::is_other_type(key) {
            self.push(key);
        } else {
            scalar::write(self, key, 0, false);
        }
    }
}

fn format_number(number: f64) -> String {
    match () {
        () if number.is_nan() => ".nan".to_owned(),
        () if number.is_infinite() => if number > 0.0 { ".inf" } else { "-.inf" }.to_owned(),
        () => format_float(number, b'g', None, false),
    }
}

/// Formats a secret's number: an integer as it is, another number as a floating-point number.
fn format_digits(digits: &str) -> String {
    match (digits.parse::<i64>(), digits.parse::<f64>()) {
        (Err(_), Ok(number)) => format_number(number),
        _ => digits.to_owned(),
    }
}

/// Most entries that Go's library sorts by insertion.
const MAX_INSERTED: usize = 12;

/// Sorts entries by [`order`]. As that is no total order (`7-14` < `70` < `-0` < `7-14`), the sort of the standard library may panic.
fn sort(entries: &mut Vec<(Text, Value)>) {
    if entries.len() <= MAX_INSERTED {
        for end in 1..entries.len() {
            let mut at = end;
            while at > 0 && order(&entries[at].0, &entries[at - 1].0).is_lt() {
                entries.swap(at, at - 1);
                at -= 1;
            }
        }
        return;
    }
    let mut right = entries.split_off(entries.len() / 2);
    let mut left = std::mem::take(entries);
    sort(&mut left);
    sort(&mut right);
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        let is_right_first = order(&other.0, &one.0).is_lt();
        entries.extend(if is_right_first { right.next() } else { left.next() });
    }
    entries.extend(left.chain(right));
}

/// Orders keys as people do: numbers in them by value, and before letters.
fn order(left: &str, right: &str) -> std::cmp::Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let Some(at) = left.iter().zip(&right).position(|(left, right)| left != right) else {
        return left.len().cmp(&right.len());
    };
    let (one, other) = (left[at], right[at]);
    match (one.is_alphabetic(), other.is_alphabetic()) {
        (true, true) => return one.cmp(&other),
        (true, false) | (false, true) => {
            // After a digit, a letter ends a shorter number.
            let is_in_number = at > 0 && left[at - 1].is_numeric();
            return if one.is_alphabetic() == is_in_number {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Greater
            };
        }
        (false, false) => {}
    }
    let digits = |chars: &[char]| -> String { chars[at..].iter().take_while(|c| c.is_ascii_digit()).collect() };
    let (one_digits, other_digits) = (digits(&left), digits(&right));
    let number = |digits: &str| digits.parse::<u64>().unwrap_or_default();
    number(&one_digits)
        .cmp(&number(&other_digits))
        .then(one_digits.len().cmp(&other_digits.len()))
        .then(one.cmp(&other))
}
