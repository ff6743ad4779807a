//! JSON as it comes in and goes out.
//!
//! What comes in is read as clients of such services write it: keys match without case, `null` is nothing, and a key that
//! nobody knows is an error that names it. A key that is given twice is refused: which of the two would count?

mod unique_keys;
mod html_safe;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(super) use self::html_safe::rendered;
use self::unique_keys::Once;

/// One JSON object, field by field.
#[derive(Debug)]
pub struct Fields {
    /// Keys as they were written and values, by the key in lower case.
    fields: BTreeMap<String, (String, Value)>,
    kind: &'static str,
}

/// Why a body does not say what it should. Holds no value of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", failed(kind))]
pub struct DecodeError {
    kind: &'static str,
    reason: String,
}

fn failed(kind: &str) -> String {
    if kind == Fields::REQUEST { "Failed to decode request body".to_owned() } else { format!("{kind} decoding failed") }
}

impl Fields {
    /// What a body describes that describes no record.
    pub(super) const REQUEST: &'static str = "";

    /// Reads a body; `kind` is what it should describe, such as `Token`. `null` is an object without fields.
    ///
    /// # Errors
    /// It is empty, no JSON, something else than an object, or has a key twice.
    pub fn read(body: &[u8], kind: &'static str) -> Result<Self, DecodeError> {
        Self::of(parsed(body, kind)?, kind)
    }

    /// Reads a body that is a list of objects. `null` is an empty one.
    ///
    /// # Errors
    /// As [`Fields::read`].
    pub fn read_all(body: &[u8], kind: &'static str) -> Result<Vec<Self>, DecodeError> {
        match parsed(body, kind)? {
            Value::Null => Ok(Vec::new()),
            Value::Array(list) => list.into_iter().map(|value| Self::of(value, kind)).collect(),
            other => {
                Err(DecodeError { kind, reason: format!("json: cannot unmarshal {} into an array", kind_of(&other)) })
            }
        }
    }

    fn of(value: Value, kind: &'static str) -> Result<Self, DecodeError> {
        let fail = |reason: String| DecodeError { kind, reason };
        let object = match value {
            Value::Object(object) => object,
            Value::Null => Map::new(),
            other => return Err(fail(format!("json: cannot unmarshal {} into an object", kind_of(&other)))),
        };
        let mut fields = BTreeMap::new();
        for (key, value) in object {
            if let Some((other, _)) = fields.insert(key.to_ascii_lowercase(), (key.clone(), value)) {
                let (key, other) = (shortened(&key), shortened(&other));
                return Err(fail(format!("json: field {key:?} is given twice, as {other:?} too")));
            }
        }
        Ok(Self { fields, kind })
    }

    fn fail<T>(&self, reason: String) -> Result<T, DecodeError> {
        Err(DecodeError { kind: self.kind, reason })
    }

