//! JSON encoding that HTML parsers do not take for markup.

use bytes::Bytes;
use memchr::memchr3;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter as _, PrettyFormatter};

/// Encodes a value with `<`, `>` and `&` escaped, as Go's encoder in Consul does.
pub(crate) fn to_json(value: &impl Serialize, pretty: bool) -> Result<Bytes, serde_json::Error> {
    let mut text = Vec::with_capacity(1024);
    if pretty {
        value.serialize(&mut Serializer::with_formatter(&mut text, pretty_formatter()))?;
        text.push(b'\n');
    } else {
        value.serialize(&mut Serializer::new(&mut text))?;
    }
    Ok(escape_html(text))
}

fn pretty_formatter() -> PrettyFormatter<'static> {
    PrettyFormatter::with_indent(b"    ")
}

/// Escapes HTML's special characters, which JSON has in strings only.
fn escape_html(text: Vec<u8>) -> Bytes {
    let Some(mut at) = memchr3(b'<', b'>', b'&', &text) else { return text.into() };
    let mut escaped = Vec::with_capacity(text.len() + text.len() / 8);
    let mut rest = text.as_slice();
    loop {
        let (before, after) = rest.split_at(at);
        escaped.extend_from_slice(before);
        let Some((special, after)) = after.split_first() else { return escaped.into() };
        escaped.extend_from_slice(match special {
            b'<' => b"\\u003c",
            b'>' => b"\\u003e",
            _ => b"\\u0026",
        });
        rest = after;
        at = memchr3(b'<', b'>', b'&', rest).unwrap_or(rest.len());
    }
}

/// JSON array that is encoded like [`to_json`] does, item by item and in pieces.
pub(crate) struct JsonArray {
    text: Vec<u8>,
    pretty: bool,
    is_empty: bool,
}

impl JsonArray {
    pub(crate) fn begin(pretty: bool) -> Self {
        Self { text: b"[".to_vec(), pretty, is_empty: true }
    }

    /// Adds an item.
    pub(crate) fn push(&mut self, item: &impl Serialize) -> Result<(), serde_json::Error> {
        let is_first = std::mem::take(&mut self.is_empty);
        let text = &mut self.text;
        if self.pretty {
            let mut layout = pretty_formatter();
            // Only for the depth of an item.
            layout.begin_array(&mut std::io::sink()).map_err(serde_json::Error::io)?;
            layout.begin_array_value(text, is_first).map_err(serde_json::Error::io)?;
            return item.serialize(&mut Serializer::with_formatter(text, layout));
        }
        if !is_first {
            text.push(b',');
        }
        item.serialize(&mut Serializer::new(text))
    }

    /// Ends the array.
    pub(crate) fn end(&mut self) {
        let end: &[u8] = match (self.pretty, self.is_empty) {
            (true, true) => b"]\n",
            (true, false) => b"\n]\n",
            (false, _) => b"]",
        };
        self.text.extend_from_slice(end);
    }

    /// Returns the number of bytes since the last call of [`JsonArray::take`].
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Takes the text since the last call; the next one may be as long.
    pub(crate) fn take(&mut self) -> Bytes {
        let next = Vec::with_capacity(self.text.len() + self.text.len() / 8);
        escape_html(std::mem::replace(&mut self.text, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_characters_are_escaped() {
        let value = serde_json::json!({"a": "<hidden> & é"});
        assert_eq!(to_json(&value, false).unwrap(), "{\"a\":\"\\u003chidden\\u003e \\u0026 é\"}".as_bytes());
        assert_eq!(to_json(&"&&<\\>\"", false).unwrap(), r#""\u0026\u0026\u003c\\\u003e\"""#.as_bytes());
        assert_eq!(
            to_json(&serde_json::json!({"a": [1]}), true).unwrap(),
            "{\n    \"a\": [\n        1\n    ]\n}\n".as_bytes()
        );
    }

    #[test]
    fn an_array_in_pieces_has_the_text_of_the_whole() {
        let items = [serde_json::json!({"a": "<b>", "c": [1, {"d": 2}], "e": []}), serde_json::json!("text"), 7.into()];
        for (pretty, count) in [(false, 0), (true, 0), (false, 1), (true, 1), (false, 3), (true, 3)] {
            let mut array = JsonArray::begin(pretty);
            let mut text = Vec::new();
            for item in &items[..count] {
                array.push(item).unwrap();
                text.extend(array.take());
            }
            array.end();
            text.extend(array.take());
            assert_eq!(text, to_json(&&items[..count], pretty).unwrap(), "{count} items, pretty: {pretty}");
        }
    }
}
