//! JSON as values of the template engine.

use serde_json::Value as Json;

use super::engine::{Value, format_json};

/// Converts JSON that a function parsed: numbers are floating-point numbers, as in Go.
pub(super) fn from_json(json: &Json) -> Value {
    convert(json, &|number| Value::Float(number.as_f64().unwrap_or_default()))
}

/// Converts a server's answer: its numbers are texts of digits, as Vault's client in Go has them.
pub(super) fn from_answer(json: &Json) -> Value {
    convert(json, &|number| {
        if number.is_f64() {
            // The server writes them as Go does.
            Value::Number(format_json(number.as_f64().unwrap_or_default()).into())
        } else {
            Value::Number(number.to_string().into())
        }
    })
}

fn convert(json: &Json, number: &dyn Fn(&serde_json::Number) -> Value) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(digits) => number(digits),
        Json::String(text) => Value::text(text.as_str()),
        Json::Array(items) => Value::list(items.iter().map(|item| convert(item, number))),
        Json::Object(fields) => Value::map(fields.iter().map(|(key, value)| (key.as_str(), convert(value, number)))),
    }
}
