//! Values of YAML: the first document of a text, with the types that Go's library gives them where JSON has them.

use std::collections::BTreeMap;

use granit_parser::{Event, ParseResult, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value as Json};

use super::NamedFunction;
use super::arguments::Arguments;
use crate::agent::templates::value::{ZeroizingJson, from_json, map};

pub(super) const FUNCTIONS: &[NamedFunction] = &[("parseYAML", |args| {
    let args = Arguments::exactly("parseYAML", args, 1)?;
    match args.text(0)? {
        "" => Ok(map::<&str>([])),
        yaml => read(yaml).map(|json| from_json(&json.0)).map_err(|wrong| args.fail(&wrong.to_string())),
    }
})];

/// Why a text was not read; nothing of it is told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no YAML from line {line} on: {what}")]
struct TemplateError {
    line: usize,
    what: &'static str,
}

/// So many values in one text, those that an alias repeats included: a few lines of aliases could be more than memory holds.
const VALUES: usize = 100_000;

/// How deep they may stand in each other.
const DEPTH: usize = 100;

fn read(yaml: &str) -> Result<ZeroizingJson, TemplateError> {
    let mut reader = Reader { events: Parser::new_from_str(yaml), anchors: BTreeMap::new(), left: VALUES, line: 1 };
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::StreamEnd => return Ok(ZeroizingJson(Json::Null)),
            first => return reader.value(first, 0).map(ZeroizingJson),
        }
    }
}

struct Reader<I> {
    events: I,
    /// What aliases stand for.
    anchors: BTreeMap<usize, ZeroizingJson>,
    left: usize,
    line: usize,
}

impl<'a, I: Iterator<Item = ParseResult<'a>>> Reader<I> {
    fn next(&mut self) -> Result<Event<'a>, TemplateError> {
        match self.events.next() {
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            // The parser's own words name what it read.
            Some(Err(error)) => Err(TemplateError { line: error.marker().line(), what: "it cannot be taken apart" }),
            None => Err(self.wrong("it ends too early")),
        }
    }

    const fn wrong(&self, what: &'static str) -> TemplateError {
        TemplateError { line: self.line, what }
    }

    /// The value that begins with this event.
    fn value(&mut self, event: Event<'a>, depth: usize) -> Result<Json, TemplateError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| self.wrong("it holds too many values"))?;
        if depth > DEPTH {
            return Err(self.wrong("values stand too deep in each other"));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, self.scalar(&text, style, tag.as_deref())?),
            Event::SequenceStart(_, anchor, _) => (anchor, self.list(depth)?),
            Event::MappingStart(_, anchor, _) => (anchor, self.fields(depth)?),
            Event::Alias(anchor) => {
                let Some(ZeroizingJson(value)) = self.anchors.get(&anchor) else {
                    return Err(self.wrong("an alias stands in what it stands for"));
                };
                self.left = self.left.checked_sub(size(value)).ok_or_else(|| self.wrong("it holds too many values"))?;
                (0, value.clone())
            }
            _ => return Err(self.wrong("a value is missing")),
        };
        if anchor != 0 {
            self.left = self.left.checked_sub(size(&value)).ok_or_else(|| self.wrong("it holds too many values"))?;
            self.anchors.insert(anchor, ZeroizingJson(value.clone()));
        }
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Json, TemplateError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Json::Array(items)),
                item => items.push(self.value(item, depth + 1)?),
            }
        }
    }

    fn fields(&mut self, depth: usize) -> Result<Json, TemplateError> {
        let (mut fields, mut merged) = (Map::new(), Vec::new());
        loop {
            let (key, merges) = match self.next()? {
                Event::MappingEnd => break,
                Event::Scalar(key, style, 0, _) => (key.into_owned(), style == ScalarStyle::Plain),
                _ => return Err(self.wrong("a key is no plain text")),
            };
            let first = self.next()?;
            let value = self.value(first, depth + 1)?;
            if merges && key == "<<" {
                merged.push(value);
            } else if fields.insert(key, value).is_some() {
                return Err(self.wrong("a key stands there twice"));
            }
        }
        for value in merged {
            let all = if let Json::Array(all) = value { all } else { vec![value] };
            for one in all {
                let Json::Object(more) = one else { return Err(self.wrong("what << takes in is no map")) };
                // What stands in the map itself comes first, then what was taken in first.
                for (key, value) in more {
                    fields.entry(key).or_insert(value);
                }
            }
        }
        Ok(Json::Object(fields))
    }

    fn scalar(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Json, TemplateError> {
        let untagged = || if style == ScalarStyle::Plain { resolved(text) } else { Json::from(text) };
        let Some(tag) = tag else { return Ok(untagged()) };
        let fits = |found: Json, fits: fn(&Json) -> bool| {
            if fits(&found) { Ok(found) } else { Err(self.wrong("a value is not of the type that its tag names")) }
        };
        match (tag.core_suffix(), tag.suffix_in_namespace(YAMLS_OWN)) {
            // A tag of the text's own says nothing here.
            (Some("str"), _) | (None, None) => Ok(Json::from(text)),
            (Some("null"), _) => fits(resolved(text), Json::is_null),
            (Some("bool"), _) => fits(resolved(text), Json::is_boolean),
            (Some("int"), _) => fits(resolved(text), |found| found.is_i64() || found.is_u64()),
            (Some("float"), _) => fits(resolved(text), Json::is_number),
            (Some(_), _) | (None, Some(_)) => Err(self.wrong("a tag has no meaning here")),
        }
    }
}

const YAMLS_OWN: &str = "tag:yaml.org,2002:";

/// How many values are in it.
fn size(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Json::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// A text without quotes, by the types of YAML 1.2 and the numbers of YAML 1.1, as Go's library takes them.
fn resolved(text: &str) -> Json {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Json::Null,
        "true" | "True" | "TRUE" => Json::Bool(true),
        "false" | "False" | "FALSE" => Json::Bool(false),
        _ => number(text).unwrap_or_else(|| Json::from(text)),
    }
}

fn number(text: &str) -> Option<Json> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
        return None;
    }
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let (radix, body) = match digits.as_bytes() {
        [b'0', b'x', ..] => (16, digits.get(2..)?),
        [b'0', b'o', ..] => (8, digits.get(2..)?),
        [b'0', b'b', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if body.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && let Ok(number) = i128::from_str_radix(body, radix)
    {
        let number = if negative { -number } else { number };
        if let Ok(number) = i64::try_from(number) {
            return Some(number.into());
        }
        if let Ok(number) = u64::try_from(number) {
            return Some(number.into());
        }
    }
    // Rust takes words for numbers that YAML does not.
    let decimal = digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let number = decimal.then(|| plain.parse::<f64>().ok()).flatten()?;
    serde_json::Number::from_f64(number).map(Json::Number)
}

#[cfg(test)]
mod tests;
