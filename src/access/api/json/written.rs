//! JSON as it goes out.

use bytes::Bytes;
use serde::Serialize;

/// A value as clients of such services expect it: `<`, `>` and `&` are escaped, so that no browser takes it for a page.
pub(in crate::access::api) fn rendered(value: &impl Serialize, pretty: bool) -> Result<Bytes, serde_json::Error> {
    let mut text = Vec::with_capacity(512);
    if pretty {
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter))?;
        text.push(b'\n');
    } else {
        serde_json::to_writer(&mut text, value)?;
    }
    if !text.iter().any(|byte| matches!(byte, b'<' | b'>' | b'&')) {
        return Ok(text.into());
    }
    // These bytes stand in texts only.
    let mut escaped = Vec::with_capacity(text.len() + 32);
    for byte in text {
        match byte {
            b'<' => escaped.extend_from_slice(b"\\u003c"),
            b'>' => escaped.extend_from_slice(b"\\u003e"),
            b'&' => escaped.extend_from_slice(b"\\u0026"),
            other => escaped.push(other),
        }
    }
    Ok(escaped.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_out_is_no_page() {
        let value = serde_json::json!({"a": "<hidden> & é"});
        assert_eq!(rendered(&value, false).unwrap(), "{\"a\":\"\\u003chidden\\u003e \\u0026 é\"}".as_bytes());
        assert_eq!(
            rendered(&serde_json::json!({"a": [1]}), true).unwrap(),
            "{\n    \"a\": [\n        1\n    ]\n}\n".as_bytes()
        );
    }
}
