//! Moves the links of a JSON document from the platform's origin to the gateway's, as the document passes: a client that
//! follows the next page would otherwise leave the gateway, and take the local token along.
//!
//! The document is not taken apart: bytes are looked at once and go on, and at most one origin's length of them is held
//! back. Only strings inside an object under a key `links` are touched, and of those only what begins with the platform's
//! origin and leads into its API; a blob's URL stays as it is.

use std::sync::Arc;

/// The scanner: one for each document.
#[derive(Debug)]
pub(super) struct Links {
    from: Arc<[u8]>,
    to: Vec<u8>,
    /// How many objects and arrays are open.
    depth: usize,
    /// The depth inside of the object of links, while it is open.
    inside: Option<usize>,
    /// The last byte outside of strings that was no white space.
    before: u8,
    /// Whether the last string was `links`.
    named: bool,
    string: Within,
    /// Bytes of a string that may turn out to be a link: they match so far.
    held: Vec<u8>,
}

/// Where in a string the scanner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// In none.
    Nothing,
    /// In one that stays as it is: whether the last byte was a backslash, and how much of `links` it is, if it still is.
    Text { escaped: bool, name: Option<usize> },
    /// In one that has matched so many bytes of the pattern.
    Link { matched: usize, escaped: bool },
}

const NAME: &[u8] = b"links";

/// Room for links that get longer, in bytes: most documents have few.
const LONGER: usize = 256;

/// The length of a string that has begun, if it ends in these bytes and holds nothing escaped.
fn whole(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'"', b'\\', bytes).filter(|end| bytes[*end] == b'"')
}

/// How links into the API of an origin (`https://HOST`, no slash at the end) begin.
pub(super) fn into_api(origin: &str) -> Vec<u8> {
    [origin, "/api/"].concat().into_bytes()
}

impl Links {
    /// From what [`into_api`] says of one origin to another.
    pub(super) fn new(from: &Arc<[u8]>, to: &str) -> Self {
        Self {
            from: Arc::clone(from),
            to: into_api(to),
            depth: 0,
            inside: None,
            before: 0,
            named: false,
            string: Within::Nothing,
            held: Vec::new(),
        }
    }

