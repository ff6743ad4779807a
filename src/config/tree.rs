//! Several files as one tree in which each key and value has its location.

use std::collections::BTreeMap;
use std::collections::btree_map;

use keyward_telemetry::error_code::ErrorCode;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostics, Location, Position};

/// A table's keys.
pub(super) type Table = BTreeMap<String, Entry>;

/// A key and its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Location of the key; for a table, of its name in its first header.
    pub(super) key: Location,
    /// Location of the value.
    pub(super) at: Location,
    /// The value.
    pub(super) value: Value,
}

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Integer(String),
    Float,
    Flag(bool),
    Datetime,
    List(Vec<(Location, Value)>),
    Table(Table),
}

impl Value {
    /// Names the type with its article, for messages.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float => "a float",
            Self::Flag(_) => "a boolean",
            Self::Datetime => "a date",
            Self::List(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

/// Parses one file's text; records every syntax error and returns what could be parsed.
pub(super) fn parse(text: &str, file: Location, diagnostics: &mut Diagnostics) -> Table {
    let lines = Lines::new(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let position = lines.position(error.span().map_or(0, |span| span.start));
        let at = Location { position: Some(position), ..file };
        // Keys below a broken header were put into another table, where one of the same name may stand.
        if error.message() != "duplicate key" || !diagnostics.is_broken(at) {
            diagnostics.unreadable(at, "", (ErrorCode::ConfigSyntax, error.message()), syntax_advice(error.message()));
        }
        if lines.is_header(position.line) {
            let below = (position.line + 1..=lines.starts.len()).take_while(|line| !lines.is_header(*line));
            diagnostics.mark_broken(file, below);
        }
    }
    Conversion { file, lines, diagnostics }.table(table.get_ref(), 0)
}

/// Returns advice for a syntax error that configurations of Vault Agent lead to.
fn syntax_advice(message: &str) -> &'static str {
    if message.starts_with("unexpected leading zero") { "write a mode as a string: mode = \"0600\"" } else { "" }
}

/// Maximum nesting of a value. No setting is nested deeper than five; every walk recurses once per level.
const MAX_DEPTH: usize = 16;

struct Conversion<'a> {
    file: Location,
    lines: Lines<'a>,
    diagnostics: &'a Diagnostics,
}

impl Conversion<'_> {
    fn at<T>(&self, spanned: &toml::Spanned<T>) -> Location {
        Location { position: Some(self.lines.position(spanned.span().start)), ..self.file }
    }

    fn table(&self, table: &DeTable<'_>, depth: usize) -> Table {
        let entry = |key: &toml::Spanned<_>, value: &toml::Spanned<DeValue<'_>>| Entry {
            key: self.at(key),
            at: self.at(value),
            value: self.value(value, depth + 1),
        };
        table.iter().map(|(key, value)| (key.get_ref().to_string(), entry(key, value))).collect()
    }

    fn value(&self, value: &toml::Spanned<DeValue<'_>>, depth: usize) -> Value {
        match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => Value::Integer(number.to_string()),
            DeValue::Float(_) => Value::Float,
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Datetime(_) => Value::Datetime,
            DeValue::Array(_) | DeValue::Table(_) if depth > MAX_DEPTH => {
                self.diagnostics.error(
                    self.at(value),
                    "",
                    format!("nested deeper than {MAX_DEPTH}"),
                    "write fewer levels",
                );
                Value::Table(Table::new())
            }
            DeValue::Array(items) => {
                Value::List(items.iter().map(|item| (self.at(item), self.value(item, depth + 1))).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(table, depth)),
        }
    }
}

/// Adds a later file's keys. Tables are merged; any other repeated key is an error that names both lines.
pub(super) fn merge(into: &mut Table, from: Table, path: &str, diagnostics: &Diagnostics) {
    for (name, entry) in from {
        let key = join(path, &name);
        match into.entry(name) {
            btree_map::Entry::Vacant(slot) => {
                slot.insert(entry);
            }
            btree_map::Entry::Occupied(mut slot) => match (&mut slot.get_mut().value, entry.value) {
                (Value::Table(into), Value::Table(from)) => merge(into, from, &key, diagnostics),
                _ => diagnostics.error(
                    entry.key,
                    &key,
                    (ErrorCode::DuplicateSetting, format!("set here and at {}", diagnostics.name(slot.get().key))),
                    "keep one of the two",
                ),
            },
        }
    }
}

/// A key's path with one more name, quoted where it is not a bare key, and cut where it is very long.
pub(super) fn join(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let name = if bare && name.len() <= 64 { name.to_owned() } else { quote(name) };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// Quotes a string for a message: escapes control characters and truncates.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(64) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// Offsets of the lines of a file.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(offset, _)| offset + 1);
        Self { text, starts: std::iter::once(0).chain(ends).collect() }
    }

    /// True if a line, counted from 1, begins a table.
    fn is_header(&self, line: usize) -> bool {
        let start = line.checked_sub(1).and_then(|index| self.starts.get(index));
        start
            .and_then(|start| self.text.get(*start..))
            .is_some_and(|rest| rest.trim_start_matches([' ', '\t']).starts_with('['))
    }

    fn position(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let line_start = self.text.get(start..offset).unwrap_or_default();
        Position { line, column: line_start.chars().count() + 1 }
    }
}
