//! JSON encoding that HTML parsers do not take for markup.

use std::io;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Encodes a value with `<`, `>` and `&` escaped, as Go's encoder in Consul does.
pub(crate) fn to_json(value: &impl Serialize, pretty: bool) -> Result<Bytes, serde_json::Error> {
    let mut text = Vec::with_capacity(1024);
    if pretty {
        let formatter = HtmlSafe(PrettyFormatter::with_indent(b"    "));
        value.serialize(&mut Serializer::with_formatter(&mut text, formatter))?;
        text.push(b'\n');
    } else {
        value.serialize(&mut Serializer::with_formatter(&mut text, HtmlSafe(CompactFormatter)))?;
    }
    Ok(text.into())
}

/// Formatter that escapes HTML's special characters in strings.
struct HtmlSafe<F>(F);

impl<F: Formatter> Formatter for HtmlSafe<F> {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = memchr::memchr3(b'<', b'>', b'&', rest.as_bytes()) {
            let (before, after) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            let escaped: &[u8] = match after.as_bytes().first() {
                Some(b'<') => b"\\u003c",
                Some(b'>') => b"\\u003e",
                _ => b"\\u0026",
            };
            writer.write_all(escaped)?;
            rest = &after[1..];
        }
        writer.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_characters_are_escaped() {
        let value = serde_json::json!({"a": "<hidden> & é"});
        assert_eq!(to_json(&value, false).unwrap(), "{\"a\":\"\\u003chidden\\u003e \\u0026 é\"}".as_bytes());
        assert_eq!(
            to_json(&serde_json::json!({"a": [1]}), true).unwrap(),
            "{\n    \"a\": [\n        1\n    ]\n}\n".as_bytes()
        );
    }
}
