//! JSON of requests and responses.
//!
//! Requests are decoded as Consul decodes them: keys match case-insensitively, `null` means absent, and an unknown key is an
//! error that names it. Duplicate keys are refused, as parsers disagree on which one counts.

mod unique_keys;
mod html_safe;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(super) use self::html_safe::{JsonArray, to_json};
use self::unique_keys::UniqueKeys;

/// Fields of a JSON object, taken one by one.
#[derive(Debug)]
pub struct JsonFields {
    /// Original key and value by the key in lower case.
    fields: BTreeMap<String, (String, Value)>,
    kind: &'static str,
}

/// Decoding error of a body; holds none of its values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", prefix(kind))]
pub struct DecodeError {
    kind: &'static str,
    reason: String,
}

fn prefix(kind: &str) -> String {
    if kind == JsonFields::REQUEST {
        "Failed to decode request body".to_owned()
    } else {
        format!("{kind} decoding failed")
    }
}

impl JsonFields {
    /// Kind of a body that describes no record.
    pub(super) const REQUEST: &'static str = "";

    /// Parses a body that describes a `kind`, such as `Token`. `null` is an object without fields. Duplicate keys are
    /// an error.
    pub fn parse(body: &[u8], kind: &'static str) -> Result<Self, DecodeError> {
        Self::from_value(parse_value(body, kind)?, kind)
    }

    /// Parses a body that is a list of objects. `null` is an empty list.
    pub fn parse_list(body: &[u8], kind: &'static str) -> Result<Vec<Self>, DecodeError> {
        match parse_value(body, kind)? {
            Value::Null => Ok(Vec::new()),
            Value::Array(list) => list.into_iter().map(|value| Self::from_value(value, kind)).collect(),
            other => {
                Err(DecodeError { kind, reason: format!("json: cannot unmarshal {} into an array", type_name(&other)) })
            }
        }
    }

    fn from_value(value: Value, kind: &'static str) -> Result<Self, DecodeError> {
        let fail = |reason: String| DecodeError { kind, reason };
        let object = match value {
            Value::Object(object) => object,
            Value::Null => Map::new(),
            other => return Err(fail(format!("json: cannot unmarshal {} into an object", type_name(&other)))),
        };
        let mut fields = BTreeMap::new();
        for (key, value) in object {
            if let Some((other, _)) = fields.insert(key.to_ascii_lowercase(), (key.clone(), value)) {
                let key = truncate(&key);
                let other = truncate(&other);
                return Err(fail(format!("json: duplicate field {key:?} (also written {other:?})")));
            }
        }
        Ok(Self { fields, kind })
    }

    fn fail<T>(&self, reason: String) -> Result<T, DecodeError> {
        Err(DecodeError { kind: self.kind, reason })
    }

