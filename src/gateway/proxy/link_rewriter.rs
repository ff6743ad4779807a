//! Rewrites the links of a JSON document from the platform's origin to the gateway's while the document streams.
//! Otherwise a client that follows the next page, or downloads a state, would leave the gateway and send the local
//! token elsewhere.
//!
//! The document is not parsed: each byte is read once and passed on, and at most one origin's length is held back.
//! Strings that begin with the platform's origin and lead into its API are rewritten in two places: inside an object
//! under a key `links`, and as download URLs of a state version ([`DOWNLOADS`]), directly in its `attributes`. All else
//! in `attributes` is users' data (descriptions, variables, outputs) and stays byte for byte, whatever its keys are.

use std::sync::Arc;

use super::origins::{LinkPrefixes, PrefixMatch};

/// Streaming scanner; one per document.
#[derive(Debug)]
pub(super) struct LinkRewriter {
    from: Arc<LinkPrefixes>,
    to: Vec<u8>,
    /// Number of open objects and arrays.
    depth: usize,
    /// Object that holds links, and its depth.
    enclosing_object: Option<(Object, usize)>,
    /// Last byte outside strings that was not white space.
    previous: u8,
    /// Last string, if it was a key that matters.
    name: Option<Name>,
    string: StringState,
    /// Start of a string that came in chunks and may be a key that matters.
    collecting: Vec<u8>,
    /// Raw bytes of a string that matches a link prefix so far.
    pending: Vec<u8>,
    /// The same without escapes.
    unescaped: Vec<u8>,
}

/// An object that holds links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    /// Every string in it is a link.
    Links,
    /// Only its members named in [`DOWNLOADS`] are links.
    Attributes,
}

/// A key that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Object(Object),
    Download,
}

/// Position of the scanner relative to strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StringState {
    /// Outside strings.
    Outside,
    /// In a string that stays unchanged: `escaped` after a backslash, `collecting` while [`LinkRewriter::collecting`]
    /// holds all of it.
    Text { escaped: bool, collecting: bool },
    /// In a string that matches a link prefix so far; `escaped` after a backslash.
    Candidate { escaped: bool },
}

/// Download URLs among a state version's attributes. Since late 2023 they lead into the API and need the token.
const DOWNLOADS: [&[u8]; 4] = [
    b"hosted-state-download-url",
    b"hosted-json-state-download-url",
    b"sanitized-state-download-url",
    b"encrypted-state-download-url",
];

/// Length of the longest key that matters, in bytes.
const MAX_NAME_LENGTH: usize = 30;

/// Longest start of a link in which an unknown address is looked for, in bytes.
const MAX_LINK: usize = 512;

/// Spare capacity for links that get longer, in bytes; most documents have few.
const SPARE: usize = 256;

/// Returns the length of a string that has begun, if it ends in these bytes and has no escapes.
fn plain_string_length(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'"', b'\\', bytes).filter(|end| bytes[*end] == b'"')
}

impl Name {
    fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"links" => Some(Self::Object(Object::Links)),
            b"attributes" => Some(Self::Object(Object::Attributes)),
            text if text.len() <= MAX_NAME_LENGTH && DOWNLOADS.contains(&text) => Some(Self::Download),
            _ => None,
        }
    }
}

impl LinkRewriter {
    /// Creates a scanner that rewrites links into the platform's API to the same API at another origin.
    pub(super) fn new(from: &Arc<LinkPrefixes>, to: &str) -> Self {
        Self {
            from: Arc::clone(from),
            to: LinkPrefixes::prefix_for(to),
            depth: 0,
            enclosing_object: None,
            previous: 0,
            name: None,
            string: StringState::Outside,
            collecting: Vec::new(),
            pending: Vec::new(),
            unescaped: Vec::new(),
        }
    }