    /// Takes the next bytes and adds to `out` what can go on.
    pub(super) fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(bytes.len() + self.held.len() + LONGER);
        // Bytes before this one are in `out`, or held.
        let mut kept = 0;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.string {
                Within::Nothing => {
                    if byte == b'"' && self.is_link_here() {
                        let (start, length) = (at + 1, self.from.len());
                        match bytes.get(start..start + length) {
                            Some(begins) if *begins == *self.from => {
                                out.extend_from_slice(&bytes[kept..start]);
                                out.extend_from_slice(&self.to);
                                (at, kept) = (at + length, start + length);
                                self.string = Within::Text { escaped: false, name: None };
                            }
                            Some(begins) if !begins.contains(&b'\\') => {
                                self.string = Within::Text { escaped: false, name: None };
                            }
                            // It may go on in the next bytes, or be written with escapes.
                            _ => {
                                out.extend_from_slice(&bytes[kept..start]);
                                kept = start;
                                self.string = Within::Link { matched: 0, escaped: false };
                            }
                        }
                    } else if byte == b'"'
                        && let Some(length) = whole(&bytes[at + 1..])
                    {
                        self.named = bytes[at + 1..=at + length] == *NAME;
                        self.before = b'"';
                        at += length + 1;
                    } else {
                        self.outside(byte);
                    }
                }
                Within::Text { escaped: true, .. } => self.string = Within::Text { escaped: false, name: None },
                // Most of a document is texts: all that does not end them is passed over at once.
                Within::Text { name: None, .. } => match memchr::memchr2(b'"', b'\\', &bytes[at..]) {
                    None => break,
                    Some(plain) => {
                        at += plain;
                        self.text(bytes[at], None);
                    }
                },
                Within::Text { name, .. } => self.text(byte, name),
                Within::Link { matched, escaped } => {
                    kept = at + 1;
                    self.link(byte, matched, escaped, out);
                }
            }
            at += 1;
        }
        out.extend_from_slice(&bytes[kept..]);
    }

    /// At the document's end: what is held is no link, as its string has not ended.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }

    /// Whether the string that begins here is the value of a member of an object of links.
    fn is_link_here(&self) -> bool {
        self.before == b':' && self.inside.is_some()
    }

    fn text(&mut self, byte: u8, name: Option<usize>) {
        match byte {
            b'\\' => self.string = Within::Text { escaped: true, name: None },
            b'"' => {
                self.named = name == Some(NAME.len());
                self.string = Within::Nothing;
                self.before = b'"';
            }
            _ => {
                let name = name.filter(|name| NAME.get(*name) == Some(&byte)).map(|name| name + 1);
                self.string = Within::Text { escaped: false, name };
            }
        }
    }

    fn outside(&mut self, byte: u8) {
        match byte {
            b'"' => self.string = Within::Text { escaped: false, name: Some(0) },
            b'{' | b'[' => {
                self.depth += 1;
                if byte == b'{' && self.before == b':' && self.named && self.inside.is_none() {
                    self.inside = Some(self.depth);
                }
                self.before = byte;
            }
            b'}' | b']' => {
                if self.inside == Some(self.depth) {
                    self.inside = None;
                }
                self.depth = self.depth.saturating_sub(1);
                self.before = byte;
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            other => self.before = other,
        }
    }

    fn link(&mut self, byte: u8, matched: usize, escaped: bool, out: &mut Vec<u8>) {
        self.held.push(byte);
        match byte {
            // Some writers of JSON escape slashes.
            b'\\' if !escaped && self.from.get(matched) == Some(&b'/') => {
                self.string = Within::Link { matched, escaped: true };
            }
            _ if self.from.get(matched) == Some(&byte) && (!escaped || byte == b'/') => {
                if matched + 1 == self.from.len() {
                    out.extend_from_slice(&self.to);
                    self.held.clear();
                    self.string = Within::Text { escaped: false, name: None };
                } else {
                    self.string = Within::Link { matched: matched + 1, escaped: false };
                }
            }
            _ => {
                out.append(&mut self.held);
                self.string = match byte {
                    b'"' if !escaped => {
                        (self.named, self.before) = (false, b'"');
                        Within::Nothing
                    }
                    _ => Within::Text { escaped: byte == b'\\' && !escaped, name: None },
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FROM: &str = "https://tfe.example.com";
    const TO: &str = "http://127.0.0.1:8800";

    fn moved_in(pieces: &[&[u8]]) -> String {
        let (mut links, mut out) = (Links::new(&into_api(FROM).into(), TO), Vec::new());
        for piece in pieces {
            links.pass(piece, &mut out);
        }
        links.end(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn moved(text: &str) -> String {
        moved_in(&[text.as_bytes()])
    }

    #[test]
    fn links_into_the_api_are_moved_and_nothing_else_is() {
        let check = |given: &str, wanted: &str| {
            assert_eq!(moved(given), wanted, "{given}");
            let pieces: Vec<&[u8]> = given.as_bytes().chunks(1).collect();
            assert_eq!(moved_in(&pieces), wanted, "byte by byte: {given}");
        };
        let same = |given: &str| check(given, given);
        check(
            r#"{"data":[{"links":{"self":"https://tfe.example.com/api/v2/a"}}],"links" : { "next": "https://tfe.example.com/api/v2/a?page%5Bnumber%5D=2\u0026x=1", "prev": null }}"#,
            r#"{"data":[{"links":{"self":"http://127.0.0.1:8800/api/v2/a"}}],"links" : { "next": "http://127.0.0.1:8800/api/v2/a?page%5Bnumber%5D=2\u0026x=1", "prev": null }}"#,
        );
        check(
            r#"{"links":{"related":{"href":"https:\/\/tfe.example.com\/api\/v2\/a","meta":{}},"last":"https://tfe.example.com/api/x"},"x":{"y":"https://tfe.example.com/api/v2/a"}}"#,
            r#"{"links":{"related":{"href":"http://127.0.0.1:8800/api/v2\/a","meta":{}},"last":"http://127.0.0.1:8800/api/x"},"x":{"y":"https://tfe.example.com/api/v2/a"}}"#,
        );
        same(
            r#"{"attributes":{"upload-url":"https://tfe.example.com/api/v2/a","links":"https://tfe.example.com/api/v2/a"}}"#,
        );
        same(
            r#"{"links":{"upload":"https://archivist.example.com/v1/object/abc","download":"https://tfe.example.com/_archivist/v1/object/abc"}}"#,
        );
        same(
            r#"{"links":{"self":"/api/v2/a","a":"https://tfe.example.com","b":"https://tfe.example.com/apix","c":"https://tfe.example.com.evil/api/v2/"}}"#,
        );
        same(
            r#"{"link\u0073":{"self":"https://tfe.example.com/api/v2/a"},"Links":{"self":"https://tfe.example.com/api/v2/a"}}"#,
        );
        same(
            r#"{"a":"\"links\":{","b":"https://tfe.example.com/api/v2/a","links":["https://tfe.example.com/api/v2/a"]}"#,
        );
        same(r#"{"links":{"a":"\\","b":"\"https://tfe.example.com/api/","c":"https:\\/\\/tfe.example.com/api/"}}"#);
        same(r#"{"links":{"self":"https://tfe.example.co"#);
        same(r#"}}]]{"links":{"a":1},"b":"https://tfe.example.com/api/v2/a"}"#);
        same("");
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_a_document_comes_it_stays_json_with_the_same_values(
            names in proptest::collection::vec("(links|self|a|\\PC{0,4})", 1..6),
            values in proptest::collection::vec("(https://tfe\\.example\\.com/api/\\PC{0,6}|https://tfe\\.example\\.com/\\PC{0,6}|\\PC{0,12})", 1..6),
            size in 1_usize..40,
        ) {
            let mut document = serde_json::json!({});
            for (index, value) in values.iter().enumerate() {
                let name = names[index % names.len()].clone();
                document = serde_json::json!({ name: document, format!("v{index}"): value });
            }
            let text = document.to_string();
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let found: serde_json::Value = serde_json::from_str(&moved_in(&pieces)).unwrap();
            prop_assert_eq!(found, moved_by_value(document, false));
        }
    }

    /// The same by taking the document apart.
    fn moved_by_value(value: serde_json::Value, in_links: bool) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::Object(members) => members
                .into_iter()
                .map(|(name, value)| {
                    let inside = in_links || (name == "links" && value.is_object());
                    (name, moved_by_value(value, inside))
                })
                .collect(),
            Value::String(text) if in_links => Value::String(
                text.strip_prefix("https://tfe.example.com/api/")
                    .map_or_else(|| text.clone(), |rest| format!("http://127.0.0.1:8800/api/{rest}")),
            ),
            other => other,
        }
    }
}
