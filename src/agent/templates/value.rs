//! Conversion between JSON and the template engine's values.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::{TemplateError as EngineError, Value};
use serde_json::Value as Json;

use crate::secrets::zeroize_json;

pub(super) fn text(text: impl AsRef<str>) -> Value {
    Value::String(Arc::from(text.as_ref()))
}

pub(super) fn list(values: impl IntoIterator<Item = Value>) -> Value {
    Value::List(values.into_iter().collect())
}

pub(super) fn map<K: AsRef<str>>(entries: impl IntoIterator<Item = (K, Value)>) -> Value {
    let entries = entries.into_iter().map(|(key, value)| (Arc::from(key.as_ref()), value));
    Value::Map(Arc::new(entries.collect::<BTreeMap<Arc<str>, Value>>()))
}

/// Converts a JSON value.
pub(super) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::Uint(number),
            (None, None) => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(string) => text(string),
        Json::Array(items) => list(items.iter().map(from_json)),
        Json::Object(fields) => map(fields.iter().map(|(key, value)| (key, from_json(value)))),
    }
}

/// JSON that is zeroed on drop.
pub(super) struct ZeroizingJson(pub(super) Json);

impl Drop for ZeroizingJson {
    fn drop(&mut self) {
        zeroize_json(&mut self.0);
    }
}

/// Converts a value to JSON.
pub(super) fn to_json(value: &Value) -> Result<Json, EngineError> {
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Bool(flag) => (*flag).into(),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::String(text) => Json::String(text.to_string()),
        Value::List(items) => Json::Array(items.iter().map(to_json).collect::<Result<_, _>>()?),
        Value::Map(fields) => {
            let field = |(key, value): (&Arc<str>, &Value)| Ok((key.to_string(), to_json(value)?));
            Json::Object(fields.iter().map(field).collect::<Result<_, EngineError>>()?)
        }
        Value::Function(_) => return Err(EngineError::Exec("a function has no JSON form".to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_survives_a_round_trip() {
        let json = serde_json::json!({
            "a": null, "b": true, "c": -3, "d": u64::MAX, "e": 1.5, "f": "x", "g": [1, "y"], "h": { "i": {} }
        });
        assert_eq!(to_json(&from_json(&json)).unwrap(), json);
    }
}
