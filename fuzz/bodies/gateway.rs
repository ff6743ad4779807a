//! The gateway: links in documents of the platform, compared with `serde_json`.

use serde_json::Value;
use url::Url;

/// Origin of the platform.
const PLATFORM: &str = "https://tfe.example.com";
/// Origin of the gateway.
const GATEWAY: &str = "http://127.0.0.1:8800";

/// Reads bytes as a document of the platform and rewrites its links.
pub(crate) fn links(bytes: &[u8]) {
    let platform = Url::parse(PLATFORM).expect("a URL");
    let rewrite = |part_size| keyward_gateway::proxy::fuzz::rewrite_links(&platform, GATEWAY, bytes, part_size);
    let whole = rewrite(bytes.len());
    assert_eq!(whole, rewrite(super::part_length(bytes)), "the result depends on the parts");
    assert_eq!(whole, rewrite(1), "the result differs byte by byte");
    let Ok(document) = serde_json::from_slice::<Value>(bytes) else { return };
    let actual: Value = serde_json::from_slice(&whole).expect("the rewritten document is no JSON");
    // The rewriter compares keys as they are spelled: escapes and repeated keys mean something else to a parser.
    if !has_ambiguous_keys(bytes, &document) {
        assert_eq!(
            actual,
            rewrite_value(document, Scope::Outside),
            "the rewritten document differs from the expected one"
        );
    }
}

/// Position of a value relative to the objects that hold links.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    Outside,
    /// Anywhere in `links`.
    Links,
    /// Directly in `attributes`.
    Attributes,
    /// Deeper in `attributes`: users' data.
    Below,
}

/// Rewrites the links of a parsed document.
fn rewrite_value(value: Value, scope: Scope) -> Value {
    let member = |(name, value): (String, Value)| {
        let value = match (scope, name.as_str(), &value) {
            (Scope::Outside, "links", Value::Object(_)) => rewrite_value(value, Scope::Links),
            (Scope::Outside, "attributes", Value::Object(_)) => rewrite_value(value, Scope::Attributes),
            (Scope::Attributes, name, Value::String(text)) if is_download(name) => rewrite_link(text),
            (Scope::Links, _, Value::String(text)) => rewrite_link(text),
            (Scope::Attributes, ..) => rewrite_value(value, Scope::Below),
            _ => rewrite_value(value, scope),
        };
        (name, value)
    };
    match value {
        Value::Object(members) => members.into_iter().map(member).collect(),
        // A string in a list is never a link.
        Value::Array(values) => values
            .into_iter()
            .map(|value| if value.is_string() { value } else { rewrite_value(value, scope) })
            .collect(),
        other => other,
    }
}

/// Returns true for the attributes that the gateway rewrites.
fn is_download(name: &str) -> bool {
    ["hosted-state", "hosted-json-state", "sanitized-state", "encrypted-state"]
        .iter()
        .any(|kind| name.strip_prefix(kind) == Some("-download-url"))
}

fn rewrite_link(text: &str) -> Value {
    let origins = [PLATFORM.to_owned(), format!("{PLATFORM}:443")];
    let link = origins.iter().find_map(|origin| {
        let (start, rest) = text.split_at_checked(origin.len())?;
        (start.eq_ignore_ascii_case(origin) && rest.starts_with("/api/")).then_some(rest)
    });
    link.map_or_else(|| text.to_owned(), |rest| format!("{GATEWAY}{rest}")).into()
}

/// Returns true if a key is repeated, or if the text has any escape but that of a slash.
fn has_ambiguous_keys(bytes: &[u8], document: &Value) -> bool {
    let escaped = bytes.windows(2).any(|pair| pair[0] == b'\\' && pair[1] != b'/');
    escaped || count_colons(document) != memchr::memchr_iter(b':', bytes).count()
}

/// Counts the members of all objects and the colons in all strings: fewer than the colons of the text if a key is repeated.
fn count_colons(value: &Value) -> usize {
    let colons = |text: &str| memchr::memchr_iter(b':', text.as_bytes()).count();
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| 1 + colons(name) + count_colons(value)).sum(),
        Value::Array(values) => values.iter().map(count_colons).sum(),
        Value::String(text) => colons(text),
        _ => 0,
    }
}
