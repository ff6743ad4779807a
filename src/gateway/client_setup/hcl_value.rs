//! JSON values written as HCL.

use serde_json::Value;

/// Converts a value to HCL; `None` for null and for strings with `${`, which would begin an expression.
pub(super) fn to_hcl(value: &Value) -> Option<String> {
    let mut text = String::new();
    match value {
        Value::Object(members) => {
            text.push_str("{\n");
            for (key, value) in members {
                text.extend([&*to_hcl(&key.as_str().into())?, " = ", &*to_hcl(value)?, "\n"]);
            }
            text.push('}');
        }
        Value::Array(all) => {
            let all = all.iter().map(to_hcl).collect::<Option<Vec<_>>>()?;
            text.push('[');
            for value in all {
                text.push_str(&value);
                text.push_str(", ");
            }
            text.push(']');
        }
        Value::String(text) if text.contains("${") => return None,
        Value::Null => return None,
        other => text.push_str(&other.to_string()),
    }
    Some(text)
}