    /// Takes a field; `None` if it is not there or `null`.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(&name.to_ascii_lowercase()).map(|(_, value)| value).filter(|value| !value.is_null())
    }

    fn wrong<T>(&self, name: &str, found: &Value, wanted: &str) -> Result<T, DecodeError> {
        self.fail(format!("json: cannot unmarshal {} into field {name} of type {wanted}", kind_of(found)))
    }

    /// What is said of a field with a value that is none; `reason` does not repeat it.
    pub fn refusal(&self, name: &str, reason: &dyn std::fmt::Display) -> DecodeError {
        DecodeError { kind: self.kind, reason: format!("json: field {name}: {reason}") }
    }

    /// Takes a text.
    ///
    /// # Errors
    /// It is no string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, DecodeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => self.wrong(name, &other, "string"),
        }
    }

    /// Takes a bool.
    ///
    /// # Errors
    /// It is no bool.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, DecodeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => self.wrong(name, &other, "bool"),
        }
    }

    /// Takes a list; what is not there is an empty one.
    fn list(&mut self, name: &str) -> Result<Vec<Value>, DecodeError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => self.wrong(name, &other, "array"),
        }
    }

    /// Takes a list of texts.
    ///
    /// # Errors
    /// It is no list of texts.
    pub fn texts(&mut self, name: &str) -> Result<Vec<String>, DecodeError> {
        let list = self.list(name)?;
        let text = |value: Value| match value {
            Value::String(text) => Ok(text),
            other => self.wrong(name, &other, "string"),
        };
        list.into_iter().map(text).collect()
    }

    /// Takes a list of objects, each read by `read`, which takes its fields; others in it are refused.
    ///
    /// # Errors
    /// It is no list of such objects.
    pub fn objects<T>(
        &mut self,
        name: &str,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let mut all = Vec::new();
        for value in self.list(name)? {
            let mut fields = Self::of(value, self.kind)?;
            all.push(read(&mut fields)?);
            fields.finish()?;
        }
        Ok(all)
    }

    /// Takes an object; `None` if it is not there.
    ///
    /// # Errors
    /// It is no object.
    pub fn object(&mut self, name: &str) -> Result<Option<Self>, DecodeError> {
        self.take(name).map(|value| Self::of(value, self.kind)).transpose()
    }

    /// Takes an open map.
    ///
    /// # Errors
    /// It is no map.
    pub fn map(&mut self, name: &str) -> Result<Option<Map<String, Value>>, DecodeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => self.wrong(name, &other, "map"),
        }
    }

    /// Takes a map of texts; what is not there is an empty one.
    ///
    /// # Errors
    /// It is no map of texts.
    pub fn pairs(&mut self, name: &str) -> Result<BTreeMap<String, String>, DecodeError> {
        let map = self.map(name)?.unwrap_or_default();
        let text = |(key, value)| match value {
            Value::Null => None,
            Value::String(text) => Some(Ok((key, text))),
            other => Some(self.wrong(name, &other, "string")),
        };
        map.into_iter().filter_map(text).collect()
    }

    /// Leaves aside fields that a read gives and a write does not take.
    pub fn pass_over(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    /// All fields, with their keys as they were written.
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.fields.into_values().collect()
    }

    /// Refuses what is left.
    ///
    /// # Errors
    /// There is a field that nobody took.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.fields.values().next() {
            None => Ok(()),
            Some((key, _)) => self.fail(format!("json: unknown field {:?}", shortened(key))),
        }
    }
}

/// As much of a key as an error repeats.
fn shortened(key: &str) -> String {
    key.chars().take(128).collect()
}

fn parsed(body: &[u8], kind: &'static str) -> Result<Value, DecodeError> {
    let fail = |reason: String| DecodeError { kind, reason };
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(fail("EOF".to_owned()));
    }
    let Once(value) = serde_json::from_slice(body).map_err(|error| {
        // The library quotes values that have the wrong type, and a value may be a secret; a key it may quote.
        let text = error.to_string();
        if error.is_data() && text.starts_with("duplicate field") {
            return fail(text);
        }
        fail(format!("invalid JSON at line {}, column {}", error.line(), error.column()))
    })?;
    Ok(value)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_without_case_and_others_are_named() {
        let mut fields =
            Fields::read(br#"{"name": "a", "LOCAL": true, "Policies": null, "Hash": "x"}"#, "Token").unwrap();
        assert_eq!(fields.text("Name"), Ok(Some("a".to_owned())));
        assert_eq!(fields.flag("Local"), Ok(Some(true)));
        assert_eq!(fields.texts("Policies"), Ok(vec![]));
        let text = fields.finish().unwrap_err().to_string();
        assert_eq!(text, "Token decoding failed: json: unknown field \"Hash\"");
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_its_values() {
        let check = |body: &[u8], reason: &str| {
            let text = Fields::read(body, "Role").unwrap_err().to_string();
            assert!(text.starts_with("Role decoding failed: ") && text.contains(reason), "{text}");
            assert!(!text.contains("hush"), "{text}");
        };
        check(b"", "EOF");
        check(b"  ", "EOF");
        check(&[0, 1, 2], "invalid JSON at line 1, column 1");
        check(b"{\"a\": \"\xff\"}", "invalid JSON");
        check(b"[\"hush\"]", "cannot unmarshal array into an object");
        check(b"\"hush\"", "cannot unmarshal string");
        check(b"{} x", "invalid JSON");
        check(br#"{"a": 1, "a": "hush"}"#, "duplicate field \"a\"");
        check(br#"{"a": {"b": 1, "b": 2}}"#, "duplicate field \"b\"");
        check(br#"{"Name": 1, "name": "hush"}"#, "is given twice");
        check("[".repeat(10_000).as_bytes(), "invalid JSON");
        assert!(Fields::read(b"null", "Role").unwrap().finish().is_ok());
        let mut fields = Fields::read(br#"{"Name": ["hush"]}"#, "Role").unwrap();
        let text = fields.text("Name").unwrap_err().to_string();
        assert_eq!(text, "Role decoding failed: json: cannot unmarshal array into field Name of type string");
    }
}