    /// Processes the next bytes and appends the output to `out`.
    pub(super) fn rewrite(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(bytes.len() + self.pending.len() + SPARE);
        // Bytes before this index are in `out`, or held back.
        let mut copied = 0;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.string {
                StringState::Outside => {
                    if byte == b'"' && self.is_link_value() {
                        let start = at + 1;
                        let rest = &bytes[start..];
                        let beginning = &rest[..rest.len().min(self.from.max_prefix_length())];
                        if let Some(length) = self.from.prefix_length(beginning) {
                            out.extend_from_slice(&bytes[copied..start]);
                            out.extend_from_slice(&self.to);
                            (at, copied) = (at + length, start + length);
                            self.string = TEXT;
                        } else if beginning.len() == self.from.max_prefix_length() && !beginning.contains(&b'\\') {
                            self.from.warn_of_unknown(rest.get(..MAX_LINK).unwrap_or(rest));
                            self.string = TEXT;
                        } else {
                            // The string may continue in the next chunk, or contain escapes.
                            out.extend_from_slice(&bytes[copied..start]);
                            copied = start;
                            self.string = StringState::Candidate { escaped: false };
                        }
                    } else if byte == b'"'
                        && let Some(length) = plain_string_length(&bytes[at + 1..])
                    {
                        self.name = Name::parse(&bytes[at + 1..=at + length]);
                        self.previous = b'"';
                        at += length + 1;
                    } else {
                        self.scan_structure(byte);
                    }
                }
                StringState::Text { escaped: true, .. } => self.string = TEXT,
                // Most of a document is text: skip to the next byte that can end a string.
                StringState::Text { collecting: false, .. } => match memchr::memchr2(b'"', b'\\', &bytes[at..]) {
                    None => break,
                    Some(plain) => {
                        at += plain;
                        self.scan_text(bytes[at], false);
                    }
                },
                StringState::Text { collecting: true, .. } => self.scan_text(byte, true),
                StringState::Candidate { escaped } => {
                    copied = at + 1;
                    self.scan_candidate(byte, escaped, out);
                }
            }
            at += 1;
        }
        out.extend_from_slice(&bytes[copied..]);
    }

    /// Flushes the held bytes at the document's end: their string never ended, so it is not a link.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.pending);
    }

    /// Returns true if the string that begins here is the value of a link member.
    fn is_link_value(&self) -> bool {
        self.previous == b':'
            && match self.enclosing_object {
                Some((Object::Links, _)) => true,
                Some((Object::Attributes, depth)) => depth == self.depth && self.name == Some(Name::Download),
                None => false,
            }
    }

    fn scan_text(&mut self, byte: u8, collecting: bool) {
        match byte {
            b'\\' => self.string = StringState::Text { escaped: true, collecting: false },
            b'"' => {
                self.name = if collecting { Name::parse(&self.collecting) } else { None };
                self.string = StringState::Outside;
                self.previous = b'"';
            }
            _ => {
                let collecting = collecting && self.collecting.len() < MAX_NAME_LENGTH;
                if collecting {
                    self.collecting.push(byte);
                }
                self.string = StringState::Text { escaped: false, collecting };
            }
        }
    }

    fn scan_structure(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.collecting.clear();
                self.string = StringState::Text { escaped: false, collecting: true };
            }
            b'{' | b'[' => {
                self.depth += 1;
                if byte == b'{'
                    && self.previous == b':'
                    && self.enclosing_object.is_none()
                    && let Some(Name::Object(object)) = self.name
                {
                    self.enclosing_object = Some((object, self.depth));
                }
                self.previous = byte;
            }
            b'}' | b']' => {
                if self.enclosing_object.is_some_and(|(_, depth)| depth == self.depth) {
                    self.enclosing_object = None;
                }
                self.depth = self.depth.saturating_sub(1);
                self.previous = byte;
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            other => self.previous = other,
        }
    }

    fn scan_candidate(&mut self, byte: u8, escaped: bool, out: &mut Vec<u8>) {
        self.pending.push(byte);
        if byte == b'\\' && !escaped {
            self.string = StringState::Candidate { escaped: true };
            return;
        }
        // Some JSON writers escape slashes. No other escape occurs in the origin of a link.
        let read = (byte != b'"' || escaped) && (!escaped || byte == b'/');
        let comparison = if read {
            self.unescaped.push(byte);
            self.from.compare(&self.unescaped)
        } else {
            PrefixMatch::None
        };
        match comparison {
            PrefixMatch::Partial => {
                self.string = StringState::Candidate { escaped: false };
                return;
            }
            PrefixMatch::Full => {
                out.extend_from_slice(&self.to);
                self.pending.clear();
                self.string = TEXT;
            }
            PrefixMatch::None => {
                out.append(&mut self.pending);
                self.string = if byte == b'"' && !escaped {
                    (self.name, self.previous) = (None, b'"');
                    StringState::Outside
                } else {
                    TEXT
                };
            }
        }
        self.unescaped.clear();
    }
}

