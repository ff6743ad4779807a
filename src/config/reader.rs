//! Reads a table key by key. A getter that finds an error records it and returns a placeholder; a key that no getter reads
//! is unknown.

use std::ops::RangeInclusive;
use std::time::Duration;

use keyward_telemetry::error_code::ErrorCode;

use super::diagnostic::{Finding, Location};
use super::references::{ReadContext, Text};
use super::tree::{self, Entry, Table, Value, quote};
use super::values;

/// A table whose keys are being read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) scope: &'a ReadContext<'a>,
    /// Location of the table's name.
    pub(super) at: Location,
    /// The table's key from the top.
    pub(super) path: String,
    /// The same with `*` for names.
    pattern: String,
    items: &'a Table,
    known_keys: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(scope: &'a ReadContext<'a>, at: Location, items: &'a Table) -> Self {
        Self { scope, at, path: String::new(), pattern: String::new(), items, known_keys: Vec::new() }
    }

    /// Returns the full key of an entry of this table.
    pub(super) fn key(&self, name: &str) -> String {
        tree::join(&self.path, name)
    }

    /// Returns the location of a key if it is present, and counts the key as known.
    pub(super) fn locate(&mut self, name: &'static str) -> Option<Location> {
        self.entry(name).map(|entry| entry.key)
    }

    fn entry(&mut self, name: &'static str) -> Option<&'a Entry> {
        if !self.known_keys.contains(&name) {
            self.known_keys.push(name);
        }
        self.items.get(name)
    }

    /// Reads a string that is not empty and has no control characters.
    pub(super) fn text(&mut self, name: &'static str) -> Option<Text> {
        let entry = self.entry(name)?;
        self.text_of(&self.key(name), &tree::join(&self.pattern, name), entry.at, &entry.value)
    }

    /// Reads a string without references, possibly of several lines, with its location.
    pub(super) fn verbatim(&mut self, name: &'static str) -> Option<(Location, String)> {
        let entry = self.entry(name)?;
        if let Value::Text(text) = &entry.value {
            return Some((entry.at, text.clone()));
        }
        self.error(
            entry.at,
            name,
            (ErrorCode::WrongType, format!("expected a string, found {}", entry.value.kind())),
            "put it in quotes",
        );
        None
    }

    fn text_of(&self, key: &str, pattern: &str, at: Location, value: &Value) -> Option<Text> {
        let Value::Text(written) = value else {
            self.scope.diagnostics.error(
                at,
                key,
                (ErrorCode::WrongType, format!("expected a string, found {}", value.kind())),
                "put it in quotes",
            );
            return None;
        };
        if written.is_empty() {
            self.scope.diagnostics.error(at, key, "an empty string", "set a value, or leave the key out");
            return None;
        }
        let text = self.scope.resolve(at, key, pattern, written);
        if text.value.chars().any(char::is_control) {
            let message = format!("{} contains a control character", text.display());
            self.scope.diagnostics.error(at, key, message, "write it on one line");
            return None;
        }
        Some(text)
    }

    /// True if a key is present; does not count it as known.
    pub(super) fn has(&self, name: &str) -> bool {
        self.items.contains_key(name)
    }

    /// True if a key holds an integer.
    pub(super) fn is_integer(&self, name: &str) -> bool {
        matches!(self.items.get(name), Some(Entry { value: Value::Integer(_), .. }))
    }

    /// Reads a required string; `None` if its absence was reported.
    pub(super) fn required(&mut self, name: &'static str, meaning: &str) -> Option<Text> {
        if !self.items.contains_key(name) {
            self.missing(name, meaning);
        }
        self.text(name)
    }

    /// Reports a missing required key.
    pub(super) fn missing(&mut self, name: &'static str, meaning: &str) {
        self.entry(name);
        self.scope.diagnostics.missing(self.at, &self.key(name), "missing", meaning);
    }

    /// Reports an error about a key of this table.
    pub(super) fn error(&self, at: Location, name: &str, message: impl Into<Finding>, advice: impl Into<String>) {
        self.scope.diagnostics.error(at, &self.key(name), message, advice);
    }

    /// Reports two keys that exclude each other.
    pub(super) fn conflict(&mut self, name: &'static str, other: &str, why: &str) {
        let at = self.locate(name).unwrap_or(self.at);
        let message = (ErrorCode::ConflictingKeys, format!("conflicts with {other}: {why}"));
        self.error(at, name, message, "keep one of the two");
    }

    /// Reads a string without further validation.
    pub(super) fn value(&mut self, name: &'static str) -> Option<String> {
        self.text(name).map(|text| text.value)
    }

    /// Reads a string and converts it with `parse`, whose error names the expected form.
    pub(super) fn parse_text<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, values::ValueError>,
    ) -> Option<T> {
        let text = self.text(name)?;
        self.parse(&text, parse)
    }

    /// Converts a string that was already read.
    pub(super) fn parse<T>(&self, text: &Text, parse: impl FnOnce(&str) -> Result<T, values::ValueError>) -> Option<T> {
        match parse(&text.value) {
            Ok(value) => Some(value),
            Err(_) if text.unknown => None,
            Err(wrong) => {
                let value_text =
                    if wrong.secret && text.written.is_none() { "the value".to_owned() } else { text.display() };
                self.scope.diagnostics.error(
                    text.at,
                    &text.key,
                    format!("{value_text} {}", wrong.message),
                    wrong.advice,
                );
                None
            }
        }
    }

    /// Reads a boolean.
    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> bool {
        match self.entry(name) {
            None => default,
            Some(Entry { value: Value::Flag(flag), .. }) => *flag,
            Some(entry) => {
                let message = (ErrorCode::WrongType, format!("expected a boolean, found {}", entry.value.kind()));
                self.error(entry.at, name, message, "write true or false, without quotes");
                default
            }
        }
    }

    /// Reads an integer in a range.
    pub(super) fn number(&mut self, name: &'static str, range: RangeInclusive<usize>) -> Option<usize> {
        let entry = self.entry(name)?;
        let min = range.start();
        let max = range.end();
        let message = match &entry.value {
            Value::Integer(number) => match number.parse().ok().filter(|number| range.contains(number)) {
                Some(number) => return Some(number),
                None => (ErrorCode::InvalidValue, format!("{number} is out of range")),
            },
            other => (ErrorCode::WrongType, format!("expected a number, found {}", other.kind())),
        };
        let advice = format!("write {min} to {max}, without quotes");
        self.error(entry.at, name, message, advice);
        None
    }

    /// Reads a duration such as `30s`.
    pub(super) fn duration(
        &mut self,
        name: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        self.duration_if_given(name, range).unwrap_or(default)
    }

    /// Reads a duration without a default.
    pub(super) fn duration_if_given(
        &mut self,
        name: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        if let Some(Entry { value: Value::Integer(number), at, .. }) = self.entry(name) {
            let message = format!("the integer {number} has no unit");
            self.error(*at, name, message, format!("write {name} = \"{number}s\" for seconds"));
            return None;
        }
        self.parse_text(name, |text| values::duration(text, &range))
    }

    /// Reads one of several keywords.
    pub(super) fn choice<T: Copy>(&mut self, name: &'static str, keywords: &[(&str, T)]) -> Option<T> {
        self.parse_text(name, |text| values::choice(text, keywords))
    }

    /// Reads a file mode such as `"0640"`.
    pub(super) fn mode(&mut self, name: &'static str, default: u32) -> u32 {
        if let Some(Entry { value: Value::Integer(number), at, .. }) = self.entry(name) {
            let message = format!("the integer {number} is not a mode, which is octal");
            let advice = format!("write a string, such as {name} = \"{default:04o}\"");
            self.error(*at, name, message, advice);
            return default;
        }
        self.parse_text(name, values::mode).unwrap_or(default)
    }

    /// Reads `mode` of a file that only its owner and group should read. Warns of a mode with which every user of this machine can
    /// access `content`.
    pub(super) fn private_mode(&mut self, default: u32, content: &str) -> u32 {
        let mode = self.mode("mode", default);
        if mode & 0o007 != 0 {
            let at = self.locate("mode").unwrap_or(self.at);
            let message = format!("{mode:04o} lets every user of this machine access {content}");
            let message = (ErrorCode::UnsafePermissions, message);
            self.scope.diagnostics.warning(at, &self.key("mode"), message, "end it with 0, and set group");
        }
        mode
    }

    /// Reads a list of strings; `None` if the key is absent.
    pub(super) fn list(&mut self, name: &'static str) -> Option<Vec<Text>> {
        self.list_of(name, false)
    }

    /// Reads a program and its arguments, which may be empty; `None` if the key is absent.
    pub(super) fn command_line(&mut self, name: &'static str) -> Option<Vec<Text>> {
        self.list_of(name, true)
    }

    fn list_of(&mut self, name: &'static str, is_command: bool) -> Option<Vec<Text>> {
        let entry = self.entry(name)?;
        let key = self.key(name);
        let pattern = tree::join(&self.pattern, name);
        let Value::List(items) = &entry.value else {
            let message = (ErrorCode::WrongType, format!("expected an array, found {}", entry.value.kind()));
            self.scope.diagnostics.error(entry.at, &key, message, format!("write {name} = [\"...\"]"));
            return None;
        };
        if items.is_empty() {
            self.scope.diagnostics.error(entry.at, &key, "an empty array", "list something, or leave the key out");
        }
        let text = |(number, (at, value)): (usize, &(Location, Value))| match value {
            Value::Text(written) if written.is_empty() && is_command && number > 0 => {
                Some(self.scope.resolve(*at, &key, &pattern, written))
            }
            _ => self.text_of(&key, &pattern, *at, value),
        };
        Some(items.iter().enumerate().filter_map(text).collect())
    }

    /// Takes a list without items. Returns false for a key with anything else, which is left to another getter.
    pub(super) fn take_empty_list(&mut self, name: &'static str) -> bool {
        let is_empty =
            matches!(self.items.get(name), Some(Entry { value: Value::List(items), .. }) if items.is_empty());
        is_empty && self.entry(name).is_some()
    }

    /// Reads a string or a list of strings; empty if the key is absent.
    pub(super) fn one_or_more(&mut self, name: &'static str) -> Vec<Text> {
        match self.items.get(name) {
            Some(Entry { value: Value::List(_), .. }) => self.list(name).unwrap_or_default(),
            _ => self.text(name).into_iter().collect(),
        }
    }

    /// Reads a table; `None` if the key is absent.
    pub(super) fn table(&mut self, name: &'static str) -> Option<Self> {
        let entry = self.entry(name)?;
        let path = self.key(name);
        let pattern = tree::join(&self.pattern, name);
        let Value::Table(items) = &entry.value else {
            let message = (ErrorCode::WrongType, format!("expected a table, found {}", entry.value.kind()));
            self.scope.diagnostics.error(entry.at, &path, message, format!("write [{path}] and its keys below"));
            return None;
        };
        Some(Self { scope: self.scope, at: entry.key, path, pattern, items, known_keys: Vec::new() })
    }

    /// Reads the tables of `[name.NAME]`, by name. Names must be valid file names.
    pub(super) fn tables(&mut self, name: &'static str) -> Vec<(String, Self)> {
        let Some(entry) = self.entry(name) else { return Vec::new() };
        let above = self.key(name);
        let Value::Table(items) = &entry.value else {
            let message = (ErrorCode::WrongType, format!("expected tables with names, found {}", entry.value.kind()));
            let advice = format!("write [{above}.NAME], with a name of your choice");
            self.scope.diagnostics.error(entry.at, &above, message, advice);
            return Vec::new();
        };
        let pattern = format!("{}.*", tree::join(&self.pattern, name));
        let read_table = |(table_name, entry): (&String, &'a Entry)| {
            let path = tree::join(&above, table_name);
            let Value::Table(items) = &entry.value else {
                let message =
                    (ErrorCode::WrongType, format!("expected a table with a name, found {}", entry.value.kind()));
                let advice = format!("write [{above}.NAME], with a name of your choice, and the keys below it");
                self.scope.diagnostics.error(entry.key, &path, message, advice);
                return None;
            };
            if !values::is_name(table_name) {
                let advice = "a name has letters, digits, - and _, at most 64";
                self.scope.diagnostics.error(
                    entry.key,
                    &path,
                    format!("the name {} is not valid", quote(table_name)),
                    advice,
                );
            }
            let pattern = pattern.clone();
            Some((
                table_name.clone(),
                Self { scope: self.scope, at: entry.key, path, pattern, items, known_keys: Vec::new() },
            ))
        };
        items.iter().filter_map(read_table).collect()
    }

    /// Reports the keys that no getter has read.
    pub(super) fn finish(self) {
        for (name, entry) in self.items.iter().filter(|(name, _)| !self.known_keys.contains(&name.as_str())) {
            let advice =
                values::did_you_mean(name, &self.known_keys).unwrap_or_else(|| match self.known_keys.as_slice() {
                    [] => "this table has no keys".to_owned(),
                    known_keys => format!("known keys: {}", known_keys.join(", ")),
                });
            self.error(entry.key, name, (ErrorCode::UnknownKey, "an unknown key"), advice);
        }
    }
}
