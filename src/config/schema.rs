//! JSON Schema of the configuration, for editors: the description of all keys in another form.

use serde_json::{Map, Value, json};

use super::reference::{DefaultValue, KeyReference, sections};

/// Returns the schema (draft 7, which TOML editors read). A file that it accepts may still have errors that only `keyward check` finds.
pub fn schema() -> Value {
    let mut root = table("Configuration of keyward");
    root["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    root["title"] = "keyward".into();
    for section in sections() {
        let table = section.path.iter().fold(&mut root, |above, name| child(above, name));
        if section.section_kind.is_none() {
            table["description"] = section.meaning.clone().into();
        }
        for key in &section.keys {
            add_key(table, key, section.section_kind);
        }
    }
    root
}

/// A table without keys.
fn table(description: &str) -> Value {
    json!({ "type": "object", "description": description, "additionalProperties": false })
}

/// Returns the schema of a table in another one; `NAME` is any name.
fn child<'a>(above: &'a mut Value, name: &str) -> &'a mut Value {
    let (group, name) = if name == "NAME" { ("patternProperties", NAMES) } else { ("properties", name) };
    let tables = above[group].as_object_mut().map(std::mem::take).unwrap_or_default();
    above[group] = Value::Object(tables);
    let entry = &mut above[group][name];
    if entry.is_null() {
        *entry = table("");
    }
    entry
}

/// Names of sections.
const NAMES: &str = "^[A-Za-z0-9_-]{1,64}$";

fn add_key(table: &mut Value, key: &KeyReference, section_kind: Option<&str>) {
    // Keys of several kinds of listeners have one meaning; the first one is that of every kind.
    if !table["properties"][key.name].is_null() {
        return;
    }
    let mut schema = value_schema(key);
    let for_kind = section_kind.map(|kind| format!("With `kind = \"{kind}\"`: ")).unwrap_or_default();
    let default = match key.default {
        DefaultValue::Described(words) => format!(" Default: {words}."),
        _ => String::new(),
    };
    schema["description"] = format!("{for_kind}{}.{default}", key.meaning).into();
    if let DefaultValue::Literal(literal) = key.default
        && let Some(default) = parse_literal(literal)
    {
        schema["default"] = default;
    }
    if !table["properties"].is_object() {
        table["properties"] = Value::Object(Map::new());
    }
    table["properties"][key.name] = schema;
    // Some are required by other keys, which a schema does not see.
    let is_conditional =
        ["not for the kind", "if it is left out", "not together with"].iter().any(|words| key.meaning.contains(words));
    if key.default == DefaultValue::Required && section_kind.is_none() && !is_conditional {
        match &mut table["required"] {
            Value::Array(required) => required.push(key.name.into()),
            none => *none = json!([key.name]),
        }
    }
}

fn parse_literal(literal: &str) -> Option<Value> {
    let document: toml::Table = format!("value = {literal}").parse().ok()?;
    serde_json::to_value(document.get("value")?).ok()
}

/// Returns the schema of a value by its type and range.
fn value_schema(key: &KeyReference) -> Value {
    let (kind, range) = key.kind.split_once(", ").unwrap_or((key.kind, ""));
    let text = || json!({ "type": "string", "minLength": 1 });
    let list = || {
        // A list that may be empty says so.
        let min = usize::from(!key.meaning.contains("`[]`"));
        json!({ "type": "array", "items": { "type": "string" }, "minItems": min })
    };
    let pattern = |pattern: &str| {
        let reference = if key.takes_references { "|\\$\\{" } else { "" };
        json!({ "type": "string", "pattern": format!("{pattern}{reference}") })
    };
    if let Some(words) = key.kind.strip_prefix("one of ") {
        let words: Vec<&str> = words.split(", ").map(|word| word.trim_matches(['`', '"'])).collect();
        return json!({ "enum": words });
    }
    match kind {
        "boolean" => json!({ "type": "boolean" }),
        "integer" => {
            let (min, max) = range.split_once(" to ").unwrap_or(("0", "0"));
            json!({ "type": "integer", "minimum": number(min), "maximum": number(max) })
        }
        "duration" => {
            let off = if key.meaning.contains("`\"off\"`") { "|^off$" } else { "" };
            pattern(&format!("^([0-9]+ ?[a-zµ]+ ?)+${off}"))
        }
        "mode" => pattern("^[0-7]{3,4}$"),
        "path" => pattern("^/"),
        "list" => list(),
        "text or list" => json!({ "anyOf": [text(), list()] }),
        _ => text(),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}
