//! JSON as it goes out.

use std::io;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use zeroize::Zeroizing;

/// A value as clients of such services expect it: `<`, `>` and `&` are escaped, so that no browser takes it for a page. The
/// text may hold a secret: it is zeroed once nobody has it any more.
pub(in crate::acl::api) fn rendered(value: &impl Serialize, pretty: bool) -> Result<Bytes, serde_json::Error> {
    let mut text = Zeroizing::new(Vec::with_capacity(1024));
    if pretty {
        let formatter = NoPage(PrettyFormatter::with_indent(b"    "));
        value.serialize(&mut Serializer::with_formatter(&mut *text, formatter))?;
        text.push(b'\n');
    } else {
        value.serialize(&mut Serializer::with_formatter(&mut *text, NoPage(CompactFormatter)))?;
    }
    Ok(Bytes::from_owner(text))
}

/// Escapes on the way what a page is made of.
struct NoPage<F>(F);

impl<F: Formatter> Formatter for NoPage<F> {
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
    fn what_goes_out_is_no_page() {
        let value = serde_json::json!({"a": "<hidden> & é"});
        assert_eq!(rendered(&value, false).unwrap(), "{\"a\":\"\\u003chidden\\u003e \\u0026 é\"}".as_bytes());
        assert_eq!(
            rendered(&serde_json::json!({"a": [1]}), true).unwrap(),
            "{\n    \"a\": [\n        1\n    ]\n}\n".as_bytes()
        );
    }
}
