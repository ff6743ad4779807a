//! `parseYAML`: reads the first document of a string, with the types of Go's library as far as JSON has them.

use std::collections::BTreeMap;

use granit_parser::{Event, ParseResult, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value as Json};

use super::NamedFunction;
use super::go_integer::parse_integer;
use crate::templates::engine::{MapType, Value};
use crate::templates::value::from_json;

pub(super) const FUNCTIONS: &[NamedFunction] = &[("parseYAML", 1, 1, |args| match args.text(0)? {
    "" => Ok(Value::map::<&str>([])),
    yaml => read(yaml).map(|json| from_yaml(&json)).map_err(|error| args.fail(&error.to_string())),
})];

/// Converts what was read, with the types of Go's library.
fn from_yaml(json: &Json) -> Value {
    match json {
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::Uint64(number),
            (None, None) => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::Array(items) => Value::list(items.iter().map(from_yaml)),
        Json::Object(fields) => {
            let entries = fields.iter().map(|(key, value)| (key.as_str(), from_yaml(value)));
            Value::map_of(MapType::AnyKeys, entries)
        }
        other => from_json(other),
    }
}

/// Error of a YAML text, without its content.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid YAML at line {line}: {reason}")]
struct YamlError {
    line: usize,
    reason: &'static str,
}

/// Bounds the values in one text, with those that aliases repeat: a few lines of nested aliases could exceed the memory.
const MAX_VALUES: usize = 100_000;

/// Bounds the nesting.
const MAX_DEPTH: usize = 100;

fn read(yaml: &str) -> Result<Json, YamlError> {
    let mut reader =
        Reader { events: Parser::new_from_str(yaml), anchors: BTreeMap::new(), remaining: MAX_VALUES, line: 1 };
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::StreamEnd => return Ok(Json::Null),
            first => return reader.value(first, 0),
        }
    }
}

struct Reader<I> {
    events: I,
    /// Values that aliases refer to.
    anchors: BTreeMap<usize, Json>,
    /// Values that are still allowed.
    remaining: usize,
    line: usize,
}

impl<'a, I: Iterator<Item = ParseResult<'a>>> Reader<I> {
    fn next(&mut self) -> Result<Event<'a>, YamlError> {
        match self.events.next() {
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            // The parser's message contains parts of the input.
            Some(Err(error)) => Err(YamlError { line: error.marker().line(), reason: "the syntax is invalid" }),
            None => Err(self.error("the document ends too early")),
        }
    }

    const fn error(&self, reason: &'static str) -> YamlError {
        YamlError { line: self.line, reason }
    }

    /// Reads the value that begins with this event.
    fn value(&mut self, event: Event<'a>, depth: usize) -> Result<Json, YamlError> {
        self.remaining = self.remaining.checked_sub(1).ok_or_else(|| self.error("there are too many values"))?;
        if depth > MAX_DEPTH {
            return Err(self.error("the values are nested too deeply"));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, self.scalar(&text, style, tag.as_deref())?),
            Event::SequenceStart(_, anchor, _) => (anchor, self.list(depth)?),
            Event::MappingStart(_, anchor, _) => (anchor, self.fields(depth)?),
            Event::Alias(anchor) => {
                let Some(value) = self.anchors.get(&anchor) else {
                    return Err(self.error("an alias refers to a value that contains it"));
                };
                self.remaining = self
                    .remaining
                    .checked_sub(count_values(value))
                    .ok_or_else(|| self.error("there are too many values"))?;
                (0, value.clone())
            }
            _ => return Err(self.error("a value is missing")),
        };
        if anchor != 0 {
            self.remaining = self
                .remaining
                .checked_sub(count_values(&value))
                .ok_or_else(|| self.error("there are too many values"))?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Json, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Json::Array(items)),
                item => items.push(self.value(item, depth + 1)?),
            }
        }
    }

    fn fields(&mut self, depth: usize) -> Result<Json, YamlError> {
        let mut fields = Map::new();
        let mut merged = Vec::new();
        loop {
            let (key, merges) = match self.next()? {
                Event::MappingEnd => break,
                Event::Scalar(key, ScalarStyle::Plain, 0, _) => (plain_key(key.into_owned()), true),
                Event::Scalar(key, _, 0, _) => (key.into_owned(), false),
                _ => return Err(self.error("a key is not a scalar")),
            };
            let first = self.next()?;
            let value = self.value(first, depth + 1)?;
            if merges && key == "<<" {
                merged.push(value);
            } else if fields.insert(key, value).is_some() {
                return Err(self.error("a key is repeated"));
            }
        }
        for value in merged {
            let all = if let Json::Array(all) = value { all } else { vec![value] };
            for one in all {
                let Json::Object(more) = one else { return Err(self.error("the value of << is not a map")) };
                // The map's own keys take precedence, then earlier merged maps.
                for (key, value) in more {
                    fields.entry(key).or_insert(value);
                }
            }
        }
        Ok(Json::Object(fields))
    }

    fn scalar(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Json, YamlError> {
        let untagged = || if style == ScalarStyle::Plain { resolve_scalar(text) } else { Json::from(text) };
        let Some(tag) = tag else { return Ok(untagged()) };
        let fits = |value: Json, fits: fn(&Json) -> bool| {
            if fits(&value) { Ok(value) } else { Err(self.error("a value does not have the type of its tag")) }
        };
        match (tag.core_suffix(), tag.suffix_in_namespace(YAML_TAGS)) {
            // Local tags have no effect.
            (Some("str"), _) | (None, None) => Ok(Json::from(text)),
            (Some("null"), _) => fits(resolve_scalar(text), Json::is_null),
            (Some("bool"), _) => fits(resolve_scalar(text), Json::is_boolean),
            (Some("int"), _) => fits(resolve_scalar(text), |value| value.is_i64() || value.is_u64()),
            (Some("float"), _) => fits(resolve_scalar(text), Json::is_number),
            (Some(_), _) | (None, Some(_)) => Err(self.error("a tag is not supported")),
        }
    }
}

/// Returns the text of a plain key: that of its value where it is a boolean or a number.
fn plain_key(key: String) -> String {
    match resolve_scalar(&key) {
        value @ (Json::Bool(_) | Json::Number(_)) => value.to_string(),
        _ => key,
    }
}

const YAML_TAGS: &str = "tag:yaml.org,2002:";

/// Counts the values.
fn count_values(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(count_values).sum::<usize>(),
        Json::Object(fields) => 1 + fields.values().map(count_values).sum::<usize>(),
        _ => 1,
    }
}

/// Resolves a plain scalar as Go's library does: the types of YAML 1.1.
fn resolve_scalar(text: &str) -> Json {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Json::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Json::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Json::Bool(false),
        _ => parse_number(text).unwrap_or_else(|| Json::from(text)),
    }
}

fn parse_number(text: &str) -> Option<Json> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let plain = text.replace('_', "");
    if let Some(number) = parse_integer(&plain) {
        if let Ok(number) = i64::try_from(number) {
            return Some(number.into());
        }
        if let Ok(number) = u64::try_from(number) {
            return Some(number.into());
        }
    }
    // Rust parses `inf` and `nan`, which YAML writes otherwise.
    let decimal = plain.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let number = decimal.then(|| plain.parse::<f64>().ok()).flatten()?;
    serde_json::Number::from_f64(number).map(Json::Number)
}

#[cfg(test)]
mod tests;
