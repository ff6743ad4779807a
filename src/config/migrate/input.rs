//! Reader of another agent's configuration: each migration step takes its keys, and remaining keys are reported at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use keyward_hcl::{Attribute, Object, Position, Value};
use keyward_telemetry::time_format::format_duration;

use super::output::{Origin, Outcome, Report};

/// Message for a value that should be a boolean.
pub(super) const NO_FLAG: &str = "not a boolean";

/// A block of the other agent's configuration, or its top level.
#[derive(Debug)]
pub(super) struct Block<'a> {
    report: &'a Report,
    /// From the top, without a dot at its end.
    path: String,
    pub(super) at: Position,
    /// Attributes of the block. A block that occurs twice is two blocks.
    items: Vec<&'a Attribute>,
    taken: BTreeSet<usize>,
}

/// A value with its key.
#[derive(Debug, Clone)]
pub(super) struct InputValue<'a> {
    report: &'a Report,
    pub(super) key: String,
    pub(super) at: Position,
    pub(super) value: &'a Value,
}

impl<'a> Block<'a> {
    pub(super) fn top(object: &'a Object, report: &'a Report) -> Self {
        let at = Position { line: 1, column: 1 };
        Self { report, path: String::new(), at, items: object.attributes.iter().collect(), taken: BTreeSet::new() }
    }

    /// Takes the value of a key. If it is repeated the last value counts, as it does for Vault Agent and consul-template.
    pub(super) fn take(&mut self, key: &str) -> Option<InputValue<'a>> {
        let mut values: Vec<_> = self.all(key);
        let last = values.pop();
        for earlier in values {
            earlier.not_supported("set again below; the last one counts");
        }
        last
    }

    /// Takes the last value of a key if it has the given form; leaves it otherwise.
    pub(super) fn take_if(&mut self, key: &str, accepts: impl Fn(&Value) -> bool) -> Option<InputValue<'a>> {
        let last = self.items.iter().rfind(|item| item.key == key)?;
        if accepts(&last.value.value) { self.take(key) } else { None }
    }

    /// Returns true if the key exists.
    pub(super) fn has(&self, key: &str) -> bool {
        self.items.iter().any(|item| item.key == key)
    }

    fn all(&mut self, key: &str) -> Vec<InputValue<'a>> {
        let path = self.key(key);
        let mut values = Vec::new();
        for (number, item) in self.items.iter().enumerate().filter(|(_, item)| item.key == key) {
            if self.taken.insert(number) {
                values.push(InputValue {
                    report: self.report,
                    key: path.clone(),
                    at: item.at,
                    value: &item.value.value,
                });
            }
        }
        values
    }

    /// The blocks of that name. JSON writes several as a list.
    pub(super) fn blocks(&mut self, key: &str) -> Vec<Self> {
        let mut blocks = Vec::new();
        for taken in self.all(key) {
            match taken.value {
                Value::Object(object) => blocks.push(Self::new(&taken, object, taken.at)),
                Value::List(items) => {
                    for item in items {
                        match &item.value {
                            Value::Object(object) => blocks.push(Self::new(&taken, object, item.at)),
                            other => taken.not_supported(format!("expected a block, found {}", other.kind())),
                        }
                    }
                }
                other => taken.not_supported(format!("expected a block, found {}", other.kind())),
            }
        }
        blocks
    }

    /// The one block of that name.
    pub(super) fn block(&mut self, key: &str) -> Option<Self> {
        let mut blocks = self.blocks(key);
        let last = blocks.pop();
        for earlier in blocks {
            self.report.record(
                earlier.at,
                &earlier.path,
                Outcome::NotSupported,
                "set again below; the last one counts",
            );
        }
        last
    }

    fn new(input: &InputValue<'a>, object: &'a Object, at: Position) -> Self {
        let items = object.attributes.iter().collect();
        Self { report: input.report, path: input.key.clone(), at, items, taken: BTreeSet::new() }
    }

    /// The blocks of that name with their labels: `sink "file" {}`, which is also written `sink { type = "file" }`.
    pub(super) fn labelled_blocks(&mut self, key: &str) -> Vec<(String, Self)> {
        let mut labelled = Vec::new();
        for mut block in self.blocks(key) {
            if let Some(kind) = block.take("type") {
                kind.record_kept("");
                labelled.push((kind.text().unwrap_or_default().to_owned(), block));
                continue;
            }
            // A label is an object of one key; the other agents take it in any case.
            let labels = block.items.iter().all(|item| matches!(item.value.value, Value::Object(_) | Value::List(_)));
            if labels && !block.items.is_empty() {
                let names: BTreeSet<&str> = block.items.iter().map(|item| item.key.as_str()).collect();
                for name in names {
                    labelled.extend(block.blocks(name).into_iter().map(|inner| (name.to_ascii_lowercase(), inner)));
                }
                block.finish();
            } else {
                labelled.push((String::new(), block));
            }
        }
        labelled
    }

    /// Returns the names of its keys and blocks, each once.
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.items.iter().map(|item| item.key.clone()).collect()
    }

    /// A key below this block, from the top.
    pub(super) fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns where the block stands.
    pub(super) fn origin(&self) -> Origin {
        Origin { at: self.at, key: self.path.clone() }
    }

    /// Adds a report line about the block itself.
    pub(super) fn record(&self, outcome: Outcome, detail: impl Into<String>) {
        self.report.record(self.at, &self.path, outcome, detail);
    }

    /// Adds a report line about a missing key.
    pub(super) fn record_as(&self, key: &str, outcome: Outcome, detail: impl Into<String>) {
        self.report.record(self.at, &self.key(key), outcome, detail);
    }

    /// Keys that are omitted for one reason.
    pub(super) fn drop_keys(&mut self, keys: &[&str], why: &str) {
        for key in keys {
            if let Some(taken) = self.take(key) {
                taken.not_supported(why);
            }
        }
    }

    /// Reports the block with this outcome, and each of its keys as dropped.
    pub(super) fn drop_all(self, outcome: Outcome, why: &str) {
        self.record(outcome, why);
        for (_, item) in self.items.iter().enumerate().filter(|(number, _)| !self.taken.contains(number)) {
            self.report.record(item.at, &self.key(&item.key), Outcome::NotSupported, "dropped with its block");
        }
    }

    /// Reports the keys that no step has read.
    pub(super) fn finish(self) {
        for (number, item) in self.items.iter().enumerate() {
            if self.taken.contains(&number) {
                continue;
            }
            // The other agents ignore it too, but a block may be of a newer version.
            let (outcome, detail) = if is_block(&item.value.value) {
                (Outcome::Action, "unknown block: not written; set what it does by keyward's own keys, or remove it")
            } else {
                (Outcome::NotSupported, "unknown key")
            };
            self.report.record(item.at, &self.key(&item.key), outcome, detail);
        }
    }
}