    /// Takes a field; `None` if it is absent or `null`.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(&name.to_ascii_lowercase()).map(|(_, value)| value).filter(|value| !value.is_null())
    }

    fn wrong_type<T>(&self, name: &str, value: &Value, expected: &str) -> Result<T, DecodeError> {
        self.fail(format!("json: cannot unmarshal {} into field {name} of type {expected}", type_name(value)))
    }

    /// Builds the error of a field with an invalid value, which `reason` must not repeat.
    pub(crate) fn invalid_value(&self, name: &str, reason: &dyn std::fmt::Display) -> DecodeError {
        DecodeError { kind: self.kind, reason: format!("json: field {name}: {reason}") }
    }

    /// Takes a string.
    pub fn string(&mut self, name: &str) -> Result<Option<String>, DecodeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => self.wrong_type(name, &other, "string"),
        }
    }

    /// Takes a bool.
    pub fn bool(&mut self, name: &str) -> Result<Option<bool>, DecodeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => self.wrong_type(name, &other, "bool"),
        }
    }

    /// Takes a list; an absent one is empty.
    fn list(&mut self, name: &str) -> Result<Vec<Value>, DecodeError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => self.wrong_type(name, &other, "array"),
        }
    }

    /// Takes a list of strings.
    pub fn strings(&mut self, name: &str) -> Result<Vec<String>, DecodeError> {
        let list = self.list(name)?;
        let text = |value: Value| match value {
            Value::String(text) => Ok(text),
            other => self.wrong_type(name, &other, "string"),
        };
        list.into_iter().map(text).collect()
    }

    /// Takes a list of objects. `read` takes the fields of each; the rest are refused as unknown.
    pub fn objects<T>(
        &mut self,
        name: &str,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let mut all = Vec::new();
        for value in self.list(name)? {
            let mut fields = Self::from_value(value, self.kind)?;
            all.push(read(&mut fields)?);
            fields.finish()?;
        }
        Ok(all)
    }

    /// Takes an object; `None` if it is absent.
    pub fn object(&mut self, name: &str) -> Result<Option<Self>, DecodeError> {
        self.take(name).map(|value| Self::from_value(value, self.kind)).transpose()
    }

    /// Takes an object with arbitrary keys.
    pub fn map(&mut self, name: &str) -> Result<Option<Map<String, Value>>, DecodeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => self.wrong_type(name, &other, "map"),
        }
    }

    /// Takes an object of strings; an absent one is empty.
    pub fn string_map(&mut self, name: &str) -> Result<BTreeMap<String, String>, DecodeError> {
        let map = self.map(name)?.unwrap_or_default();
        let text = |(key, value)| match value {
            Value::Null => None,
            Value::String(text) => Some(Ok((key, text))),
            other => Some(self.wrong_type(name, &other, "string")),
        };
        map.into_iter().filter_map(text).collect()
    }

    /// Ignores read-only fields, which clients send back after a read.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    /// Returns all fields under their original keys.
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.fields.into_values().collect()
    }

    /// Refuses the fields that were not taken.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.fields.values().next() {
            None => Ok(()),
            Some((key, _)) => self.fail(format!("json: unknown field {:?}", truncate(key))),
        }
    }
}

/// Truncates a key for an error.
fn truncate(key: &str) -> String {
    key.chars().take(128).collect()
}

fn parse_value(body: &[u8], kind: &'static str) -> Result<Value, DecodeError> {
    let fail = |reason: String| DecodeError { kind, reason };
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(fail("EOF".to_owned()));
    }
    let UniqueKeys(value) = serde_json::from_slice(body).map_err(|error| {
        // serde_json quotes values of the wrong type, which may be secrets. Keys are safe to repeat.
        let text = error.to_string();
        if error.is_data() && text.starts_with("duplicate field") {
            return fail(text);
        }
        fail(format!("invalid JSON at line {}, column {}", error.line(), error.column()))
    })?;
    Ok(value)
}

fn type_name(value: &Value) -> &'static str {
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
    fn keys_match_case_insensitively_and_unknown_keys_are_named() {
        let mut fields =
            JsonFields::parse(br#"{"name": "a", "LOCAL": true, "Policies": null, "Hash": "x"}"#, "Token").unwrap();
        assert_eq!(fields.string("Name"), Ok(Some("a".to_owned())));
        assert_eq!(fields.bool("Local"), Ok(Some(true)));
        assert_eq!(fields.strings("Policies"), Ok(vec![]));
        let text = fields.finish().unwrap_err().to_string();
        assert_eq!(text, "Token decoding failed: json: unknown field \"Hash\"");
    }

    #[test]
    fn decoding_errors_hold_no_values() {
        let check = |body: &[u8], reason: &str| {
            let text = JsonFields::parse(body, "Role").unwrap_err().to_string();
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
        check(br#"{"Name": 1, "name": "hush"}"#, "duplicate field \"name\" (also written \"Name\")");
        check("[".repeat(10_000).as_bytes(), "invalid JSON");
        assert!(JsonFields::parse(b"null", "Role").unwrap().finish().is_ok());
        let mut fields = JsonFields::parse(br#"{"Name": ["hush"]}"#, "Role").unwrap();
        let text = fields.string("Name").unwrap_err().to_string();
        assert_eq!(text, "Role decoding failed: json: cannot unmarshal array into field Name of type string");
    }
}