/// State of a string that stays unchanged and is not a key that matters.
const TEXT: StringState = StringState::Text { escaped: false, collecting: false };

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FROM: &str = "https://tfe.example.com";
    const TO: &str = "http://127.0.0.1:8800";

    fn rewrite_in_chunks(pieces: &[&[u8]]) -> String {
        let from = Arc::new(LinkPrefixes::new(&[url::Url::parse(FROM).unwrap()]));
        let mut links = LinkRewriter::new(&from, TO);
        let mut out = Vec::new();
        for piece in pieces {
            links.rewrite(piece, &mut out);
        }
        links.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn rewrite(text: &str) -> String {
        rewrite_in_chunks(&[text.as_bytes()])
    }

    #[test]
    fn only_links_into_the_api_are_rewritten() {
        let check = |given: &str, expected: &str| {
            assert_eq!(rewrite(given), expected, "{given}");
            let pieces: Vec<&[u8]> = given.as_bytes().chunks(1).collect();
            assert_eq!(rewrite_in_chunks(&pieces), expected, "byte by byte: {given}");
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
        check(
            r#"{"data":{"attributes":{"description":"https://tfe.example.com/api/v2/a","hosted-state-download-url":"https://TFE.example.com:443/api/state-versions/sv-1/hosted_state","hosted-json-state-download-url" :"https:\/\/tfe.example.com\/api\/b"},"links":{"self":"https://tfe.example.com/api/c"}}}"#,
            r#"{"data":{"attributes":{"description":"https://tfe.example.com/api/v2/a","hosted-state-download-url":"http://127.0.0.1:8800/api/state-versions/sv-1/hosted_state","hosted-json-state-download-url" :"http://127.0.0.1:8800/api/b"},"links":{"self":"http://127.0.0.1:8800/api/c"}}}"#,
        );
        same(
            r#"{"attributes":{"value":{"links":{"self":"https://tfe.example.com/api/a"},"attributes":{"hosted-state-download-url":"https://tfe.example.com/api/a"},"hosted-state-download-url":"https://tfe.example.com/api/a"},"a":["hosted-state-download-url","https://tfe.example.com/api/a"]},"hosted-state-download-url":"https://tfe.example.com/api/a"}"#,
        );
        same(r#"{"links":{"a":"\\","b":"\"https://tfe.example.com/api/","c":"https:\\/\\/tfe.example.com/api/"}}"#);
        same(r#"{"links":{"self":"https://tfe.example.co"#);
        same(r#"}}]]{"links":{"a":1},"b":"https://tfe.example.com/api/v2/a"}"#);
        same("");
    }

    proptest! {
        #[test]
        fn rewriting_is_independent_of_chunk_boundaries(
            names in proptest::collection::vec(
                "(links|attributes|hosted-state-download-url|self|\\PC{0,4})", 1..8,
            ),
            values in proptest::collection::vec("(https://tfe\\.example\\.com/api/\\PC{0,6}|https://tfe\\.example\\.com/\\PC{0,6}|\\PC{0,12})", 1..6),
            size in 1_usize..40,
        ) {
            let mut document = serde_json::json!({});
            for (index, value) in values.iter().enumerate() {
                let name = names[index % names.len()].clone();
                let other = names[(index + 1) % names.len()].clone();
                document = serde_json::json!({ format!("v{index}"): value, other: value, name: document });
            }
            let text = document.to_string();
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let found: serde_json::Value = serde_json::from_str(&rewrite_in_chunks(&pieces)).unwrap();
            prop_assert_eq!(found, rewrite_parsed(document, None, true));
        }
    }

    /// Reference implementation on the parsed document. `special` is the enclosing [`Object`], and `direct` is true for
    /// a member of that object itself.
    fn rewrite_parsed(value: serde_json::Value, special: Option<Object>, direct: bool) -> serde_json::Value {
        use serde_json::Value;
        let member = |(name, value): (String, Value)| {
            let opens = Name::parse(name.as_bytes()).filter(|_| special.is_none() && value.is_object());
            let rewritten = match (opens, special, &value) {
                (Some(Name::Object(object)), ..) => rewrite_parsed(value, Some(object), true),
                (_, Some(Object::Attributes), Value::String(text)) => {
                    let download = direct && Name::parse(name.as_bytes()) == Some(Name::Download);
                    if download { rewrite_text(text) } else { value }
                }
                (_, Some(Object::Attributes), _) => rewrite_parsed(value, special, false),
                _ => rewrite_parsed(value, special, true),
            };
            (name, rewritten)
        };
        match value {
            Value::Object(members) => members.into_iter().map(member).collect(),
            Value::String(text) if special == Some(Object::Links) => rewrite_text(&text),
            other => other,
        }
    }

    fn rewrite_text(text: &str) -> serde_json::Value {
        text.strip_prefix("https://tfe.example.com/api/")
            .map_or_else(|| text.to_owned(), |rest| format!("http://127.0.0.1:8800/api/{rest}"))
            .into()
    }
}
