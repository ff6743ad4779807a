//! The gateway: links in documents of the platform, compared with `serde_json`.

use serde_json::Value;
use url::Url;

const FROM: &str = "https://tfe.example.com";
const TO: &str = "http://127.0.0.1:8800";

/// Reads bytes as a document of the platform and rewrites its links.
pub(crate) fn links(bytes: &[u8]) {
    let from = Url::parse(FROM).expect("a URL");
    let rewrite = |size| keyward::gateway::proxy::fuzz::rewrite_links(&from, TO, bytes, size);
    let whole = rewrite(bytes.len());
    assert_eq!(whole, rewrite(super::part_length(bytes)), "in parts it is another");
    assert_eq!(whole, rewrite(1), "byte by byte it is another");
    let Ok(document) = serde_json::from_slice::<Value>(bytes) else { return };
    let found: Value = serde_json::from_slice(&whole).expect("a JSON document is none any more");
    // A key that is spelled with escapes, or repeated, is another to a parser than in the text.
    if !has_doubtful_keys(bytes, &document) {
        assert_eq!(found, rewritten(document, Place::Outside), "the parsed document is rewritten otherwise");
    }
}

/// Position of a value relative to the objects that hold links.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Outside,
    /// Anywhere in `links`.
    Links,
    /// Directly in `attributes`.
    Attributes,
    /// Deeper in `attributes`: users' data.
    Below,
}

fn rewritten(value: Value, place: Place) -> Value {
    let member = |(name, value): (String, Value)| {
        let value = match (place, name.as_str(), &value) {
            (Place::Outside, "links", Value::Object(_)) => rewritten(value, Place::Links),
            (Place::Outside, "attributes", Value::Object(_)) => rewritten(value, Place::Attributes),
            (Place::Attributes, name, Value::String(text)) if is_download(name) => rewritten_text(text),
            (Place::Links, _, Value::String(text)) => rewritten_text(text),
            (Place::Attributes, ..) => rewritten(value, Place::Below),
            _ => rewritten(value, place),
        };
        (name, value)
    };
    match value {
        Value::Object(members) => members.into_iter().map(member).collect(),
        // A string in a list is no link, whatever the list is in.
        Value::Array(values) => {
            values.into_iter().map(|value| if value.is_string() { value } else { rewritten(value, place) }).collect()
        }
        other => other,
    }
}

fn is_download(name: &str) -> bool {
    ["hosted-state", "hosted-json-state", "sanitized-state", "encrypted-state"]
        .iter()
        .any(|kind| name.strip_prefix(kind) == Some("-download-url"))
}

fn rewritten_text(text: &str) -> Value {
    let origins = [FROM.to_owned(), format!("{FROM}:443")];
    let link = origins.iter().find_map(|origin| {
        let (start, rest) = text.split_at_checked(origin.len())?;
        (start.eq_ignore_ascii_case(origin) && rest.starts_with("/api/")).then_some(rest)
    });
    link.map_or_else(|| text.to_owned(), |rest| format!("{TO}{rest}")).into()
}

/// Returns true if a key is repeated, or if any escape but that of a slash stands before what may be a key or an origin.
fn has_doubtful_keys(bytes: &[u8], document: &Value) -> bool {
    let escaped = bytes.windows(2).any(|pair| pair[0] == b'\\' && pair[1] != b'/');
    escaped || count(document) != memchr::memchr_iter(b':', bytes).count()
}

/// Counts the members of all objects and the colons in all strings: fewer than in the text if a key is repeated.
fn count(value: &Value) -> usize {
    let colons = |text: &str| memchr::memchr_iter(b':', text.as_bytes()).count();
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| 1 + colons(name) + count(value)).sum(),
        Value::Array(values) => values.iter().map(count).sum(),
        Value::String(text) => colons(text),
        _ => 0,
    }
}