/// True for a block, and for a list of them, as JSON writes several.
fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::List(items) => items.iter().any(|item| matches!(item.value, Value::Object(_))),
        _ => false,
    }
}

impl InputValue<'_> {
    /// Returns where the key stands.
    pub(super) fn origin(&self) -> Origin {
        Origin { at: self.at, key: self.key.clone() }
    }

    pub(super) fn record_kept(&self, detail: impl Into<String>) {
        self.report.record(self.at, &self.key, Outcome::Kept, detail);
    }

    pub(super) fn record_changed(&self, detail: impl Into<String>) {
        self.report.record(self.at, &self.key, Outcome::Changed, detail);
    }

    pub(super) fn action(&self, detail: impl Into<String>) {
        self.report.record(self.at, &self.key, Outcome::Action, detail);
    }

    pub(super) fn not_supported(&self, detail: impl Into<String>) {
        self.report.record(self.at, &self.key, Outcome::NotSupported, detail);
    }

    /// Returns a non-empty string.
    pub(super) fn text(&self) -> Option<&str> {
        match self.value {
            Value::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// The same; reports a value of another type.
    pub(super) fn required_text(&self) -> Option<&str> {
        let text = self.text();
        if text.is_none() {
            self.not_supported(format!("expected a string that is not empty, found {}", self.value.kind()));
        }
        text
    }

    /// Returns a boolean, which may also be written as a string or a number.
    pub(super) fn flag(&self) -> Option<bool> {
        match self.value {
            Value::Bool(flag) => Some(*flag),
            Value::Text(text) | Value::Number(text) => match text.as_str() {
                "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
                "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a duration: seconds as a number, or a string such as `1m30s`.
    pub(super) fn span(&self) -> Option<Duration> {
        match self.value {
            Value::Number(text) | Value::Text(text) => span(text),
            _ => None,
        }
    }

    /// Strings: one, or a list.
    pub(super) fn texts(&self) -> Option<Vec<String>> {
        match self.value {
            Value::Text(text) => Some(vec![text.clone()]),
            Value::List(items) => items
                .iter()
                .map(|item| match &item.value {
                    Value::Text(text) => Some(text.clone()),
                    _ => None,
                })
                .collect(),
            _ => None,
        }
    }
}

/// A span as Go writes it, to the millisecond: `90`, `90s`, `1h30m`, `1.5s`.
pub(super) fn span(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..end].parse().ok().filter(|number| (0.0..1e12).contains(number))?;
        let unit = &rest[end..];
        let unit = &unit[..unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len())];
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            "us" | "µs" => 0.000_001,
            "ns" => 0.000_000_001,
            "d" => 86_400.0,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &rest[end + unit.len()..];
    }
    (!text.is_empty()).then_some(Duration::from_millis(u64::try_from(sum.as_millis()).ok()?))
}

/// Formats a duration as keyward's configuration takes it.
pub(super) fn format_span(span: Duration) -> String {
    format_duration(span)
}
